"""The factory, from its sensors to its supervisor, on a local Spark.

Covers: an application by name, its generator, a run through all nine operators, what was set aside
and why, the comparison with the reference, the PDF reports. Some messages are spoilt on purpose.
Run it with ``.venv/bin/python examples/factory.py``; it needs Java 17. With a folder as an argument
the reports go there, else to ``out/factory``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tidegate.pipelines.application import application

SECONDS = 30
START_S = 1_700_000_000.0
REPORTS = Path(sys.argv[1] if len(sys.argv) > 1 else "out/factory")


def main() -> None:
    app = application("factory", reports=REPORTS, values_per_report=60, bad_share=0.01)
    print(f"{app.name}: {app.summary}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("factory")
    settings = {
        **app.settings,
        # For a life of a minute the second compiler costs more than it earns.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    random = np.random.default_rng(1)
    inputs = {
        source: [app.generate(source, START_S + np.arange(0, SECONDS, 1 / rate), 0, random)]
        for source, rate in app.rates_per_s.items()
    }
    print({source: f"{table.num_rows} messages" for source, (table,) in inputs.items()})
    with tempfile.TemporaryDirectory() as folder:
        outcome = app.run_through(spark, Path(folder), inputs)
    spark.stop()

    for sentence in app.tally(outcome.inputs, outcome.results):
        print(sentence)
    for operator, reasons in outcome.rejected.items():
        for reason, count in sorted(reasons.items()):
            print(f"{operator} has set aside {count}: {reason}")
    print("the results equal the reference" if outcome.exact else f"WRONG: {outcome.wrong}")
    print(f"reports: {', '.join(sorted(path.name for path in REPORTS.glob('*.pdf')))}")


if __name__ == "__main__":
    main()
