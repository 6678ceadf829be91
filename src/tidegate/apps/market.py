"""Companies on an exchange and their shares of the trades, from statistics or a recorded day.

The sectors' shares of all trades, the number of their companies and the share of the busiest one
come from six Xetra days of 2017 and 2018; `benchmarks/exchange_days.py` computes them from the
files.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import InputError
from tidegate.workloads import ExchangeDay, Scaled, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COMPANIES", "SECTORS", "SHARES", "Recording", "exchange_day", "read_recording"]

# Sector: share of the trades in per cent, companies, and share of the sector's busiest company.
_MARKET = {
    "Consumer Discretionary": (18.1, 83, 0.16),
    "Industrials": (17.5, 117, 0.11),
    "Financials": (13.6, 86, 0.28),
    "Materials": (12.0, 53, 0.23),
    "Information Technology": (11.6, 102, 0.29),
    "Health Care": (9.2, 74, 0.28),
    "Communication Services": (5.8, 48, 0.28),
    "Utilities": (4.7, 19, 0.54),
    "Real Estate": (4.0, 31, 0.23),
    "Consumer Staples": (2.9, 42, 0.26),
    "Energy": (0.5, 27, 0.32),
}
SECTORS = tuple(_MARKET)
"""From the busiest to the quietest."""
UNMAPPED = "Unmapped"
_BAR = {"symbol", "trades", "open", "high", "low", "close"}
_SYMBOLS = "xetra_symbols.csv.gz"
_LONGEST_BURST_S = 0.1


def _zipf(companies: int, busiest: float) -> NDArray[np.float64]:
    """Shares that fall with a power of the rank; the first one is `busiest`."""
    ranks = np.arange(1, companies + 1, dtype=np.float64)
    low, high = 0.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2
        weights = ranks**-middle
        low, high = (middle, high) if weights[0] / weights.sum() < busiest else (low, middle)
    return np.asarray(weights / weights.sum())


def _market() -> tuple[tuple[tuple[str, str], ...], NDArray[np.float64]]:
    companies, shares = [], []
    for sector, (share, count, busiest) in _MARKET.items():
        letters = "".join(part[:2] for part in sector.split())
        companies += [(f"{letters}{n:03d}", sector) for n in range(1, count + 1)]
        shares.append(share * _zipf(count, busiest))
    joined = np.concatenate(shares)
    return tuple(companies), joined / joined.sum()


def exchange_day(source: str, mean_per_s: float, seconds: float, seed: int) -> Workload:
    """An exchange day compressed into `seconds`, with `mean_per_s` ticks per second on average."""
    day = ExchangeDay(seed=seed, mean_per_s=mean_per_s, source=source)
    speed = day.duration_s / seconds
    return Scaled(day, rate_factor=1 / speed, speed=speed)


COMPANIES, SHARES = _market()
"""(company, sector) of every company, and its share of all ticks."""


@dataclass(frozen=True)
class Recording:
    """The ticks of a recorded day, in order. at_s: seconds since its beginning. cents: prices."""

    at_s: NDArray[np.float64]
    comp: tuple[str, ...]
    sector: tuple[str, ...]
    cents: NDArray[np.int64]

    @property
    def sectors(self) -> tuple[str, ...]:
        """The sectors that occur, from the busiest to the quietest."""
        names, counts = np.unique(self.sector, return_counts=True)
        return tuple(str(names[n]) for n in np.argsort(-counts, kind="stable"))

    @property
    def rate_per_s(self) -> float:
        """Ticks per second on average."""
        return len(self.at_s) / (float(np.floor(self.at_s[-1])) + 1.0)


def read_recording(path: Path, seed: int = 1) -> Recording:
    """A recorded day from a CSV file, gzipped or not.

    Single trades (``t_ms,symbol,price``) are used as they are. From minutes or seconds by symbol
    (``minute`` or ``t_s``, ``symbol,trades,open,high,low,close``) trades are generated: first the
    open, last the close, high and low in between, at moments that come in bursts. Sectors come from
    a file ``xetra_symbols.csv.gz`` in the same folder, with ``symbol,sector``.
    """
    rows = list(_rows(path))
    if not rows:
        raise InputError("--replay", str(path), "a file with ticks", "it has no rows")
    columns = set(rows[0])
    sectors = _sectors(path.with_name(_SYMBOLS))
    try:
        if {"t_ms", "symbol", "price"} <= columns:
            ticks = [(float(r["t_ms"]) / 1000, r["symbol"], float(r["price"])) for r in rows]
        elif columns >= _BAR and columns & {"minute", "t_s"}:
            ticks = list(_from_bars(rows, np.random.default_rng(seed)))
        else:
            allowed = "t_ms,symbol,price or minute,symbol,trades,open,high,low,close"
            raise InputError("--replay", ",".join(rows[0]), f"a file with the columns {allowed}")
    except ValueError as error:
        raise InputError("--replay", str(path), "numbers in its columns", str(error)) from None
    ticks.sort(key=lambda tick: tick[0])
    at_s, comp, price = zip(*ticks, strict=True)
    return Recording(
        np.array(at_s) - np.floor(at_s[0]),
        tuple(_word(name) for name in comp),
        tuple(sectors.get(name, UNMAPPED) for name in comp),
        np.maximum(1, np.round(np.array(price) * 100)).astype(np.int64),
    )


def _from_bars(
    rows: list[dict[str, str]], random: np.random.Generator
) -> Iterator[tuple[float, str, float]]:
    step_s, key = (60.0, "minute") if "minute" in rows[0] else (1.0, "t_s")
    for row in rows:
        count = int(row["trades"])
        if count < 1:
            continue
        first, high, low, last = (float(row[name]) for name in ("open", "high", "low", "close"))
        between = [high, low][: max(0, count - 2)]
        between += list(random.uniform(low, high, max(0, count - 4)))
        prices = [first, *random.permutation(between)][: max(1, count - 1)]
        prices += [last] if count > 1 else []
        bursts = random.random(max(1, count // 5)) * (step_s - min(_LONGEST_BURST_S, step_s / 2))
        delay = random.exponential(_LONGEST_BURST_S / 10, count).clip(0, _LONGEST_BURST_S * 0.99)
        moments = np.sort(random.choice(bursts, count) + np.minimum(delay, step_s / 2 * 0.99))
        begin_s = step_s * float(row[key])
        for moment, price in zip(moments, prices, strict=True):
            yield begin_s + float(moment), row["symbol"], float(price)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        remedy = getattr(error, "strerror", None) or "it is damaged, or not a CSV file"
        raise InputError("--replay", str(path), "a CSV file that can be read", remedy) from None
    yield from csv.DictReader(io.StringIO(text, newline=""))


def _sectors(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    found: dict[str, str] = {}
    for row in _rows(path):
        found.setdefault(row["symbol"], row.get("sector") or UNMAPPED)
    return found


def _word(symbol: str) -> str:
    """A symbol as in records: it starts with a capital letter."""
    return symbol if symbol[:1].isalpha() and symbol[:1].isupper() else f"X{symbol}"
