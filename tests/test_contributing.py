"""Each extension point of CONTRIBUTING.md, used in a copy of the package and run there.

The copy is changed only in the files that the table names; a test compares the two trees.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/tidegate")


def touched() -> dict[str, list[str]]:
    """The files that each extension touches, by what is added, from the table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Extension points")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| a ")]
    rows += [row.split(" | ") for row in section.splitlines() if row.startswith("| the ")]
    found = {}
    for what, files, _ in rows:
        names = re.findall(r"`((?:src/|pyproject)[^`]*)`", files)
        patterns = [re.sub(r"<\w+>", "*", name) for name in names]
        found[what.strip("| ")] = [re.sub(r"/$", "/*", pattern) for pattern in patterns]
    return found


@dataclass
class Copy:
    """A copy of the package, with the entry points that its pyproject.toml names."""

    root: Path

    def write(self, path: str | Path, text: str) -> None:
        (self.root / path).write_text(text, encoding="utf-8")

    def insert(self, path: str | Path, before: str, line: str) -> None:
        """Insert one line before another."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(before) == 1, before
        self.write(path, text.replace(before, f"{line}\n{before}"))

    def append(self, path: str | Path, text: str) -> None:
        self.write(path, (self.root / path).read_text(encoding="utf-8") + text)

    def changed(self) -> list[str]:
        """The files that differ from those of the repository."""
        names = []
        for file in sorted(self.root.rglob("*")):
            name = file.relative_to(self.root)
            if not file.is_file() or "__pycache__" in name.parts or "dist-info" in str(name):
                continue
            original = ROOT / name
            if not original.exists() or original.read_bytes() != file.read_bytes():
                names.append(str(name))
        return names

    def run(self, code: str, *words: str) -> str:
        """Run Python with the copy in place of the installed package."""
        settings = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        info = self.root / "src" / "tidegate-0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tidegate\nVersion: 0\n")
        points = settings["project"]["entry-points"]["tidegate.policies"]
        lines = [f"{name} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[tidegate.policies]", *lines, ""]))
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
            env={"PYTHONPATH": str(self.root / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Copy]:
    # Compiled kernels come along: the digest of their sources finds them in a copy, too.
    copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=ignore_patterns("*.pyc"))
    copy(ROOT / "pyproject.toml", tmp_path)
    made = Copy(tmp_path)
    assert made.changed() == []
    yield made


def only(fresh: Copy, what: str) -> None:
    """Fail unless the files changed are those that the table names, and all of these."""
    patterns = touched()[what]
    changed = fresh.changed()
    for name in changed:
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name
    for pattern in patterns:
        assert any(fnmatch.fnmatch(name, pattern) for name in changed), pattern


COMMAND = "import sys; sys.argv[0] = 'tidegate'; from tidegate.cli import main; main()"

POLICY = '''"""At least two hosts."""

from dataclasses import dataclass
from typing import ClassVar

from tidegate.packing import Packing
from tidegate.packing.sizing import set_engines
from tidegate.policies.base import Policy, Style


@dataclass(frozen=True)
class Pair(Policy):
    """Two hosts."""

    name: ClassVar[str] = "pair"
    paper: ClassVar[str] = "an example"
    style: ClassVar[Style] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()

    def decide(self, snapshot, memory):
        """Two hosts."""
        packing = Packing(snapshot)
        set_engines(packing, max(2, len(packing.hosts)))
        packing.because("pair", "two hosts are enough")
        return packing.plan(), memory
'''


def test_a_policy(fresh: Copy) -> None:
    fresh.write(PACKAGE / "policies" / "pair.py", POLICY)
    fresh.insert("pyproject.toml", "static = ", 'pair = "tidegate.policies.pair:Pair"')
    only(fresh, "a policy")
    assert "an example" in fresh.run(COMMAND, "policies")
    (fresh.root / "day.csv").write_text("t_s,rate\n0,8\n300,90\n600,8\n")
    out = fresh.run(COMMAND, "backtest", "day.csv", "--policies", "pair", "--bound-time", "1s")
    assert re.search(r"^pair .* 2\.0 ", out, re.MULTILINE), out
    checked = "from tidegate.policies import create; from tidegate.testing import check_policy; "
    fresh.run(checked + "check_policy(create('pair'))")


GUARD = '''"""No more hosts than three."""

from dataclasses import dataclass
from typing import ClassVar

from tidegate.guards.base import Guard, unchanged


@dataclass(frozen=True)
class AtMostThree(Guard):
    """Three hosts at most."""

    name: ClassVar[str] = "at-most-three"

    def limit(self, snapshot, plan, own):
        """Clamp."""
        if len(plan.deployment.hosts) <= 3:
            return unchanged(plan), "", own
        return self.with_hosts(snapshot, plan, 3), "three are enough", own
'''


def test_a_guard(fresh: Copy) -> None:
    fresh.write(PACKAGE / "guards" / "three.py", GUARD)
    fresh.insert(
        PACKAGE / "guards" / "__init__.py", '    "limits.Bounds",', '    "three.AtMostThree",'
    )
    only(fresh, "a guard")
    fresh.write(
        "settings.yaml", "policy: static\nparameters: {hosts: 9}\nguards: {at-most-three: }\n"
    )
    code = """if True:
        from tidegate.loop.stack import load_policy
        from tidegate.testing import steady_snapshot
        policy = load_policy("settings.yaml")
        plan, _ = policy.decide(steady_snapshot(hosts=2), policy.initial_memory())
        print(policy.describe(), plan.bounded_target, plan.bindings[0].why)
        """
    assert fresh.run(code) == "static → at-most-three() 3 three are enough\n"


LAG = '''

@register_lag("PulsarSource[")
def _pulsar_lag(source: Mapping[str, Any]) -> int:
    """Rows that the broker still holds."""
    return int(source["metrics"]["backlog"])
'''


def test_the_lag_of_a_source(fresh: Copy) -> None:
    fresh.append(PACKAGE / "spark" / "autoscaler" / "progress.py", LAG)
    only(fresh, "the lag of a source")
    code = """if True:
        from tidegate.spark.autoscaler.progress import lag_of
        pulsar = {"description": "PulsarSource[orders]", "metrics": {"backlog": "42"}}
        print(lag_of([pulsar]).items)
        """
    assert fresh.run(code) == "42.0\n"


CLAIM = """

@claim("D-99", "Table 9", "an example", published="yes", criterion="always")
def example(results: DrsResults) -> Answer:
    return Answer(f"{len(results.logos)} worlds", "reproduced")
"""


def test_a_claim_and_a_figure_of_a_paper(fresh: Copy) -> None:
    folder = PACKAGE / "lab" / "papers" / "drs"
    fresh.append(folder / "claims.py", CLAIM)
    text = (fresh.root / folder / "experiment.py").read_text(encoding="utf-8")
    drawn = "def figures(results: DrsResults) -> Iterator[Figure]:\n"
    assert drawn in text
    one_more = drawn + "    yield 'Fig. 99', '<svg/>'\n"
    fresh.write(folder / "experiment.py", text.replace(drawn, one_more))
    only(fresh, "a figure or claim of a paper")
    code = """if True:
        from tidegate.lab.papers import load_paper
        from tidegate.lab.papers.drs.runs import DrsLengths
        small = DrsLengths(logo_s=600, pattern_s=10, chain_items=1000, pattern_seeds=0,
                           instances=5, rounds=1)
        done = load_paper("drs").run(True, 1, lambda share, what: None, lengths=small)
        print(next(row["verdict"] for row in done.rows() if row["id"] == "D-99"))
        print([caption for caption, _ in done.figures][:1])
        """
    assert fresh.run(code) == "reproduced\n['Fig. 99']\n"


MANAGER = '''

class NomadHosts(ExecutorHosts):
    """Executors on Nomad, with a quota of one more at a time."""

    def lease(self, names: Sequence[str]) -> list[str]:
        """Refuse all but the first."""
        super().lease(names[:1])
        return [f"{name} is refused: the job has a quota" for name in names[1:]]


EXECUTOR_MANAGERS["nomad"] = NomadHosts
'''


def test_a_cluster_manager(fresh: Copy) -> None:
    fresh.append(PACKAGE / "spark" / "autoscaler" / "executors.py", MANAGER)
    only(fresh, "a cluster manager")
    code = """if True:
        from tidegate.spark.autoscaler.executors import executor_manager
        from tidegate.testing.spark import FakeGateway
        class OnNomad(FakeGateway):
            scheme = "nomad"
        gateway = OnNomad()
        hosts = executor_manager(gateway, gateway.clock)
        print(type(hosts).__name__, hosts.lease(["host-1", "host-2"]))
        """
    assert fresh.run(code) == "NomadHosts ['host-2 is refused: the job has a quota']\n"


def test_the_list_names_five() -> None:
    assert len(touched()) == 5


def test_a_change_elsewhere_would_be_noticed(fresh: Copy) -> None:
    fresh.write(PACKAGE / "guards" / "three.py", GUARD)
    with pytest.raises(AssertionError, match=r"guards/__init__\.py"):
        only(fresh, "a guard")
    fresh.append(PACKAGE / "guards" / "__init__.py", "\n")
    fresh.append(PACKAGE / "units.py", "\n")
    with pytest.raises(AssertionError, match=r"units\.py"):
        only(fresh, "a guard")
