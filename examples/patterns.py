"""Patterns in short texts: the maximal frequent itemsets of a sliding window, as they change.

Covers: an application with settings, a topology with a loop, generated input with bad texts, a
complete run, the comparison with brute force, texts that are set aside, and the measured share of
the loop. With a file name as argument it also draws when each pattern was maximal.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from tidegate.apps.application import application, settle
from tidegate.apps.live import SETTINGS
from tidegate.apps.patterns.texts import spoiled
from tidegate.spark.local.session import session_on

TEXTS, WINDOW, SLIDE = 6000, 2000, 200
BAD_SHARE = 0.01
BEGIN_S = 1_700_000_000.0


def draw(changes: list[dict[str, Any]], path: str) -> None:
    """A bar for each pattern of two words or more, from when it was maximal to when no longer."""
    spans: dict[str, list[list[int]]] = {}
    for row in sorted(changes, key=lambda row: (row["until"], row["pattern"])):
        if row["change"] == "+":
            spans.setdefault(row["pattern"], []).append([row["until"], TEXTS + SLIDE])
        else:
            spans[row["pattern"]][-1][1] = row["until"]
    names = [name for name in spans if " " in name]
    figure = Figure(figsize=(9, 0.22 * len(names) + 1), layout="constrained")
    axes = figure.subplots()
    colours = {1: "#9ecae1", 2: "#4292c6", 3: "#08519c"}
    for place, name in enumerate(names):
        for begin, end in spans[name]:
            axes.barh(place, end - begin, left=begin, color=colours[name.count(" ")])
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("texts so far")
    axes.set_title(f"maximal frequent patterns of the latest {WINDOW} texts (darker: more words)")
    figure.savefig(path)


def main(spark: SparkSession, picture: str | None = None) -> None:
    app = application("patterns", window=WINDOW, slide=SLIDE, state_partitions=2)
    random = np.random.default_rng(2)
    texts = app.generate("texts", BEGIN_S + np.arange(TEXTS) / 320, 0, random)
    with TemporaryDirectory() as folder, app.topology.start(spark, Path(folder)) as running:
        for first in range(0, TEXTS, 3000):
            running.topics["texts"].append(spoiled(texts.slice(first, 3000), BAD_SHARE, random))
        settle(running, 300)
        check, model = app.compare(spark, running), running.model()
    changes = check.results["report"].to_pylist()
    for row in sorted(changes, key=lambda r: (r["until"], r["change"], r["pattern"])):
        if row["pattern"].count(" ") > 1:
            words = row["pattern"].replace(" ", ", ")
            print(f"text {row['until']}: {row['change']} {{{words}}} in {row['times']}")
    print(*app.tally(check.inputs, check.results), sep="\n")
    for operator, reasons in check.rejected.items():
        for reason, count in sorted(reasons.items()):
            print(f"set aside by {operator}: {count} x {reason}")
    (loop,) = [edge for edge in model.edges if edge.origin == edge.target]
    print(f"of 1000 items that {loop.target} reads, {1000 * loop.ratio:.1f} go round again")
    print("equal to brute force" if check.exact else f"not equal: {check.wrong}")
    if picture is not None:
        draw(changes, picture)


if __name__ == "__main__":
    with session_on("local[2]", Path("out/example.log"), SETTINGS) as spark:
        main(spark, *sys.argv[1:2])
