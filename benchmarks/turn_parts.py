"""Where the time of a simulated turn goes, in microseconds.

    python benchmarks/turn_parts.py                          # all policies, a minute
    python benchmarks/turn_parts.py --policies static,drs --bare

The trace has a new rate every five minutes, with a turn every 15 s in the fluid world, as in the
backtest of 55 days. Medians over the turns of an hour, and of these the least of several rounds:

    observe  the snapshot, as far as it is not made later when something asks for it
    guards   the default guards and `trend`, with what they ask of the snapshot
    policy   the policy inside them
    apply    steps of the plan; most plans have none
    advance  15 s of flow, in compiled code, and the arrivals
    loop     the rest of the controller's turn
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from speed import many_days

from tidegate.lab.backtest import stack_for
from tidegate.loop.controller import Controller
from tidegate.loop.stack import ALL, StackOptions
from tidegate.policies import available
from tidegate.policies.wrapper import innermost
from tidegate.simulation.scenario import Scenario

PARTS = ("observe", "guards", "policy", "apply", "advance", "loop")
Times = defaultdict[str, list[float]]


def timed(times: Times, part: str, do: Callable[..., Any]) -> Callable[..., Any]:
    """A function that notes how long it takes."""

    def call(*given: Any) -> Any:
        start = time.perf_counter()
        done = do(*given)
        times[part].append(time.perf_counter() - start)
        return done

    return call


def parts_us(name: str, scenario: Scenario, options: StackOptions) -> list[float]:
    """The median time of each part of a turn, in microseconds."""
    times: Times = defaultdict(list)
    _, policy = stack_for(name, scenario, options)
    world: Any = scenario.world(policy.style, 0, True)
    advance = timed(times, "advance", world.advance)
    world.observe = timed(times, "observe", world.observe)
    world.apply = timed(times, "apply", world.apply)
    object.__setattr__(inner := innermost(policy), "decide", timed(times, "policy", inner.decide))
    controller: Any = Controller(world, policy)
    controller._decide = timed(times, "decide", controller._decide)
    step = timed(times, "step", controller.step)
    while world.time_s < scenario.duration_s:
        turn = step()
        assert turn.error is None, turn.error
        advance(scenario.interval_s)
    found = {part: statistics.median(taken) * 1e6 for part, taken in times.items()}
    found["guards"] = found["decide"] - found["policy"]
    found["loop"] = found["step"] - found["observe"] - found["decide"] - found["apply"]
    return [found[part] for part in PARTS]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--policies", default=",".join(available()), help="separated by commas")
    reader.add_argument("--bare", action="store_true", help="without guards and `trend`")
    reader.add_argument("--rounds", type=int, default=5)
    given = reader.parse_args()
    scenario = many_days(1 / 24)
    options = StackOptions(without=[ALL]) if given.bare else StackOptions()
    print(f"| policy | {' | '.join(PARTS)} | sum |\n|---|{'---:|' * (len(PARTS) + 1)}")
    for name in given.policies.split(","):
        rounds = [parts_us(name, scenario, options) for _ in range(given.rounds)]
        least = [min(part) for part in zip(*rounds, strict=True)]
        shown = " | ".join(f"{part:.0f}" for part in least)
        print(f"| `{name}` | {shown} | {sum(least):.0f} |", flush=True)


if __name__ == "__main__":
    main()
