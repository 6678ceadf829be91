"""The applications at full speed and their profiles, as the tables of ``docs/apps``.

    python benchmarks/apps.py                      # all applications: full speed and profile
    python benchmarks/apps.py max-price ticks      # some of them
    python benchmarks/apps.py --write              # and put the tables into the pages
    python benchmarks/apps.py --pictures           # only docs/img, without Spark

The table of an application without a page is only printed. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.apps import APPLICATIONS
from tidegate.apps.application import Application, application
from tidegate.apps.full_speed import full_speed
from tidegate.apps.live import LiveResult, LiveRun
from tidegate.apps.profile import Profile, profile
from tidegate.errors import InputError
from tidegate.lifecycle import Stop
from tidegate.units import show_duration

PAGES = Path(__file__).parents[1] / "docs" / "apps"
IMAGES = PAGES.parent / "img"
EXECUTORS = 2
# Items that make a full-speed run of a quarter of a minute or more on two cores.
BACKLOG = {
    "ticks": 300_000, "max-price": 3_000_000, "factory": 2_000, "logos": 200, "patterns": 5_000,
}  # fmt: skip


def measured(app: Application) -> tuple[LiveResult, Profile]:
    """Full speed on a cluster, then the profile in one process."""
    seconds = BACKLOG.get(app.name, 1_000) / sum(app.rates_per_s.values())
    out = Path("out") / "bench-apps" / app.name
    out.mkdir(parents=True, exist_ok=True)
    fast = full_speed(LiveRun(app, out, seconds=seconds, max_hosts=EXECUTORS), print, Stop())
    out = out.with_name(f"{app.name}-profile")
    out.mkdir(parents=True, exist_ok=True)
    (out / "journal.jsonl").unlink(missing_ok=True)
    return fast, profile(LiveRun(app, out, seconds=60.0), print, Stop())


def tables(app: Application, fast: LiveResult, found: Profile) -> str:
    """What the page shows."""
    exact = fast.check is not None and fast.check.exact
    lines = [
        f"| items | seconds | items/s | executors | results |\n|---:|---:|---:|---:|---|\n"
        f"| {fast.items} | {fast.seconds:.1f} | **{fast.items / fast.seconds:.0f}** | {EXECUTORS} "
        f"| {'those of the reference' if exact else 'WRONG'} |\n",
        "| operator | λ, items/s | μ, items/s a slot | an item | CV | CV of batches | rows out | "
        "a batch |\n|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found.operators:
        service_s, overhead_s = each.service_time_s, each.overhead_s
        cells = [
            each.name,
            f"{each.arrives_per_s:.4g}",
            "–" if service_s is None else f"{1 / service_s:.4g}",
            "–" if service_s is None else show_duration(service_s),
            "–" if each.service_cv is None else f"{each.service_cv:.2f}",
            "–" if each.batch_cv is None else f"{each.batch_cv:.2f}",
            f"{each.ratio:.3g}",
            "–" if overhead_s is None else show_duration(overhead_s, 2),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(name: str, text: str) -> None:
    """Put the tables between the two marks of the application's page."""
    page = PAGES / f"{name}.md"
    if not page.exists():
        return
    marks = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    if not marks.search(old):
        raise InputError("page", str(page), "with <!-- measured --> and <!-- end -->")
    page.write_text(marks.sub(lambda m: f"{m[1]}{text}{m[2]}", old), encoding="utf-8")


def pictures() -> None:
    """The pictures of the pages of ticks and max-price, from their generators and references."""
    import matplotlib as mpl

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tidegate", "font.size": 9}
    IMAGES.mkdir(exist_ok=True)
    for draw, name in ((draw_max_price, "max-price"), (draw_ticks, "ticks")):
        figure = draw()
        figure.tight_layout()
        figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
        print(IMAGES / f"{name}.svg")


def draw_max_price() -> Any:
    """The steps of the input, and the results of three symbols."""
    import matplotlib.pyplot as plt

    app, seconds = application("max-price", symbols=50), 120.0
    moments = app.shape("stocks", 1_000.0, seconds, 1).arrivals(0, seconds)["stocks"]
    start_s = 1_700_000_000.0
    table = app.generate("stocks", start_s + moments, 0, np.random.default_rng(1))
    import pyarrow as pa

    inputs = pa.concat_tables([table, app.closing(start_s + seconds)["stocks"]])
    rows = app.reference({"stocks": inputs})["merge"].to_pandas()
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
    rate = np.histogram(moments, np.arange(0, seconds + 1))[0] / 1_000
    above.stairs(rate, np.arange(0, seconds + 1), fill=True, color="#1b7f79", alpha=0.7)
    above.set(ylabel="× the mean rate", title="Input: the steps of Cerviño's Fig. 7 in two minutes")
    for symbol in ("S0003", "S0011", "S0016"):
        mine = rows[rows.symbol == symbol].sort_values("second")
        below.step(mine.second - start_s, mine.cents / 100, where="post", label=symbol, lw=1)
    below.set(
        xlabel="s", ylabel="highest price", title="Results of three symbols, second by second"
    )
    below.legend(fontsize=8, loc="center right")
    return figure


def draw_ticks() -> Any:
    """A compressed day, and who is traded in it."""
    import matplotlib.pyplot as plt

    from tidegate.apps.market import COMPANIES, SHARES

    seconds = 511.0
    moments = application("ticks").shape("ticks", 1_000.0, seconds, 1).arrivals(0, seconds)["ticks"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), width_ratios=(3, 2))
    rate = np.histogram(moments, np.arange(0, seconds + 1))[0]
    left.plot(np.arange(seconds), rate, lw=0.8, color="#1b7f79")
    left.set(xlabel="s, one for each minute of the day", ylabel="ticks/s", title="An exchange day")
    left.set_ylim(bottom=0)
    shares: dict[str, float] = {}
    for (_, sector), share in zip(COMPANIES, SHARES, strict=True):
        shares[sector] = shares.get(sector, 0.0) + 100 * share
    names = list(shares)[::-1]
    right.barh(names, [shares[name] for name in names], color="#1b7f79", alpha=0.7)
    right.set(xlabel="% of the ticks", title="By sector")
    right.tick_params(labelsize=7)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="APP", help="all by default")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/apps")
    parser.add_argument("--pictures", action="store_true", help="only make docs/img")
    asked = parser.parse_args()
    if asked.pictures:
        pictures()
        return
    commit = ["git", "describe", "--always", "--dirty"]
    version = subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip()
    for name in asked.names or APPLICATIONS:
        try:
            app = application(name)
        except ModuleNotFoundError as error:
            print(f"{name}: {error}")
            continue
        text = tables(app, *measured(app))
        print(f"\n## {name} at {version}\n\n{text}")
        if asked.write:
            write(name, text)


if __name__ == "__main__":
    main()
