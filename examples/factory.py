"""The factory, from its sensors to its supervisor, on a local Spark.

Covers: an application by name, its generator, a run through all nine operators, messages that are
set aside with the reason, the comparison with the reference, and the PDF reports. Some messages are
spoilt on purpose. Run it with ``.venv/bin/python examples/factory.py``; it needs Java 17. The
reports go to the folder in the first argument, by default ``out/factory``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.apps.live import SETTINGS
from tidegate.spark.local.session import session_on

SECONDS = 5
START_S = 1_700_000_000.0


def main(spark: SparkSession, reports: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run(spark, Path(folder), reports or Path(folder) / "reports")


def _run(spark: SparkSession, folder: Path, reports: Path) -> None:
    app = application(
        "factory", reports=reports, reader="own", values_per_report=20, bad_share=0.02
    )
    print(f"{app.name}: {app.summary}")
    random = np.random.default_rng(1)
    inputs = {
        source: [app.generate(source, START_S + np.arange(0, SECONDS, 1 / rate), 0, random)]
        for source, rate in app.rates_per_s.items()
    }
    print({source: f"{table.num_rows} messages" for source, (table,) in inputs.items()})
    check = app.run_through(spark, folder, inputs, close_at_s=START_S + 3600)

    for sentence in app.tally(check.inputs, check.results):
        print(sentence)
    for operator, reasons in check.rejected.items():
        for reason, count in sorted(reasons.items()):
            print(f"{operator} has set aside {count}: {reason}")
    print("the results equal the reference" if check.exact else f"WRONG: {check.wrong}")
    print(f"{len(list(reports.glob('*.pdf')))} reports as PDF")


if __name__ == "__main__":
    with session_on("local[2]", Path("out/example.log"), SETTINGS) as spark:
        main(spark, Path(sys.argv[1] if sys.argv[1:] else "out/factory"))
