"""diff(): the steps lead to the plan, and no step on the way is a dangerous one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from tests.strategies import deployments, rehomed
from tidegate.model import Deployment, Instance, Plan
from tidegate.model.steps import Step, diff


def after_step(now: Deployment, step: Step) -> Deployment:
    """Carry out one step, and insist that it can be."""
    hosts, instances = list(now.hosts), {i.id: i for i in now.instances}
    if step.kind == "lease":
        assert step.host not in hosts
        hosts.append(step.host)
    elif step.kind == "release":
        assert all(i.host != step.host for i in instances.values()), "released while in use"
        hosts.remove(step.host)
    elif step.kind == "start":
        assert step.instance not in instances
        instances[step.instance] = Instance(step.instance, step.operator, step.host)
    elif step.kind == "stop":
        assert instances.pop(step.instance).host == step.host
    else:
        assert instances[step.instance].host == step.origin
        instances[step.instance] = Instance(step.instance, step.operator, step.host)
    return Deployment(tuple(hosts), tuple(instances.values()))


def states(before: Deployment, after: Deployment) -> list[Deployment]:
    passed = [before]
    for step in diff(before, after):
        passed.append(after_step(passed[-1], step))
    return passed


@given(deployments(), deployments())
def test_the_steps_in_order_turn_what_runs_into_the_plan(
    before: Deployment, after: Deployment
) -> None:
    assert states(before, after)[-1] == after
    assert diff(before, Plan(after)) == diff(before, after)


@given(deployments(), deployments())
def test_an_instance_is_never_on_a_host_that_is_not_leased(
    before: Deployment, after: Deployment
) -> None:
    for state in states(before, after):
        assert {i.host for i in state.instances} <= set(state.hosts)


@given(deployments(), deployments())
def test_no_operator_ever_falls_below_the_smaller_of_its_two_counts(
    before: Deployment, after: Deployment
) -> None:
    least = before.counts & after.counts
    for state in states(before, after):
        assert not least - state.counts


@given(rehomed())
def test_what_moves_out_of_a_host_goes_before_what_moves_in_unless_they_go_in_circles(
    twice: tuple[Deployment, Deployment],
) -> None:
    before, after = twice
    assert states(before, after)[-1] == after
    moves = [step for step in diff(before, after) if step.kind == "move"]
    leads = {(step.origin, step.host) for step in moves}
    reach = set(leads)
    for _ in range(5):
        reach |= {(a, d) for a, b in reach for c, d in leads if b == c}
    if any(a == b for a, b in reach):
        return  # a circle, so somebody has to go first
    leaving = Counter(step.origin for step in moves)
    for step in moves:
        assert leaving[step.host] == 0
        leaving[step.origin] -= 1


@given(deployments())
def test_there_is_nothing_to_do_when_the_plan_already_runs(deployment: Deployment) -> None:
    assert diff(deployment, deployment) == ()
    assert diff(deployment, Plan(deployment)) == ()


@given(deployments(), deployments())
def test_there_are_only_steps_where_the_two_differ(before: Deployment, after: Deployment) -> None:
    touched = {step.instance for step in diff(before, after) if step.instance}
    kept = set(before.instances) & set(after.instances)
    assert touched.isdisjoint(i.id for i in kept)
