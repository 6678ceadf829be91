"""Recompute the statistics behind `tidegate.workloads.ExchangeDay`, real days beside generated.

    python benchmarks/exchange_days.py PATH_TO_TRACES

PATH_TO_TRACES holds ``xetra/xetra_<day>_rate.csv`` (511 one-minute rates each) and, for what
happens inside a minute, ``xetra/xetra_2025-10-31T1354_ticks.csv.gz``; with
``eurex/eurex_2017-07-28_rate.csv`` a day of the sister exchange is shown too. Without them only
the generated days are printed. The traces are licensed for non-commercial use and not part of
this project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tidegate.workloads import Bursty, ConstantRate, EventLog, describe, read_trace, series
from tidegate.workloads.describe import autocorrelation
from tidegate.workloads.papers import MINUTES, ExchangeDay, exchange_minutes
from tidegate.workloads.protocol import FloatArray
from tidegate.workloads.rates import RateTrace

GENERATED = 280  # ten times as many as there are real days
LAGS = (1, 2, 5, 15, 30, 60)
QUANTILES = (0.001, 0.01, 0.05, 0.95, 0.99, 0.999)


def real_days(traces: Path) -> list[FloatArray]:
    days = []
    for path in sorted(traces.glob("xetra/xetra_20??-??-??_rate.csv")):
        trace = read_trace(path)
        if isinstance(trace, RateTrace) and len(trace.t_s) == MINUTES:  # whole days only
            days.append(trace.rate_per_s)
    return days


def span(name: str, values: list[float]) -> str:
    return f"{name:22} {np.median(values):8.3f}   ({min(values):.2f} to {max(values):.2f})"


def report(title: str, days: list[FloatArray]) -> None:
    print(f"\n## {title}: {len(days)} days, median (smallest to largest)\n")
    minutes = np.arange(MINUTES, dtype=np.float64) * 60
    seen = [describe(RateTrace(minutes, day)) for day in days]
    print(span("mean, items/s", [one.mean_per_s for one in seen]))
    print(span("peak / mean", [one.peak_to_mean for one in seen]))
    print(span("CV", [one.cv for one in seen]))
    print(span("max rise / mean", [one.max_rise for one in seen]))
    print(span("Hurst-like", [one.hurst or 0.0 for one in seen]))
    for lag in LAGS:
        print(span(f"autocorrelation {lag} min", [one.autocorrelation[lag] for one in seen]))
    relative = np.array([day / day.mean() for day in days])
    shape = np.median(relative, axis=0)
    print(
        "shape by 10 min       ", " ".join(f"{x:.2f}" for x in shape[:510].reshape(-1, 10).mean(1))
    )
    for start, end in ((0, 10), (388, 397), (507, 511)):
        print(f"minutes {start} to {end - 1}: ", " ".join(f"{x:.2f}" for x in shape[start:end]))
    # What a day adds to the shape away from opening and close; an empty minute counts 0.05.
    floor = 0.05 / np.array([[day.mean()] for day in days])
    residual = (np.log(np.maximum(relative, floor)) - np.log(shape))[:, 30:495]
    print(span("sd of log residual", residual.std(axis=1).tolist()))
    memory = (float(np.mean([autocorrelation(day, lag) for day in residual])) for lag in LAGS)
    print("its autocorrelation   ", " ".join(f"{x:.2f}" for x in memory))
    print("its quantiles         ", " ".join(f"{np.quantile(residual, q):.2f}" for q in QUANTILES))
    print(f"minutes above e times the shape, a day: {(residual > 1).sum() / len(days):.1f}")


def inside_a_minute(title: str, log: EventLog) -> None:
    windows = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
    cells = []
    for window in windows:
        counts = series(log, window) * window
        cells.append(f"{window:g} s: {counts.var(ddof=1) / counts.mean():.1f}")
    print(f"{title}: index of dispersion over", ", ".join(cells))


def by_sector(traces: Path) -> None:
    """Shares of trades, companies and the busiest company's share, for the ticks application."""
    import pandas as pd  # type: ignore[import-untyped]

    days = sorted(traces.glob("xetra/xetra_*_keyed.csv.gz"))
    symbols = traces / "xetra/xetra_symbols.csv.gz"
    if not days or not symbols.is_file():
        return
    sectors = pd.read_csv(symbols).drop_duplicates("symbol")[["symbol", "sector"]]
    trades = pd.concat([pd.read_csv(day) for day in days]).merge(sectors, on="symbol")
    trades = trades[~trades.sector.isin(["ETF", "ETC", "ETN", "Unmapped"])]
    whole = trades.groupby(["sector", "symbol"]).trades.sum()
    print(f"\n## Sectors, of {len(days)} days: % of trades, companies, busiest company's share\n")
    for sector, each in sorted(whole.groupby("sector"), key=lambda pair: -pair[1].sum()):
        share = 100 * each.sum() / whole.sum()
        print(f"{sector:24} {share:5.1f} {len(each):4d} {each.max() / each.sum():.2f}")


def main() -> None:
    traces = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    if days := real_days(traces):
        report("Real, Xetra", days)
        level = np.log([day.mean() for day in days])
        print(f"empty minutes in all days: {sum(int((day == 0).sum()) for day in days)}")
        print(
            f"day means: geometric mean {np.exp(level.mean()):.1f}, log sd {level.std(ddof=1):.3f}"
        )
    else:
        print(f"no Xetra days below {traces.resolve()}: generated days only")
    levels = [ExchangeDay(seed).level_per_s for seed in range(GENERATED)]
    generated = [exchange_minutes(seed) * levels[seed] for seed in range(GENERATED)]
    report("Generated", generated)
    print("\n## Inside a minute\n")
    if (ticks := traces / "xetra/xetra_2025-10-31T1354_ticks.csv.gz").is_file():
        log = read_trace(ticks)
        if isinstance(log, EventLog):
            inside_a_minute("Real, one minute of Xetra", log)
            print(
                f"share its instant with the trade before: {(np.diff(log.times_s) == 0).mean():.3f}"
            )
    if (us := traces / "us_ticks/us_ticks_2013-10-08_trades.csv.gz").is_file():
        minutes = series(read_trace(us), 1.0)[: 390 * 60].reshape(390, 60)
        within = np.median(minutes.var(axis=1, ddof=1) / minutes.mean(axis=1))
        print(f"Four US stocks, 2013-10-08, within minutes: {within:.1f} over 1 s")
    model = Bursty(ConstantRate(12, 6000), dispersion=9, burst_s=0.03, seed=1)
    inside_a_minute("Generated", EventLog(model.arrivals(0, 6000)["input"]))
    if (eurex := traces / "eurex/eurex_2017-07-28_rate.csv").is_file():
        one = describe(read_trace(eurex))
        print(
            f"\nEurex 2017-07-28 (14 h): mean {one.mean_per_s:.2f}/s, peak/mean "
            f"{one.peak_to_mean:.1f}, CV {one.cv:.2f}, max rise {one.max_rise:.1f}, "
            f"autocorrelation 1 min {one.autocorrelation[1]:.2f}, Hurst-like {one.hurst:.2f}"
        )
    by_sector(traces)


if __name__ == "__main__":
    main()
