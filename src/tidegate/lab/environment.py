"""The simulated cloud as a Gymnasium environment, for training policies.

Each step is one decision interval. The action changes the number of hosts by −1, 0 or +1, or by
more with `max_step`. The reward is the negative cost of the interval: hosts and late items.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tidegate.lab.backtest import situation_of
from tidegate.loop.stack import StackOptions, build_stack
from tidegate.policies.base import Policy
from tidegate.policies.static import Static
from tidegate.simulation import MicroBatchCloud, SimulatedCloud
from tidegate.simulation.scenario import Scenario

__all__ = ["TideEnv"]

Observation = NDArray[np.float32]


class TideEnv(gymnasium.Env[Observation, np.int64]):
    """An environment in which an agent chooses the number of hosts for each interval.

    Observation: running hosts, starting hosts, mean utilisation (−1 if not measured), arrival rate
    and waiting items, both divided by the items that one host processes in a second (−1 if not
    measured), and the completed share of the run.

    The action passes through the same default guards as the decision of a policy that runs live, so
    that a trained agent meets them in training.

    scenario: what is simulated, such as `ScenarioOptions(slo_s=2.0).build(workload)`. fluid: use
    the faster, approximate world. max_step: most hosts that one action adds or releases.
    max_hosts: most hosts. without_guards: names of default guards to switch off, or ``all``.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        scenario: Scenario,
        fluid: bool = True,
        max_step: int = 1,
        max_hosts: int = 40,
        without_guards: Collection[str] = (),
    ) -> None:
        self.scenario = scenario
        self.fluid = fluid
        self.max_step = max_step
        self.max_hosts = max_hosts
        self._situation = situation_of(scenario)
        self._options = StackOptions(without=without_guards, max_hosts=max_hosts)
        self._memory: Any = None
        service_s = sum(o.service_time_s or 0.0 for o in scenario.topology.operators)
        self._host_rate = scenario.offer.capacity.cpu_cores / service_s
        self.action_space = gymnasium.spaces.Discrete(2 * max_step + 1)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1e6, (6,), np.float32)
        self._world: SimulatedCloud | MicroBatchCloud | None = None
        self._spent = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new world. seed: random seed of service and start-up times, not of the arrivals."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31))
        self._world = self.scenario.world("engines", number, self.fluid)
        self._memory = self._stack(1).initial_memory(number)
        self._spent = self._world.report().total_cost_usd
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Change the number of hosts and simulate one interval."""
        if self._world is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        snapshot = self._world.observe()
        wanted = len(snapshot.requested.hosts) + int(action) - self.max_step
        stack = self._stack(min(self.max_hosts, max(1, wanted)))
        plan, self._memory = stack.decide(snapshot, self._memory)
        self._world.apply(plan)
        left_s = self.scenario.duration_s - self._world.time_s
        self._world.advance(min(self.scenario.interval_s, left_s))
        spent = self._world.report().total_cost_usd
        reward, self._spent = self._spent - spent, spent
        over = self._world.time_s >= self.scenario.duration_s - 1e-9
        return self._observe(), reward, False, over, {"cost_usd": spent}

    def _stack(self, hosts: int) -> Policy:
        """The agent's choice as a policy, inside the guards."""
        return build_stack(Static(hosts), self._situation, self._options)

    def _observe(self) -> Observation:
        assert self._world is not None
        snapshot = self._world.observe()
        running = len(snapshot.running_hosts)
        busy = [h.utilisation for h in snapshot.running_hosts if h.utilisation is not None]
        readings = [snapshot.reading[name] for name in snapshot.topology.entries]
        rates = [r.arrival_rate_per_s for r in readings]
        queues = [r.queue_length for r in readings]
        return np.array(
            [
                running,
                len(snapshot.requested.hosts) - running,
                sum(busy) / len(busy) if busy else -1.0,
                self._in_hosts(rates),
                self._in_hosts(queues),
                self._world.time_s / self.scenario.duration_s,
            ],
            np.float32,
        )

    def _in_hosts(self, values: list[float | None]) -> float:
        known = [value for value in values if value is not None]
        return min(1e6, sum(known) / self._host_rate) if len(known) == len(values) else -1.0
