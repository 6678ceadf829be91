from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.helpers import tidegate
from tests.loop.helpers import record
from tidegate import __version__
from tidegate.cli import app
from tidegate.policies import available

VIDEO = ("extract:13:5", "match:13:4.407", "aggregate:13:1300")
SCALED = ("extract:40:5.714", "match:40:5.333", "aggregate:40:400")
TWEETS = ("generate:640:142.2", "detect:1920:178.6", "report:640:336.8")


def answer(*words: str | Path) -> dict[str, object]:
    done = tidegate(*words, "--json")
    assert done.returncode == 0, done.stderr
    read: dict[str, object] = json.loads(done.stdout)
    return read


@pytest.mark.parametrize(
    ("operators", "processors", "shape"),
    [
        (VIDEO, 22, [10, 11, 1]),
        (VIDEO, 17, [8, 8, 1]),
        (TWEETS, 22, [6, 13, 3]),
        (SCALED, 22, [10, 11, 1]),
        (SCALED, 17, [8, 8, 1]),
    ],
)
def test_allocate_gives_the_papers_allocations(
    operators: tuple[str, ...], processors: int, shape: list[int]
) -> None:
    got = answer("allocate", *operators, "--processors", str(processors))
    assert isinstance(got["allocation"], dict)
    assert list(got["allocation"].values()) == shape


def test_allocate_finds_the_fewest_processors_and_the_machines_of_fig_10() -> None:
    for t_max, fewest, machines, filled in (("500ms", 19, 5, 22), ("1000ms", 17, 4, 17)):
        got = answer("allocate", *SCALED, "--t-max", t_max)
        assert got["processors"] == fewest
        on_machines = ("--per-machine", "5", "--reserved", "3")
        got = answer("allocate", *SCALED, "--t-max", t_max, *on_machines)
        assert (got["fewest_processors"], got["machines"], got["processors"]) == (
            fewest,
            machines,
            filled,
        )


def test_allocate_reads_a_topology_with_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "patterns.yaml"
    path.write_text(
        "operators:\n"
        "- {name: generate, service_rate_per_s: 142.2}\n"
        "- {name: detect, service_rate_per_s: 178.6}\n"
        "- {name: report, service_rate_per_s: 336.8}\n"
        "sources: [{name: tweets, rate_per_s: 640}]\n"
        "edges:\n"
        "- {origin: tweets, target: generate}\n"
        "- {origin: generate, target: detect}\n"
        "- {origin: detect, target: detect, ratio: 0.6666666666666666}\n"
        "- {origin: detect, target: report, ratio: 0.3333333333333333}\n"
    )
    got = answer("allocate", "--topology", path, "--processors", "22")
    assert got["allocation"] == {"generate": 6, "detect": 13, "report": 3}
    path.write_text(path.read_text().replace("0.6666666666666666", "1.2"))
    failed = tidegate("allocate", "--topology", path, "--processors", "22")
    assert failed.returncode == 2
    assert "the loop through detect is '1.2'" in failed.stderr


def test_allocate_with_variability_waits_differently() -> None:
    calm = answer("allocate", "a:8:1:0", "--processors", "9", "--model", "ggk")
    plain = answer("allocate", "a:8:1:0", "--processors", "9")
    assert float(str(calm["expected_sojourn_s"])) < float(str(plain["expected_sojourn_s"]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("allocate", "a:-1:5", "--processors", "3"), "a: arrival rate is '-1'"),
        (("allocate", "a:nan:5", "--processors", "3"), "a: arrival rate is 'nan'"),
        (("allocate", "a:5:0", "--processors", "3"), "a number above 0"),
        (("allocate", "a:5", "--processors", "3"), "for example extract:13:5"),
        (("allocate", "a:5:1", "a:5:1", "--processors", "30"), "rename one"),
        (("allocate", "a:5:1", "--processors", "3"), "needs at least 6"),
        (("allocate", "a:5:1"), "exactly one of the two"),
        (("allocate", "--processors", "3"), "operators or --topology is 'neither'"),
        (("allocate", "a:5:1", "--processors", "9", "--t-max", "1s"), "is 'both'"),
        (("allocate", "a:5:1", "--t-max", "soon"), "500ms"),
        (("allocate", "a:5:1", "--t-max", "1s"), "best is"),
        (("allocate", "a:5:1", "--t-max", "9s", "--per-machine", "0"), "--per-machine is 0"),
        (("allocate", "a:5:1", "--processors", "9", "--external", "0"), "--external"),
        (("allocate", "a:5:1", "--processors", "9", "--model", "mg1"), "mmk or ggk"),
        (("allocate", "--topology", "none.yaml", "--processors", "9"), "No such file"),
        (("policies", "dsr"), "did you mean"),
        (("replay", "none.jsonl", "--policy", "drs"), "No such file"),
        (("run", "ticks", "--imitate"), "ticks cannot be imitated"),
        (("run", "ticks", "--load", "tide"), "visp:stepwise"),
        (("replay", "none.jsonl"), "one of the two"),
        (("replay",), "Missing argument"),
        (("allocate", "a:5:1", "--processors", "many"), "valid integer"),
        (("allocate", "a:5:1", "--processors", "-3"), "--processors is -3"),
        (("allocate", "--precessors", "3"), "--precessors"),
        (("alocate",), "No such command"),
        (("reproduce", "heinze"), "one of cervino, drs, fugu, visp, all"),
        (("reproduce", "drs", "--seeds", "0"), "--seeds is 0"),
        (("reproduce", "drs", "--keep", "/dev/null"), "--keep"),
        (("backtest", "none.csv"), "none.csv"),
        (("backtest", "none.csv", "--policies", "drs,nobody"), "nobody"),
        (("backtest", "none.csv", "--tune", "nobody"), "nobody"),
        (("report", "none.jsonl"), "No such file"),
        (("report", "none.jsonl", "--slo", "soon"), "--slo is 'soon'"),
        (("demo", "--seconds", "0"), "--seconds is 0"),
        (("demo", "--rate", "-1"), "--rate is -1"),
        (("demo", "--executors", "0"), "--executors is 0"),
        (("demo", "--slo", "soon"), "--slo is 'soon'"),
        (("demo", "--policy", "nobody"), "nobody"),
        (
            ("demo", "--policy", "drs", "--share", "99%"),
            "--share is '99%'; it must be left out with drs",
        ),
        (("run", "max-price", "--policy", "ds2", "--share", "99%"), "it must be left out with ds2"),
        (("run", "max-price", "--policy", "tide", "--share", "99"), "write it as 99% or 0.99"),
        (
            ("attach", "--slo", "5s", "--policy", "drs", "--share", "99%"),
            "it must be left out with drs",
        ),
        (("replay", "none.jsonl", "--policy", "drs", "--set", "t_max_s"), "parameter=value"),
        (("replay", "none.jsonl", "--policy", "drs", "--set", "t=1"), "it takes t_max_s"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    done = tidegate(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("tidegate: ") and done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_policies_lists_all_with_paper_and_parameters() -> None:
    done = tidegate("policies", "--json")
    listed = json.loads(done.stdout)
    assert [policy["name"] for policy in listed] == list(available())
    for policy in listed:
        assert policy["paper"] and policy["summary"]
        assert all(parameter["doc"] for parameter in policy["parameters"])
    text = tidegate("policies").stdout
    assert all(name in text for name in available())
    assert "imp: weight of what is new" in tidegate("policies", "sarsa").stdout


def test_replay_prints_where_another_policy_would_decide_otherwise(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    record(journal, "lag")
    same = tidegate("replay", journal, "--policy", "lag")
    assert "differently in 0 of 10 turns" in same.stdout
    other = tidegate("replay", journal, "--policy", "static", "--set", "hosts=2")
    assert other.returncode == 0
    assert "2 are configured" in other.stdout
    config = tmp_path / "settings.yaml"
    config.write_text("policy: lag\nguards: {dry-run: {}}\n")
    rows = json.loads(tidegate("replay", journal, "--config", config, "--json").stdout)
    assert rows["decisions"] == 10
    assert any(turn["bindings"] for turn in rows["turns"])


def test_help_and_version_answer() -> None:
    assert tidegate("--version").stdout == f"tidegate {__version__}\n"
    done = tidegate("--help")
    assert done.returncode == 0 and "Usage" in done.stdout


def commands(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*before, name)
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)


@pytest.mark.parametrize("words", [*commands(get_command(app))], ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    done = tidegate(*words, "--help")
    assert done.returncode == 0 and "Usage" in done.stdout


def test_the_installed_command_answers_and_fails_as_a_process() -> None:
    command = Path(sys.executable).with_name("tidegate")
    good = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout) == (0, f"tidegate {__version__}\n")
    bad = subprocess.run([command, "policies", "x"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and bad.stderr.startswith("tidegate: policy is 'x'")


def test_importing_tidegate_loads_nothing_heavy() -> None:
    code = (
        "import sys, tidegate; "
        "heavy = {'numpy', 'numba', 'pydantic', 'typer', 'rich', 'pyspark'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


LIMITED = """
operators: [{name: a, service_time_s: 0.1, max_instances: 2}, {name: b, service_time_s: 0.01}]
sources: [{name: input, rate_per_s: 10}]
edges: [{origin: input, target: a}, {origin: a, target: b, ratio: 2}]
"""


def test_a_topology_can_be_given_another_rate_and_tells_which_operator_is_limited(
    tmp_path: Path,
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(LIMITED)
    words = ("allocate", "--topology", file, "--external")
    answer = json.loads(tidegate(*words, "15", "--t-max", "1s", "--json").stdout)
    assert (answer["external_rate_per_s"], answer["allocation"]) == (15, {"a": 2, "b": 1})
    for more in (("--t-max", "1s"), ("--processors", "9"), ("--processors", "500")):
        said = tidegate(*words, "25", *more).stderr
        assert "operator a can use 2 processors at most" in said and "at least 3" in said
    late = tidegate(*words, "19.9", "--t-max", "1s").stderr
    assert "because operator a can use no more processors" in late


def test_replay_gives_a_fleets_journal_the_guards_of_a_fleet() -> None:
    journal = Path(__file__).parents[1] / "fixtures" / "journals-0.1.0" / "live-fleet.jsonl"
    done = tidegate("replay", journal, "--policy", "local-threshold", "--json")
    assert done.returncode == 0, done.stderr
    stack = json.loads(done.stdout)["policy"]
    assert stack == "local-threshold → missing-metrics() → bounds() → every-query-runs()"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--queries-mb", "0"), "queries_mb is 0"),
        (("--queries-mb", "much"), "--queries-mb"),
        (("--network-mbps", "-3"), "network_mbps is -3"),
        (("--network-mbps", "nan"), "network_mbps is nan"),
    ],
)
def test_a_limit_of_a_fleets_hosts_that_is_none_is_refused(
    words: tuple[str, str], key: str, tmp_path: Path
) -> None:
    queries = Path(__file__).parents[2] / "examples" / "fleet" / "queries.py"
    done = tidegate("fleet", "run", queries, "--folder", tmp_path / "fleet", *words)
    assert done.returncode == 2 and key in done.stderr and done.stderr.count("\n") == 1
