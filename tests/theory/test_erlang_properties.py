"""Erlang's formulas against exact rational arithmetic and against the textbook's sums."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.theory.queueing import Station, assign_processors, erlang_b, erlang_c, waiting_items


def exact_b(servers: int, load: Fraction) -> Fraction:
    """The inverse recursion 1/B_k = 1 + (k/a) · 1/B_{k-1}, without any rounding."""
    inverse = Fraction(1)
    for k in range(1, servers + 1):
        inverse = 1 + Fraction(k) / load * inverse
    return 1 / inverse


def textbook_b(servers: int, load: float) -> float:
    """(a^k / k!) / Σ a^j / j!"""
    terms = [load**j / math.factorial(j) for j in range(servers + 1)]
    return terms[-1] / math.fsum(terms)


def exact_waiting(servers: int, load: Fraction) -> Fraction:
    """Lq = C · a / (k − a), with C = k B / (k − a (1 − B))."""
    blocking = exact_b(servers, load)
    waits = servers * blocking / (servers - load * (1 - blocking))
    return waits * load / (servers - load)


@given(st.integers(1, 120), st.floats(0.01, 100))
def test_erlang_b_equals_exact_rational_arithmetic(servers: int, load: float) -> None:
    exact = exact_b(servers, Fraction(load))
    assert erlang_b(servers, load) == pytest.approx(float(exact), rel=1e-12)


@given(st.integers(0, 15), st.floats(0.01, 20))
def test_erlang_b_equals_the_textbook_sum_for_few_servers(servers: int, load: float) -> None:
    assert erlang_b(servers, load) == pytest.approx(textbook_b(servers, load), rel=1e-12)


@given(st.integers(1, 15), st.floats(0.01, 0.99))
def test_erlang_c_equals_the_textbook_formula(servers: int, utilisation: float) -> None:
    load = utilisation * servers
    last = load**servers / math.factorial(servers) / (1 - utilisation)
    others = math.fsum(load**j / math.factorial(j) for j in range(servers))
    assert erlang_c(servers, load) == pytest.approx(last / (last + others), rel=1e-9)


@given(st.integers(1, 150), st.floats(0.01, 0.98))
def test_waiting_items_equal_exact_rational_arithmetic(servers: int, utilisation: float) -> None:
    station = Station("s", utilisation * servers, 1.0)
    exact = float(exact_waiting(servers, Fraction(station.load)))
    assert waiting_items(servers, station) == pytest.approx(exact, rel=1e-9)


@given(st.integers(1, 20), st.floats(1, 100))
def test_too_much_load_means_everybody_waits_without_end(servers: int, factor: float) -> None:
    assert erlang_c(servers, servers * factor) == 1.0
    assert waiting_items(servers, Station("s", servers * factor, 1.0)) == math.inf


@given(st.integers(1, 60), st.floats(0.05, 0.95))
def test_each_processor_takes_away_less_waiting_than_the_one_before(k: int, share: float) -> None:
    load = Fraction(share * k)
    waiting = [exact_waiting(servers, load) for servers in (k, k + 1, k + 2)]
    computed = [waiting_items(servers, Station("s", float(load), 1.0)) for servers in (k, k + 1)]
    assert waiting[0] - waiting[1] > waiting[1] - waiting[2] > 0
    assert computed[0] > computed[1] >= 0


def test_192_processors_are_shared_as_exact_arithmetic_shares_them() -> None:
    """Doubles lose the gain under the constant 1/μ here; the waiting items alone do not."""
    given_loads = (3.3, 3.8, 0.05)
    stations = [Station(f"s{n}", load, 1.0) for n, load in enumerate(given_loads)]
    loads = [Fraction(station.load) for station in stations]
    counts = [station.least_processors for station in stations]
    # The recursion is carried along, one step a processor: exact and still quick.
    blocking = [exact_b(k, a) for k, a in zip(counts, loads, strict=True)]

    def waiting(i: int, k: int, b: Fraction) -> Fraction:
        spare = k - loads[i]
        return k * b * loads[i] / (spare * (spare + loads[i] * b))

    def following(i: int) -> Fraction:
        return loads[i] * blocking[i] / (counts[i] + 1 + loads[i] * blocking[i])

    def gain(i: int) -> Fraction:
        now = waiting(i, counts[i], blocking[i])
        return now - waiting(i, counts[i] + 1, following(i))

    gains = [gain(i) for i in range(3)]
    while sum(counts) < 192:
        best = max(range(3), key=lambda i: gains[i])
        blocking[best] = following(best)
        counts[best] += 1
        gains[best] = gain(best)

    assert tuple(counts) == (78, 82, 32)
    assert assign_processors(stations, 192) == (78, 82, 32)
