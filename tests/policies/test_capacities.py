"""Memory and network of a host as capacities that bind while its CPU is low."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from tidegate.codec import from_json, to_json
from tidegate.errors import InputError
from tidegate.model import Host, HostOffer, Plan, Snapshot
from tidegate.model.topology import Resources
from tidegate.packing import Packing
from tidegate.packing.relief import excess_of, relieve
from tidegate.policies.base import Policy
from tidegate.policies.global_threshold import GlobalThreshold
from tidegate.policies.local_threshold import LocalThreshold
from tidegate.policies.sarsa import Sarsa
from tidegate.testing import HOST, fleet_snapshot, steady_snapshot

Bound = Literal["memory_mb", "network_mbps"]
EACH: tuple[Bound, ...] = ("memory_mb", "network_mbps")
POLICIES = (LocalThreshold(grace_s=0), GlobalThreshold(grace_s=0), Sarsa(grace_s=0))
SHARE = {"memory_mb": "memory_share", "network_mbps": "network_share"}


def bound(
    name: Bound, shares: dict[str, tuple[float, ...]], limited: bool = True, cpu: float = 0.4
) -> Snapshot:
    """Hosts with little CPU in use. shares: of the resource, for each operator, by host."""
    cores = {host: [cpu / len(many)] * len(many) for host, many in shares.items()}
    snapshot = fleet_snapshot(cores)
    sizes = [share * getattr(HOST, name) for many in shares.values() for share in many]
    whole: dict[str, Any]
    instances = []
    for instance, size in zip(snapshot.instances, sizes, strict=True):
        assert instance.load is not None
        used = Resources(instance.load.cpu_cores, **{name: size})
        instances.append(replace(instance, load=used))
    hosts = []
    for host in snapshot.hosts:
        whole = {SHARE[name]: sum(shares[host.id]), "limits": frozenset({name})}
        hosts.append(replace(host, **whole) if limited else host)
    return replace(snapshot, hosts=tuple(hosts), instances=tuple(instances))


def unknown(snapshot: Snapshot, host: str) -> Snapshot:
    """The same, but the limits of a host were not measured."""
    blind = {"memory_share": None, "network_share": None}
    hosts = (replace(h, **blind) if h.id == host else h for h in snapshot.hosts)  # type: ignore[arg-type]
    return replace(snapshot, hosts=tuple(hosts))


def last(policy: Policy, snapshot: Snapshot, turns: int = 6) -> list[Plan]:
    """Plans of some turns with the same measurements."""
    memory, plans = policy.initial_memory(), []
    for turn in range(turns):
        plan, memory = policy.decide(replace(snapshot, time_s=30.0 * turn), memory)
        plans.append(plan)
    return plans


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_host_whose_memory_or_network_binds_scales_out_while_its_cpu_is_low(
    policy: Policy, name: Bound
) -> None:
    tight = bound(name, {"host-1": (0.5, 0.25, 0.2)})
    assert max(len(plan.deployment.hosts) for plan in last(policy, tight)) == 2
    # The same loads where nobody limited the resource: one host is enough.
    free = bound(name, {"host-1": (0.5, 0.25, 0.2)}, limited=False)
    assert {len(plan.deployment.hosts) for plan in last(policy, free)} == {1}


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_what_was_not_measured_is_missing_never_zero(policy: Policy, name: Bound) -> None:
    calm = bound(name, {"host-1": (0.15,), "host-2": (0.1,)})
    assert min(len(plan.deployment.hosts) for plan in last(policy, calm)) == 1
    blind = unknown(unknown(calm, "host-1"), "host-2")
    for plan in last(policy, blind):  # read as zero, it would release a host
        assert plan.deployment == blind.requested


@pytest.mark.parametrize("name", EACH)
def test_a_host_whose_limit_binds_gets_nothing_more(name: Bound) -> None:
    snapshot = bound(name, {"host-1": (0.5, 0.25), "host-2": (0.3, 0.05)})
    packing = Packing(snapshot, "load", fill=0.8)
    size = replace(Resources(0.01), **{name: 0.1 * getattr(HOST, name)})
    assert not packing.fits(size, "host-1") and packing.fits(size, "host-2")
    assert not packing.evacuate("host-2")
    # Without a limit, a resource may be filled to the brim, as before.
    unlimited = Packing(bound(name, {"host-1": (0.5, 0.25)}, limited=False), "load", fill=0.8)
    assert unlimited.fits(size, "host-1")


@pytest.mark.parametrize("name", EACH)
def test_what_leaves_is_chosen_by_the_resource_that_binds(name: Bound) -> None:
    snapshot = bound(name, {"host-1": (0.5, 0.3, 0.1), "host-2": (0.1,)})
    packing = Packing(snapshot, "load", fill=0.8)
    excess = {"host-1": excess_of(snapshot.host["host-1"], 0.65)}
    assert relieve(packing, excess) == {"host-1": 1}
    assert packing.home["q2-1"] == "host-2"  # the smallest that is enough


def test_a_new_host_has_the_limits_of_the_others() -> None:
    snapshot = bound("memory_mb", {"host-1": (0.5, 0.25)})
    packing = Packing(snapshot, "load", fill=0.5)
    host = packing.lease()
    assert host is not None and packing.free[host][1] == pytest.approx(0.5 * HOST.memory_mb)
    assert packing.free[host][2] == pytest.approx(HOST.network_mbps)


def test_a_snapshot_has_the_utilisation_and_the_pressure_of_running_hosts() -> None:
    tight = Host("a", HOST, utilisation=0.4, memory_share=0.5)
    unknown = Host("b", HOST, utilisation=0.3, limits=frozenset({"network_mbps"}))
    hosts = (tight, Host("c", HOST, "starting"), unknown, Host("d", HOST))
    snapshot = replace(steady_snapshot(hosts=1), hosts=hosts, instances=())
    assert snapshot.utilisations == {"a": 0.4, "b": 0.3, "d": None}
    assert snapshot.pressures == {"a": 0.5, "b": None, "d": None}
    assert snapshot.missing(["host.utilisation"]) == ("d.utilisation",)


def test_pressure_is_that_of_the_tightest_resource() -> None:
    host = Host("h", HOST, utilisation=0.3, memory_share=0.5, network_share=0.4)
    assert (host.pressure, host.tightest) == (0.5, "memory_mb")
    assert (replace(host, utilisation=0.6).pressure) == 0.6
    assert replace(host, utilisation=None).pressure is None
    assert replace(host, memory_share=None).pressure == 0.4  # not limited
    limited = replace(host, memory_share=None, limits=frozenset({"memory_mb"}))
    assert limited.pressure is None
    assert from_json(Host, to_json(limited)) == limited
    with pytest.raises(InputError, match="memory_share"):
        replace(host, memory_share=-0.1)


def test_no_more_hosts_than_the_offer_where_memory_binds() -> None:
    tight = bound("memory_mb", {"host-1": (0.5, 0.25, 0.2)})
    full = replace(tight, offer=HostOffer(HOST, max_hosts=1))
    for plan in last(LocalThreshold(grace_s=0), full):
        assert plan.deployment.hosts == ("host-1",)
