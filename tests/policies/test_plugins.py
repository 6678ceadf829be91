"""Somebody else's package adds a policy by naming it in the entry-point group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

THEIR_MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from tidegate.packing import Packing
from tidegate.policies import Policy, setting
from tidegate.packing.sizing import set_engines


@dataclass(frozen=True)
class Prime(Policy):
    """Always a prime number of hosts."""

    name: ClassVar[str] = "prime"
    paper: ClassVar[str] = "folklore"
    style: ClassVar[str] = "engines"
    needs: ClassVar[tuple[str, ...]] = ()

    prime: int = setting(3, "hosts to keep", low=2)

    def decide(self, snapshot, memory):
        packing = Packing(snapshot)
        before = len(packing.hosts)
        set_engines(packing, self.prime)
        if len(packing.hosts) != before:
            packing.because("prime", f"{before} is not {self.prime}")
        return packing.plan(), memory
'''


def test_a_policy_of_another_package_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "their_policy.py").write_text(THEIR_MODULE)
    info = tmp_path / "their_policy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-policy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tidegate.policies]\nprime = their_policy:Prime\n")
    code = (
        "import json\n"
        "from tidegate.policies import available, create\n"
        "from tidegate.testing import steady_snapshot\n"
        "policy = create('prime', prime='5')\n"
        "plan, _ = policy.decide(steady_snapshot(hosts=1), policy.initial_memory())\n"
        "print(json.dumps([list(available()), plan.bounded_target]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    names, hosts = json.loads(done.stdout)
    assert "prime" in names and "drs" in names
    assert hosts == 5
