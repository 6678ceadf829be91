"""In how many turns of a backtest nothing changes, so that a world could skip them.

    python benchmarks/standing_turns.py                    # all policies, a minute
    python benchmarks/standing_turns.py --policies drs --hours 1

A turn can be skipped with the same result to the last bit only if its snapshot and the memory of
the stack are those of the turn before. The trace has a new rate every five minutes, with a turn
every 15 s in the fluid world, so that little changes. The columns are shares of all turns:

    holds     the plan changes nothing
    rates     every arrival rate is that of the turn before, to nine digits
    readings  all readings of the operators are those of the turn before
    memory    the memory of the policy and its guards is that of the turn before
"""

from __future__ import annotations

import argparse
from collections import Counter

from speed import many_days

from tidegate.lab.backtest import stack_for
from tidegate.loop.controller import Controller
from tidegate.loop.stack import ALL, StackOptions
from tidegate.model import Snapshot
from tidegate.policies import available
from tidegate.simulation.scenario import Scenario

COLUMNS = ("holds", "rates", "readings", "memory")


def rates_of(snapshot: Snapshot) -> list[float]:
    return [round(reading.arrival_rate_per_s or 0.0, 9) for reading in snapshot.operators]


def standing(name: str, scenario: Scenario, options: StackOptions) -> Counter[str]:
    """Number of turns by what stands in them, and of all turns."""
    _, policy = stack_for(name, scenario, options)
    world = scenario.world(policy.style, 0, True)
    controller, found = Controller(world, policy), Counter[str]()
    before: Snapshot | None = None
    while world.time_s < scenario.duration_s:
        memory = controller.memory
        turn = controller.step()
        now = turn.snapshot
        assert now is not None and turn.outcome is not None, turn.error
        found["turns"] += 1
        found["holds"] += not turn.outcome.steps
        found["memory"] += controller.memory == memory
        if before is not None:
            found["rates"] += rates_of(now) == rates_of(before)
            found["readings"] += now.operators == before.operators
        before = now
        world.advance(scenario.interval_s)
    return found


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    reader.add_argument("--policies", default=",".join(available()), help="separated by commas")
    reader.add_argument("--hours", type=float, default=6.0, help="hours of the trace")
    given = reader.parse_args()
    scenario = many_days(given.hours / 24)
    for title, options in (
        ("default guards", StackOptions()),
        ("no guards", StackOptions(without=[ALL])),
    ):
        print(f"\n| {title} | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
        for name in given.policies.split(","):
            found = standing(name, scenario, options)
            shares = (f"{found[column] / found['turns']:.1%}" for column in COLUMNS)
            print(f"| `{name}` | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
