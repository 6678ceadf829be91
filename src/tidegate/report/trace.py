"""The report of a rate trace: rate, burstiness and keys."""

from __future__ import annotations

import math

import numpy as np

from tidegate.report.charts import Series, bars, lines, time_unit
from tidegate.report.page import Page
from tidegate.units import show_duration
from tidegate.workloads import Description, describe
from tidegate.workloads.built import KEYS, BuiltTrace
from tidegate.workloads.burstiness import dispersion_by_scale
from tidegate.workloads.protocol import FloatArray

__all__ = ["rate_picture", "trace_figures", "trace_page"]

_COLUMNS, _LISTED, _BARS = 720, 30, 15


def trace_figures(found: Description) -> list[tuple[str, str]]:
    """Return the figures of a trace, by name, as text."""
    hurst = "trace too short" if found.hurst is None else f"{found.hurst:.2f}"
    return [
        ("span", f"{show_duration(found.duration_s)} in steps of {show_duration(found.step_s)}"),
        ("events", f"{found.items:,.0f}"),
        ("mean", f"{found.mean_per_s:,.4g}/s"),
        ("peak", f"{found.peak_per_s:,.4g}/s, {found.peak_to_mean:.3g} x mean"),
        ("CV of the rate", f"{found.cv:.3g}"),
        ("largest rise", f"{found.max_rise:.3g} x mean, from a step to the next"),
        ("dispersion", f"{found.dispersion:.3g} (Poisson: 1)"),
        ("Hurst", f"{hurst} (no memory: 0.5)"),
    ]


def trace_page(name: str, built: BuiltTrace) -> Page:
    """Return the page of a trace. name: as shown in the title."""
    found = describe(built.trace)
    answer = (
        f"{found.mean_per_s:,.4g} events/s on average over {show_duration(found.duration_s)}, up "
        f"to {found.peak_to_mean:.3g} times as many; {_temper(found)}."
    )
    page = Page(f"What is the trace {name} like?", answer)
    page.section("Rate")
    caption = "Mean and highest step per pixel."
    page.picture(rate_picture(built), caption)
    page.section("Figures")
    page.table(["figure", "value"], trace_figures(found))
    _scales(page, built, found)
    if built.keys:
        _keys(page, built)
    if built.provenance:
        _origin(page, built)
    return page


def rate_picture(built: BuiltTrace) -> str:
    """Return the rate over time as SVG: mean and peak per pixel, so that no peak is lost."""
    rates = built.trace.rate_per_s
    stretches = np.array_split(rates, min(_COLUMNS, len(rates)))
    ends_s = np.cumsum([len(stretch) for stretch in stretches]) / len(rates)
    duration_s = built.trace.duration_s
    scale, unit = time_unit(duration_s)
    x = [float(end * duration_s / scale) for end in np.insert(ends_s[:-1], 0, 0.0)]
    series = [Series("mean", x, [float(stretch.mean()) for stretch in stretches], step=True)]
    if len(stretches) < len(rates):
        peaks = [float(stretch.max()) for stretch in stretches]
        series.insert(0, Series("highest step", x, peaks, step=True))
    return lines(series, "Events per second", unit, "events/s")


def _temper(found: Description) -> str:
    if found.dispersion > 2:
        much = f"{found.dispersion:.3g} times as uneven as chance alone"
    else:
        much = "about as uneven as chance alone" if found.dispersion > 0.5 else "very even"
    if found.hurst is None:
        return much
    return much + (", and busy times last" if found.hurst > 0.65 else "")


def _scales(page: Page, built: BuiltTrace, found: Description) -> None:
    counts: FloatArray = built.trace.rate_per_s * found.step_s
    scales = dispersion_by_scale(counts)
    if len(scales) < 2:
        return
    page.section(
        "Burstiness by scale",
        "Variance / mean of the events in a window. A Poisson process has 1 at every length. Where "
        "it grows with the window, bursts do not average out.",
    )
    names = [show_duration(m * found.step_s) for m in scales]
    page.picture(bars(names, [("dispersion", list(scales.values()))], "Index of dispersion", ""))


def _keys(page: Page, built: BuiltTrace) -> None:
    keys, skew = built.keys, built.provenance.get("skew") or {}
    listed = f"{skew['keys']:,} keys; Gini {skew['gini']:.2f}." if skew else ""
    page.section("Keys", listed)
    names = [_short(name) for name in keys["key"][:_BARS]]
    shares = [100 * float(share) for share in keys["share"][:_BARS]]
    page.picture(bars(names, [("share", shares)], "Share of the events, largest keys", "%"))
    if skew:
        y = skew["lorenz"]
        x = [100 * i / (len(y) - 1) for i in range(len(y))]
        curve = Series("these keys", x, [100 * share for share in y])
        equal = Series("equal shares", [0.0, 100.0], [0.0, 100.0], dashed=True)
        page.picture(
            lines([curve, equal], "Lorenz curve", "% of the keys, smallest first", "% of events"),
            "The further below the diagonal, the fewer keys account for most of the events.",
        )
    columns = [list(keys[name][:_LISTED]) for name in KEYS]
    rows = [[_plain(cell) for cell in row] for row in zip(*columns, strict=True)]
    page.table(KEYS, rows)


def _origin(page: Page, built: BuiltTrace) -> None:
    known = built.provenance
    page.section("Origin")
    shown = ("input", "format", "time", "unit", "key", "count", "rows", "rows_used", "first_step")
    rows = [(name, str(known[name])) for name in shown if known.get(name)]
    rejected = known.get("rejected")
    if isinstance(rejected, dict):
        rows += [(f"rejected: {reason}", f"{n}") for reason, n in rejected.items()]
    if "built" in known:
        rows.append(("built", f"{known['built']} by Tidegate {known.get('tidegate')}"))
    page.table(["", ""], rows)


def _plain(cell: object) -> object:
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def _short(name: str) -> str:
    return name if len(name) <= 7 else name[:6] + "…"
