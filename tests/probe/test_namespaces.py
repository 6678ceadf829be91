"""Between two network namespaces that a virtual cable joins, with a link that is too narrow."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TOKEN = "a-token-for-tests"
SERVER, SENDER = "198.18.77.1", "198.18.77.2"  # addresses that are reserved for measurements
NARROW = ("tbf", "rate", "300kbit", "burst", "4kb", "latency", "20ms")
"""100 tuples/s need about 115 kbit/s with all headers, 4,000 tuples/s more than 3 Mbit/s."""


def run(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Cable:
    """Two namespaces. The sender's end of the cable is `sender` in the namespace `sender_in`."""

    server_in: str
    sender_in: str
    token: Path

    def command(self, namespace: str, *words: str) -> list[str]:
        python = [sys.executable, "-m", "tidegate", "probe"]
        return ["ip", "netns", "exec", namespace, *python, *words, "--token-file", str(self.token)]

    def dropped(self) -> int:
        """Packets that the narrow link has dropped, by its own account."""
        said = run("ip", "netns", "exec", self.sender_in, "tc", "-s", "qdisc", "show", "dev", "tg1")
        found = re.search(r"\(dropped (\d+)", said)
        assert found is not None, said
        return int(found[1])


@pytest.fixture
def cable(tmp_path: Path) -> Iterator[Cable]:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root and the commands ip and tc")
    names = [f"tidegate-{os.getpid()}-{side}" for side in ("server", "sender")]
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    made = []
    try:
        try:
            for name in names:
                run("ip", "netns", "add", name)
                made.append(name)
            pair = ("type", "veth", "peer", "name", "tg1", "netns", names[1])
            run("ip", "-n", names[0], "link", "add", "tg0", *pair)
            for name, device, address in zip(names, ("tg0", "tg1"), (SERVER, SENDER), strict=True):
                run("ip", "-n", name, "addr", "add", f"{address}/30", "dev", device)
                run("ip", "-n", name, "link", "set", device, "up")
            narrow = ("tc", "qdisc", "add", "dev", "tg1", "root", *NARROW)
            run("ip", "netns", "exec", names[1], *narrow)
        except RuntimeError as error:
            pytest.skip(f"this machine allows no network namespaces: {error}")
        yield Cable(names[0], names[1], token)
    finally:
        for name in made:
            run("ip", "netns", "delete", name, check=False)


@pytest.fixture
def served(cable: Cable) -> Iterator[str]:
    words = cable.command(cable.server_in, "serve", "--host", SERVER, "--port", "0")
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        found = re.search(rf"probe: ({SERVER}:\d+) \(TCP and UDP, other machines", said)
        assert found is not None, said
        yield found[1]
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0, "Ctrl-C ends it in order"
    finally:
        server.kill()
        server.wait()


def test_a_narrow_link_loses_what_it_says_it_dropped(cable: Cable, served: str) -> None:
    def measured(*words: str) -> dict[str, dict[str, object]]:
        shown = json.loads(run(*cable.command(cable.sender_in, served, *words, "--json")))
        assert shown["one_machine"], "namespaces share the clock of their machine"
        return {f"{s['transport']} {s['rate_per_s']:g}": s for s in shown["streams"]}

    before = cable.dropped()
    found = measured("--rates", "100,4000", "--over", "udp", "--for", "2s")
    dropped = cable.dropped() - before
    few, many = (found[f"udp {rate}"]["figures"] for rate in (100, 4000))
    assert isinstance(few, dict) and isinstance(many, dict)
    lost = few["lost_there"] + many["lost_there"]
    pings = 60  # at most, in two moments of a second; the link may drop some of them
    assert lost <= dropped <= lost + pings
    assert few["lost_back"] == many["lost_back"] == 0, "the way back is wide"
    assert few["lost_there"] == 0 < many["lost_there"]
