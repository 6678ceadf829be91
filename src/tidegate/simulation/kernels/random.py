"""Random numbers inside compiled code: one word of state a stream, nothing global.

A stream is a single unsigned integer (SplitMix64) that each function takes and returns, so a kernel
keeps it in a register and a world can be saved between two windows. Seeds come from NumPy's
`SeedSequence`, which keeps streams independent. The exponential uses the ziggurat of Marsaglia
and Tsang (2000) with 256 layers: most draws cost one multiplication and one comparison.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tidegate.theory.compiled import compiled

__all__ = ["exponential", "normal", "stream", "streams", "uniform"]

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_11, _SHIFT_27 = np.uint64(11), np.uint64(27)
_SHIFT_30, _SHIFT_31 = np.uint64(30), np.uint64(31)
_LOW_8 = np.uint64(255)
_UNIT = 2.0**-53

# Where the lowest layer ends and the area of each layer, for 256 layers under exp(-x).
_TAIL = 7.69711747013104972
_AREA = 0.0039496598225815571993


def _ziggurat() -> tuple[Words, Floats, Floats]:
    """Acceptance bounds (on 53 bits), widths and heights of the layers."""
    edge = np.empty(257)
    edge[0] = _AREA * math.exp(_TAIL)
    edge[1] = _TAIL
    for layer in range(2, 256):
        edge[layer] = -math.log(math.exp(-edge[layer - 1]) + _AREA / edge[layer - 1])
    edge[256] = 0.0
    accept = (edge[1:] / edge[:-1] * 2.0**53).astype(np.uint64)
    return accept, edge[:-1] * _UNIT, np.exp(-edge)


_ACCEPT, _WIDTH, _HEIGHT = _ziggurat()


def streams(seed: int, purpose: int, count: int) -> Words:
    """States of `count` independent streams for one purpose.

    seed: random seed of the run. purpose: a fixed number, so that a new draw in one place does not
    change the draws in others.
    """
    states = np.random.SeedSequence(seed, spawn_key=(purpose,)).generate_state(count, np.uint64)
    return states.astype(np.uint64)


def stream(seed: int, *key: int) -> np.random.Generator:
    """A NumPy generator for draws outside of the kernels, one for each `key`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


@compiled
def uniform(state: np.uint64) -> tuple[float, np.uint64]:
    """Uniform in [0, 1), and the state after it."""
    state += _GAMMA
    return (_mixed(state) >> _SHIFT_11) * _UNIT, state


@compiled(inside=True)
def _mixed(state: np.uint64) -> np.uint64:
    mixed = (state ^ (state >> _SHIFT_30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _SHIFT_27)) * _MIX_2
    return mixed ^ (mixed >> _SHIFT_31)


@compiled(inside=True)
def _unlikely(state: np.uint64, layer: int, value: float) -> tuple[float, np.uint64]:
    """The one draw in fifty outside of a layer's core; negative if it is rejected."""
    share, state = uniform(state)
    if layer == 0:
        return _TAIL - math.log(1.0 - share), state
    height = _HEIGHT[layer] + share * (_HEIGHT[layer + 1] - _HEIGHT[layer])
    return value if height < math.exp(-value) else -1.0, state


@compiled
def exponential(state: np.uint64) -> tuple[float, np.uint64]:
    """Exponential with mean 1, and the state after it."""
    while True:
        state += _GAMMA
        word = _mixed(state)
        layer = int(word & _LOW_8)
        high = word >> _SHIFT_11
        value = high * _WIDTH[layer]
        if high < _ACCEPT[layer]:
            return value, state
        value, state = _unlikely(state, layer, value)
        if value >= 0.0:
            return value, state


@compiled
def normal(state: np.uint64) -> tuple[float, np.uint64]:
    """Standard normal by Marsaglia's polar method, and the state after it."""
    while True:
        a, state = uniform(state)
        b, state = uniform(state)
        a, b = 2.0 * a - 1.0, 2.0 * b - 1.0
        square = a * a + b * b
        if 0.0 < square < 1.0:
            return a * math.sqrt(-2.0 * math.log(square) / square), state
