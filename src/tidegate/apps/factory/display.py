"""The display of a machine, as the camera S2 sees it: seven numbers and a check, as a PNG image.

A machine's display counts since the production began, as such displays do; so an image that is lost
costs no more than itself. What was drawn is also noted in the image's text chunk, the *planted
truth*: no reader looks there, only the reference does.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL", "DIGITS", "FRAME", "LINES", "Display", "check_number", "draw", "template"]

Pixels = NDArray[np.uint8]


class Display(NamedTuple):
    """What a display shows. Times in milliseconds, all counts since the production began.

    clock_ms: Unix time by the machine's own clock. total_ms: since the production began, of which
    planned_ms were planned downtime and defect_ms defects. made, bad: goods, and those no good.
    """

    machine: int
    clock_ms: int
    total_ms: int
    planned_ms: int
    defect_ms: int
    made: int
    bad: int


LINES = ("MACHINE", "CLOCK", "TOTAL", "PLANNED", "DEFECT", "MADE", "BAD", "CHECK")
DIGITS = 13
CELL = (24, 16)
"""Height and width of a digit in pixels."""
FRAME = 3
"""Thickness of the dark frame around the display, in pixels."""
_LABELS = 90
_AROUND = 12
"""Pixels by which the camera may be off."""
_PAPER, _INK = 215, 35
_GRAIN, _GRAINY = 14, 0.036
"""How strong the camera's noise is, and the share of pixels that have it: makes 12.5 kB."""
_PLANES = 32


def check_number(numbers: Iterable[int]) -> int:
    """A check that no single wrong digit and no two swapped ones pass.

    >>> check_number([3, 1700000000000]), check_number([3, 1700000000001])
    (61, 87)
    """
    digits = "".join(f"{number:0{DIGITS}d}" for number in numbers)
    return sum((place + 1) * int(digit) for place, digit in enumerate(digits)) % 97


@cache
def template(digit: str) -> Pixels:
    """A digit (or another letter) as the display draws it, one cell in size."""
    import cv2

    cell = np.full(CELL, _PAPER, np.uint8)
    cv2.putText(cell, digit, (1, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.62, _INK, 2, cv2.LINE_AA)
    return cell


@cache
def _empty() -> Pixels:
    """The frame with its labels and no digits."""
    import cv2

    height, width = CELL
    inner = np.full((len(LINES) * height, _LABELS + DIGITS * width), _PAPER, np.uint8)
    for line, label in enumerate(LINES):
        at = (4, line * height + 18)
        cv2.putText(inner, label, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, _INK, 1, cv2.LINE_AA)
    return np.pad(inner, FRAME, constant_values=0)


@cache
def _noise() -> NDArray[np.int16]:
    """Some planes of camera noise; an image takes one of them, since drawing lots is slow."""
    random = np.random.default_rng(1)
    frame = _empty()
    shape = (_PLANES, frame.shape[0] + _AROUND, frame.shape[1] + _AROUND)
    lots = random.random(shape)
    grain = np.where(lots < _GRAINY / 2, -_GRAIN, np.where(lots > 1 - _GRAINY / 2, _GRAIN, 0))
    return grain.astype(np.int16)


def draw(display: Display, random: np.random.Generator, *, smudged: bool = False) -> bytes:
    """A photograph of a display: grainy, and off the middle by some pixels.

    smudged: something covers the right half, so nobody can read it.
    """
    height, width = CELL
    frame = _empty().copy()
    numbers = (*display, check_number(display))
    for line, number in enumerate(numbers):
        top = FRAME + line * height
        row = np.hstack([template(digit) for digit in f"{number:0{DIGITS}d}"])
        frame[top : top + height, -FRAME - DIGITS * width : -FRAME] = row
    if smudged:
        frame[FRAME:-FRAME, frame.shape[1] // 2 : -FRAME] = 128
    grain = _noise()[random.integers(_PLANES)]
    picture = np.full(grain.shape, _PAPER, np.int16)
    down, right = random.integers(0, _AROUND + 1, 2)
    picture[down : down + frame.shape[0], right : right + frame.shape[1]] = frame
    picture += grain
    truth = {**display._asdict(), "readable": not smudged}
    return _png(picture.clip(0, 255).astype(np.uint8), json.dumps(truth))


def _png(picture: Pixels, truth: str) -> bytes:
    """A grey PNG of a picture, without row filters: quick to write."""
    height, width = picture.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), picture]).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"tEXt", b"truth\0" + truth.encode("latin-1")),
        (b"IDAT", zlib.compress(rows, 2)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
