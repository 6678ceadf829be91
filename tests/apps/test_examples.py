"""The examples that need Spark, in the session of the tests; their output is compared.

To accept a new output: ``python -m tests.apps.test_examples``.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.example_outputs import WITH_SPARK, golden, run


@pytest.mark.parametrize("example", WITH_SPARK, ids=lambda path: path.stem)
def test_an_example_prints_what_it_printed_before(
    example: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(example))["main"]
    capsys.readouterr()
    main(spark)
    assert capsys.readouterr().out == golden(example).read_text()


if __name__ == "__main__":
    for each in WITH_SPARK:
        golden(each).write_text(run(each))
