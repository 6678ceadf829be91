from __future__ import annotations

from tidegate.model import Deployment, Instance
from tidegate.model.steps import Step, diff


def deployed(**homes: str) -> Deployment:
    """a_1="h1" is the instance a-1 of operator a on host h1."""
    instances = tuple(Instance(n.replace("_", "-"), n[0], host) for n, host in homes.items())
    return Deployment(tuple(sorted(set(homes.values()))), instances)


def shown(before: Deployment, after: Deployment) -> list[str]:
    return [str(step) for step in diff(before, after)]


def test_what_is_too_many_stops_before_anything_starts() -> None:
    before = deployed(a_1="h1", a_2="h1", b_1="h1")
    after = deployed(a_1="h1", b_1="h1", b_2="h1")
    assert shown(before, after) == ["stop a-2 on h1", "start b-2 on h1"]


def test_a_replacement_starts_before_the_old_one_stops() -> None:
    assert shown(deployed(a_1="h1"), deployed(a_2="h1")) == ["start a-2 on h1", "stop a-1 on h1"]


def test_moves_out_of_a_host_come_before_moves_into_it() -> None:
    before, after = deployed(a_1="h1", b_1="h2", c_1="h3"), deployed(a_1="h2", b_1="h3", c_1="h4")
    assert shown(before, after) == [
        "lease h4",
        "move c-1 from h3 to h4",
        "move b-1 from h2 to h3",
        "move a-1 from h1 to h2",
        "release h1",
    ]


def test_two_that_change_places_do_not_hang() -> None:
    before, after = deployed(a_1="h1", b_1="h2"), deployed(a_1="h2", b_1="h1")
    assert shown(before, after) == ["move a-1 from h1 to h2", "move b-1 from h2 to h1"]


def test_a_step_says_what_it_does() -> None:
    assert str(Step("lease", "h1")) == "lease h1"
    assert str(Step("move", "h2", "a-1", "a", origin="h1")) == "move a-1 from h1 to h2"
