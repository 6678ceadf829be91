"""How the property tests draw stations, items, topologies, snapshots, deployments and plans."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tidegate.model import (
    BatchReading,
    Binding,
    Deployment,
    Host,
    HostOffer,
    Instance,
    InstanceReading,
    Latency,
    Lease,
    OperatorReading,
    Plan,
    Prediction,
    Reason,
    Snapshot,
    Unmet,
)
from tidegate.model.topology import Edge, Operator, Resources, Source, Topology
from tidegate.theory.placement import Item
from tidegate.theory.queueing import Station

OPERATORS = ("a", "b", "c", "d")

amounts = st.floats(0, 1e6, allow_nan=False)
shares = st.floats(0, 2, allow_nan=False)
maybe = st.none() | amounts
words = st.text(max_size=12)


@st.composite
def stations(draw: st.DrawFn, most: int = 4, heaviest: float = 6.0) -> tuple[Station, ...]:
    """A few queues whose loads are not too near to a whole number."""
    drawn = []
    for n in range(draw(st.integers(1, most))):
        service_rate = draw(st.floats(0.1, 50))
        load = draw(st.floats(0.01, heaviest))
        drawn.append(Station(f"s{n}", load * service_rate, service_rate))
    return tuple(drawn)


@st.composite
def resources(draw: st.DrawFn, most: float = 4.0) -> Resources:
    """Sizes in eighths of a core, so that sums are exact."""
    cores = draw(st.integers(0, round(8 * most))) / 8
    return Resources(cores, draw(st.integers(0, 16)) * 64, draw(st.integers(0, 4)) * 10)


@st.composite
def items(draw: st.DrawFn, most: int = 12) -> list[Item]:
    """Things to place, of a few operators."""
    count = draw(st.integers(1, most))
    return [
        Item(f"i{n}", draw(st.sampled_from(OPERATORS)), draw(resources())) for n in range(count)
    ]


@st.composite
def bins(draw: st.DrawFn, most: int = 6) -> list[tuple[float, float, float]]:
    """Room left: cores, megabytes and megabits per second."""
    rooms = draw(st.lists(resources(most=6), min_size=1, max_size=most))
    return [(room.cpu_cores, room.memory_mb, room.network_mbps) for room in rooms]


@st.composite
def neighbourhoods(draw: st.DrawFn) -> dict[str, frozenset[str]]:
    """Who exchanges items with whom, the same seen from both sides."""
    near: dict[str, set[str]] = {name: set() for name in OPERATORS}
    pairs = st.tuples(st.sampled_from(OPERATORS), st.sampled_from(OPERATORS))
    for one, other in draw(st.lists(pairs, max_size=5)):
        if one != other:
            near[one].add(other)
            near[other].add(one)
    return {name: frozenset(others) for name, others in near.items()}


@st.composite
def loads(draw: st.DrawFn) -> dict[str, float]:
    """Up to eight loads in thousandths of a core."""
    thousandths = draw(st.lists(st.integers(0, 1500), min_size=1, max_size=8))
    return {f"q{n}": value / 1000 for n, value in enumerate(thousandths)}


@st.composite
def topologies(draw: st.DrawFn, loop_gain: float = 0.9) -> Topology:
    """Up to five operators, edges in any direction; no operator sends on more than `loop_gain`."""
    count = draw(st.integers(1, 5))
    names = [f"op{n}" for n in range(count)]
    operators = tuple(draw(_operator(name)) for name in names)
    edges = [Edge("input", draw(st.sampled_from(names)), draw(st.floats(0.1, 3)))]
    for name in names:
        targets = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        weights = [draw(st.floats(0.01, 1)) for _ in targets]
        out = draw(st.floats(0.1, loop_gain))
        total = sum(weights)
        edges += [
            Edge(name, target, out * weight / total)
            for target, weight in zip(targets, weights, strict=True)
        ]
    return Topology(operators, (Source("input", draw(st.floats(0.1, 1000))),), tuple(edges))


@st.composite
def _operator(draw: st.DrawFn, name: str) -> Operator:
    return Operator(
        name,
        draw(resources()),
        service_time_s=draw(st.none() | st.floats(1e-4, 10)),
        service_scv=draw(st.floats(0, 4)),
        slo_s=draw(st.none() | st.floats(1e-3, 10)),
        state_mb=draw(amounts),
        image=draw(st.none() | st.just("image:1")),
        max_instances=draw(st.none() | st.integers(1, 9)),
    )


@st.composite
def deployments(draw: st.DrawFn, hosts: int = 5, copies: int = 3) -> Deployment:
    """Some of a few hosts, and on them some of a few instances: two of these often overlap."""
    leased = draw(st.lists(st.integers(1, hosts), min_size=1, unique=True))
    ids = [f"host-{n}" for n in leased]
    instances = []
    for operator in OPERATORS[:3]:
        numbers = draw(st.lists(st.integers(1, 2 * copies), max_size=copies, unique=True))
        instances += [
            Instance(f"{operator}-{n}", operator, draw(st.sampled_from(ids))) for n in numbers
        ]
    return Deployment(tuple(ids), tuple(instances))


@st.composite
def rehomed(draw: st.DrawFn) -> tuple[Deployment, Deployment]:
    """The same instances on the same hosts, twice, at home in other places."""
    hosts = [f"host-{n}" for n in range(draw(st.integers(2, 5)))]
    ids = [f"{operator}-{n}" for operator in OPERATORS for n in range(draw(st.integers(0, 2)))]
    before, after = (
        Deployment(
            tuple(hosts), tuple(Instance(i, i[0], draw(st.sampled_from(hosts))) for i in ids)
        )
        for _ in range(2)
    )
    return before, after


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan, sensible or not."""
    return Plan(
        draw(deployments()),
        tuple(
            Reason(*draw(st.tuples(words, words, words))) for _ in range(draw(st.integers(0, 2)))
        ),
        Prediction(draw(maybe), draw(maybe), draw(maybe), draw(maybe)),
        tuple(Unmet(draw(words), 3, draw(words)) for _ in range(draw(st.integers(0, 2)))),
        draw(st.floats(0, 1)),
        draw(st.none() | deployments()),
        tuple(Binding(draw(words), 4, 2, draw(words)) for _ in range(draw(st.integers(0, 2)))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any consistent snapshot, each measurement there or missing."""
    topology = draw(topologies())
    names = list(topology.by_name)
    hosts = []
    for n in range(draw(st.integers(1, 4))):
        lease = Lease(draw(st.floats(1, 7200)), draw(amounts), draw(amounts))
        hosts.append(
            Host(
                f"host-{n}",
                draw(resources()),
                draw(st.sampled_from(["starting", "running", "draining"])),
                draw(st.none() | shares),
                draw(st.none() | st.just(lease)),
                draw(st.frozensets(st.sampled_from(names))),
            )
        )
    instances = []
    for n in range(draw(st.integers(0, 5))):
        operator = draw(st.sampled_from(names))
        instances.append(
            InstanceReading(
                f"{operator}-{n}",
                operator,
                draw(st.sampled_from(hosts)).id,
                draw(st.sampled_from(["starting", "running", "stopping"])),
                draw(st.none() | resources()),
                draw(maybe),
            )
        )
    return Snapshot(
        draw(amounts),
        topology,
        HostOffer(Resources(4, 7168, 1000), max_hosts=draw(st.none() | st.integers(1, 9))),
        tuple(hosts),
        tuple(instances),
        tuple(draw(_readings(name)) for name in names if draw(st.booleans())),
        Latency(draw(maybe), draw(maybe), draw(maybe), draw(maybe)),
        draw(st.none() | st.just(BatchReading(10.0, (1.0, 2.5)))),
        draw(maybe),
        draw(st.integers(0, 99)),
    )


@st.composite
def _readings(draw: st.DrawFn, name: str) -> OperatorReading:
    reading = OperatorReading(name, draw(maybe), draw(maybe), draw(maybe), draw(maybe))
    return replace(
        reading,
        arrival_scv=draw(maybe),
        service_scv=draw(maybe),
        queue_length=draw(maybe),
        recent_durations_s=draw(st.none() | st.lists(amounts, max_size=5).map(tuple)),
        pending_tasks=draw(st.none() | st.integers(0, 99)),
        running_tasks=draw(st.none() | st.integers(0, 99)),
    )
