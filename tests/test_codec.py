from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tidegate.codec import from_json, from_plain, to_json, to_plain
from tidegate.errors import InputError, TopologyError
from tidegate.model import Host, Latency, Snapshot
from tidegate.model.topology import Edge, Operator, Resources, Topology
from tidegate.testing import steady_snapshot


def test_a_missing_measurement_is_null_in_json_and_none_again_afterwards() -> None:
    host = Host("h", Resources(4), utilisation=None)
    assert '"utilisation":null' in to_json(host)
    assert from_json(Host, to_json(host)).utilisation is None


def test_cached_images_are_written_in_order_whatever_their_hashes() -> None:
    host = Host("h", Resources(4), images=frozenset(f"image-{n:02}" for n in range(50, 0, -1)))
    assert to_plain(host)["images"] == sorted(host.images)
    assert from_json(Host, to_json(host)) == from_plain(Host, to_plain(host)) == host
    program = (
        "from tidegate.codec import to_json; from tidegate.model import Host; "
        "from tidegate.model.topology import Resources; "
        "print(to_json(Host('h', Resources(4), images=frozenset({'b', 'a', 'd', 'c'}))))"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1
    assert '"images":["a","b","c","d"]' in written.pop()


def test_an_unknown_key_is_refused_with_its_place() -> None:
    plain = to_plain(steady_snapshot())
    plain["hosts"][0]["colour"] = "red"
    with pytest.raises(InputError, match="no such key is known") as caught:
        from_plain(Snapshot, plain)
    assert caught.value.key == "Snapshot.hosts.0.colour"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(InputError, match=r"Edge\.target is None; it must be given"):
        from_json(Edge, '{"origin": "a"}')


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(InputError, match=r"Latency\.mean_s"):
        from_json(Latency, f'{{"mean_s": {number}}}')


@pytest.mark.parametrize("text", ["", "{", "[1,", "nonsense"])
def test_what_is_no_json_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="valid JSON"):
        from_json(Edge, text)


@pytest.mark.parametrize("plain", [None, 3, [], "edge", {"origin": 3, "target": "b"}])
def test_a_value_of_the_wrong_kind_is_refused(plain: Any) -> None:
    with pytest.raises(InputError, match="Edge"):
        from_plain(Edge, plain)


def test_a_value_that_fails_its_own_checks_says_so_in_its_own_words() -> None:
    with pytest.raises(TopologyError, match="edge a → b: ratio is -1"):
        from_json(Edge, '{"origin": "a", "target": "b", "ratio": -1}')


def test_checks_of_the_whole_hold_for_what_is_read() -> None:
    plain = to_plain(Topology((Operator("a"),)))
    plain["edges"] = [{"origin": "a", "target": "nobody"}]
    with pytest.raises(TopologyError, match="edge target is 'nobody'"):
        from_plain(Topology, plain)
