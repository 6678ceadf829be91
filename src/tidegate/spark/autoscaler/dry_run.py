"""What a dry run would have done, added up turn by turn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidegate.errors import TidegateError
from tidegate.loop.journal import Turn
from tidegate.model.leases import HostOffer
from tidegate.policies.base import Policy
from tidegate.units import show_duration

__all__ = ["DryRunBooks"]

KEPT = 20_000


@dataclass
class DryRunBooks:
    """Executor-seconds as they were, and as they would have been.

    A turn counts until the next one; what came before the first and after the last is left out.
    Failed turns are passed over: the wish before them is taken to have lasted.

    actual_s: executors that were there. wanted_s: what the policy itself asked for. planned_s: what
    its guards would have let pass. All in executor-seconds, over `watched_s` seconds.
    """

    actual_s: float = 0.0
    wanted_s: float = 0.0
    planned_s: float = 0.0
    watched_s: float = 0.0
    changes: int = 0
    """How often the number of executors would have been another than before."""
    offer: HostOffer | None = None
    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The last turns, to simulate what would have been."""
    _last: tuple[float, int, int, int] | None = None

    def add(self, turn: Turn) -> None:
        """Note a turn of the loop."""
        if turn.snapshot is None or turn.plan is None:
            return
        self.turns.append(turn)
        now_s = turn.snapshot.time_s
        planned = next(
            (b.before for b in turn.plan.bindings if b.guard == "dry-run"), turn.plan.bounded_target
        )
        if self._last is not None:
            then_s, actual, wanted, before = self._last
            passed_s = max(0.0, now_s - then_s)
            self.watched_s += passed_s
            self.actual_s += actual * passed_s
            self.wanted_s += wanted * passed_s
            self.planned_s += before * passed_s
            self.changes += planned != before
        self.offer = turn.snapshot.offer
        actual = len(turn.snapshot.requested.hosts)
        self._last = (now_s, actual, turn.plan.raw_target, planned)

    def report(self) -> str:
        """The account in a few lines for people."""
        if not self.watched_s:
            return "dry run: fewer than two turns were decided, so there is nothing to compare"
        lines = [
            f"dry run of {show_duration(self.watched_s)}, nothing was touched:",
            self._line("as it was", self.actual_s),
            self._line("wanted by the policy", self.wanted_s),
            self._line("after its guards", self.planned_s)
            + f", in {self.changes} change{'' if self.changes == 1 else 's'}",
        ]
        return "\n".join(lines)

    def estimate(self, policy: Policy, slo_s: float) -> str:
        """How it would have gone with the policy let loose, by simulation, in two lines.

        policy: with its guards but for the dry run. slo_s: the latency wanted, in seconds.
        """
        from tidegate.simulation.calibrate import counterfactual

        try:
            would = counterfactual(tuple(self.turns), policy, slo_s, "the dry run")
        except TidegateError as error:
            return f"  too little was seen to simulate it: {error}"
        share = "?" if would.slo_compliance is None else f"{would.slo_compliance:.1%}"
        p95 = "?" if would.latency_p95_s is None else show_duration(would.latency_p95_s)
        mean = would.host_seconds / would.duration_s if would.duration_s else 0.0
        cost = f", {would.resource_cost_usd:.4f} $" if would.resource_cost_usd else ""
        return (
            f"  simulated, in a world calibrated from this run: {mean:.2f} executors on average"
            f"{cost},\n  {share} of the items within {show_duration(slo_s)}, p95 {p95}, "
            f"{would.rescales} rescale{'' if would.rescales == 1 else 's'}"
        )

    def _line(self, what: str, executor_s: float) -> str:
        mean = executor_s / self.watched_s
        line = f"  {what:<21}{executor_s:>10.0f} executor-seconds, {mean:.2f} executors on average"
        if self.offer is not None and self.offer.price_per_unit_usd:
            line += f", {executor_s / 3600 * self.offer.usd_per_h:.4f} $"
        return line
