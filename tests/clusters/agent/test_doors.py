"""Clients that do not know the secret of the embedded cluster: Spark itself, as anybody has it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters.agent.standalone import environment, spark_words
from tests.clusters.submitted import Command
from tests.spark.local.doors import is_refused
from tidegate.spark.local.cluster import SECRET_VARIABLE, LocalCluster
from tidegate.spark.local.processes import spark_home

pytestmark = [pytest.mark.agent, pytest.mark.java]

JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
file = sys.argv[1]  # executors have other arguments
spark.sparkContext.parallelize([1], 1).foreach(lambda _: Path(file).touch())
"""
REST_PORT = 6066


def test_who_does_not_know_the_secret_runs_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    assert is_refused("127.0.0.1", REST_PORT)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    program = str(spark_home() / "bin" / "spark-submit")
    env = environment() | {"PYSPARK_PYTHON": sys.executable}
    ways = {
        "none": ({"spark.authenticate": "false"}, env),
        "wrong": ({}, env | {SECRET_VARIABLE: "not the secret"}),
        "placeholder": ({}, env),
        "right": ({}, env | cluster.environment()),
    }
    with ExitStack() as stack:
        commands = {
            name: stack.enter_context(
                Command(
                    [program, *spark_words(cluster, **settings), str(job), str(tmp_path / name)],
                    tmp_path,
                    f"log-{name}",
                    variables,
                )
            )
            for name, (settings, variables) in ways.items()
        }
        codes = {name: command.process.wait(300) for name, command in commands.items()}
    ran = {name for name in ways if (tmp_path / name).exists()}
    assert ran == {"right"}
    assert codes.pop("right") == 0 and all(codes.values()), codes
