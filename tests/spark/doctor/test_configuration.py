"""The facts of a command line, with files of defaults and the code of the application."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.errors import InputError
from tidegate.model import SloByQuery
from tidegate.spark.autoscaler.submit import DEFAULTS, split_arguments
from tidegate.spark.doctor.code import read_code
from tidegate.spark.doctor.configuration import facts_of_configuration, version_of
from tidegate.spark.scalability import JobFacts, diagnose

ASKED = JobFacts(slo=SloByQuery.read("5s"), max_executors=8)


def facts(*words: str) -> JobFacts:
    return facts_of_configuration(split_arguments(words, [], []), ASKED)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark installation of another version, without defaults."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "conf").mkdir()
    (tmp_path / "spark" / "jars" / "spark-core_2.12-3.5.3.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return tmp_path / "spark"


def test_options_of_spark_submit_are_settings() -> None:
    found = facts(
        *("--master", "yarn", "--executor-cores", "4", "--num-executors=3", "--queue", "fast"),
        *("--executor-memory", "2g", "--total-executor-cores", "9", "--deploy-mode", "cluster"),
        *("-c", "spark.task.cpus=2", "job.jar"),
    )
    assert found.settings == DEFAULTS | {  # and what tidegate submit adds
        "spark.master": "yarn",
        "spark.executor.cores": "4",
        "spark.executor.instances": "3",
        "spark.yarn.queue": "fast",
        "spark.executor.memory": "2g",
        "spark.cores.max": "9",
        "spark.submit.deployMode": "cluster",
        "spark.task.cpus": "2",
    }
    assert found.slots == 2 and found.executor_mb == 2048 + 384


def test_files_of_defaults_count_unless_the_command_line_says_otherwise(
    home: Path, tmp_path: Path
) -> None:
    defaults = home / "conf" / "spark-defaults.conf"
    defaults.write_text("spark.dynamicAllocation.enabled true\nspark.executor.cores 3\n")
    assert diagnose(facts("--master", "yarn")).blocked
    off = facts("--master", "yarn", "--conf", "spark.dynamicAllocation.enabled=false")
    assert not diagnose(off).blocked and off.slots == 3
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.speculation=true\n")
    found = diagnose(facts("--master", "yarn", "--properties-file", str(mine)))
    assert "spark.speculation" in {f.key for f in found.findings} and not found.blocked


def test_the_version_comes_from_the_installation(home: Path, tmp_path: Path) -> None:
    assert version_of(home) == "3.5.3" and version_of(tmp_path) is None
    found = diagnose(facts("--master", "yarn"))
    key = "spark.stage.ignoreDecommissionFetchFailure"
    assert key in {f.key for f in found.findings}, "it is off by default in 3.5"


def test_without_spark_the_command_line_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = diagnose(facts("--master", "yarn", "--conf", "spark.dynamicAllocation.enabled=true"))
    assert found.blocked
    because = {n.check: n.because for n in found.not_checked}
    assert "its file of defaults was not read" in because["spark-version"]


def test_a_jar_hides_its_queries_and_that_is_said() -> None:
    found = diagnose(facts("--master", "yarn", "hdfs://apps/job.jar"))
    because = {n.check: n.because for n in found.not_checked}
    assert "only the running job shows that" in because["triggers"]
    assert "only the running job shows that" in because["settings-in-code"]
    assert because["idle-executors"] == "the job does not run yet"


APP = """
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("spark://master:7077")
    .config("spark.sql.shuffle.partitions", 4)
    .config(key="spark.speculation", value=True)
    .config("spark.executor.cores", cores)
    .getOrCreate()
)
spark.conf.set("spark.locality.wait", "0s")
ticks = (
    spark.readStream.format("kafka").options(maxOffsetsPerTrigger=1000, topic=topic).load()
    .withWatermark("time", "1 minute")
)
query = (
    ticks.writeStream.queryName("ticks")
    .option("checkpointLocation", "/data/ticks")
    .trigger(processingTime="10 seconds")
    .start()
)
"""


def test_literal_values_in_the_code_are_read(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    code = read_code(app)
    assert code.settings == {
        "spark.master": "spark://master:7077",
        "spark.sql.shuffle.partitions": "4",
        "spark.speculation": "true",
        "spark.locality.wait": "0s",
    }
    assert code.places["spark.sql.shuffle.partitions"] == "app.py, line 6"
    (query,) = code.queries
    assert (query.name, query.trigger, query.trigger_s) == ("ticks", "ProcessingTimeTrigger", 10.0)
    assert (query.watermark, query.stateful, query.checkpoint) == (True, None, "/data/ticks")
    assert [str(limit) for limit in query.limits or ()] == ["maxOffsetsPerTrigger=1000"]
    found = diagnose(facts("--executor-cores", "2", str(app)))
    keys = {f.key for f in found.findings}
    assert {"--slo of query ticks", "maxOffsetsPerTrigger of query ticks"} <= keys
    assert "checkpoint of query ticks" in keys
    remedy = next(f.remedy for f in found.findings if f.key == "spark.sql.shuffle.partitions")
    assert "change it in app.py, line 6" in remedy


@pytest.mark.parametrize(
    "line",
    [
        'SparkConf().setMaster("yarn").set("spark.speculation", "true")',
        'conf.set("spark.speculation", True).setMaster("yarn")',
        'sparkConf.setAll([("spark.speculation", "true"), ("spark.master", "yarn")])',
        'b.config(map={"spark.speculation": "true", "spark.master": "yarn"})',
    ],
)
def test_every_form_of_a_setting_is_read(line: str, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(f"{line}\nothers.set('spark.task.cpus', 2)\n")
    assert read_code(app).settings == {"spark.speculation": "true", "spark.master": "yarn"}


def test_settings_in_conditions_may_not_apply(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        'if testing:\n    conf.setMaster("local")\nelse:\n    conf.setMaster("yarn")\n'
        'if __name__ == "__main__":\n    conf.set("spark.speculation", "true")\n'
    )
    assert read_code(app).settings == {"spark.speculation": "true"}


@pytest.mark.parametrize(
    ("words", "trigger", "seconds"),
    [
        ('processingTime="500 milliseconds"', "ProcessingTimeTrigger", 0.5),
        ('processingTime="1 minute"', "ProcessingTimeTrigger", 60.0),
        ('processingTime="5s"', "ProcessingTimeTrigger", 5.0),
        ("processingTime=interval", "ProcessingTimeTrigger", None),
        ('continuous="1 second"', "ContinuousTrigger", None),
        ('realTime="5 minutes"', "RealTimeTrigger", None),
        ("availableNow=True", "AvailableNowTrigger", 0.0),
        ("once=True", "OneTimeTrigger", 0.0),
        ("**options", None, None),
    ],
)
def test_triggers_in_the_code(
    words: str, trigger: str | None, seconds: float | None, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(f"df.writeStream.trigger({words}).start()\n")
    (query,) = read_code(app).queries
    assert (query.trigger, query.trigger_s, query.name) == (trigger, seconds, "")
    assert query.place == "app.py, line 1"


def test_a_query_in_several_statements_is_known_in_part(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("w = df.writeStream.queryName(name)\nw.start()\ndf.write.save()\n")
    (query,) = read_code(app).queries
    assert (query.name, query.trigger) == (None, None)
    app.write_text("df.writeStream.start()\n")
    (query,) = read_code(app).queries
    assert (query.name, query.trigger, query.trigger_s) == ("", "ProcessingTimeTrigger", 0.0)


def test_an_aggregation_keeps_state_where_it_is_of_a_stream(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text('df.groupBy("key").count().writeStream.start()\n')
    assert [q.stateful for q in read_code(app).queries] == [True]
    app.write_text('df.writeStream.foreachBatch(f).start()\ntable.groupBy("key").count()\n')
    assert [q.stateful for q in read_code(app).queries] == [None]


def test_with_several_queries_it_is_open_which_one_has_a_limit(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        'a = spark.readStream.option("maxFilesPerTrigger", 1).text("x")\n'
        'a.writeStream.queryName("a").start()\na.writeStream.queryName("b").start()\n'
    )
    assert [q.limits for q in read_code(app).queries] == [None, None]
    because = {n.check: n.because for n in diagnose(facts(str(app))).not_checked}
    assert "which source it reads" in because["rate-limits"]


def test_code_that_is_none(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("def (:\n")
    with pytest.raises(InputError, match="it must be Python code"):
        read_code(app)
    app.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it must be Python code"):
        read_code(app)
    with pytest.raises(InputError, match="readable"):
        read_code(tmp_path / "gone.py")
    app.write_text("print('no Spark here')\n")
    because = {n.check: n.because for n in diagnose(facts(str(app))).not_checked}
    assert "starts no query that can be seen" in because["triggers"]


def test_a_missing_master_is_not_taken_for_a_cluster() -> None:
    found = diagnose(facts("job.jar"))
    because = {n.check: n.because for n in found.not_checked}
    assert "spark.master is given neither" in because["master"] and not found.blocked
    assert diagnose(facts("--master", "local[4]")).blocked
