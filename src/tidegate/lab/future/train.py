"""Train the policy in `trained.py`: ``python -m tidegate.lab.future.train FOLDER``.

The cross-entropy method: candidates are drawn around a mean, each runs through pieces of open
traces in the Gymnasium environment, and the best ones become the next mean. The cost of a piece is
hosts and late items over the bound in hindsight, and a candidate is judged by the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError
from tidegate.lab.backtest import bound_of
from tidegate.lab.environment import TideEnv
from tidegate.lab.future.trained import BEFORE, STORED, Features, Trained
from tidegate.lab.scenario_options import ScenarioOptions
from tidegate.outputs import check_output, write_output
from tidegate.workloads import RateTrace, Workload, read_trace

__all__ = ["Piece", "cost_of", "train"]

TRACES = (
    "xetra/xetra_2017-07-12", "eurex/eurex_2017-07-28", "us_ticks/us_ticks_2013-10-07_1s",
    "twitter/twitter_stream_2021-08_day01_1s",
)  # fmt: skip
"""Training traces, all of those on which `make bench-policies` allows settings to be chosen."""
PIECE_S = 3600.0
ROUNDS, CANDIDATES, ELITE = 6, 12, 4
SPREAD = 0.5
"""Standard deviation of the first candidates."""
MAX_STEP, MAX_HOSTS = 20, 60


@dataclass(frozen=True)
class Piece:
    """A part of a trace: an environment, and the bound of its cost in dollars."""

    name: str
    env: TideEnv
    bound_usd: float

    @classmethod
    def of(cls, name: str, workload: Workload) -> Piece:
        """The piece of a workload, in the world of `tidegate backtest` and in its fluid form."""
        scenario = ScenarioOptions(slo_s=2.0).build(workload)
        env = TideEnv(scenario, fluid=True, max_step=MAX_STEP, max_hosts=MAX_HOSTS)
        return cls(name, env, bound_of(scenario, fluid=True).cost_usd)


def cost_of(policy: Trained, piece: Piece) -> float:
    """Cost over the bound of an episode."""
    seen, _ = piece.env.reset(seed=0)
    features, over, cost_usd = Features(), False, 0.0
    while not over:
        hosts = int(seen[0] + seen[1])
        if seen[3] >= 0 and seen[4] >= 0:
            load, backlog_s = float(seen[3]), float(seen[4])
            features = features.after(load)
            hosts = policy.hosts(load, backlog_s, features)
        step = max(-MAX_STEP, min(MAX_STEP, hosts - int(seen[0] + seen[1])))
        seen, _, _, over, info = piece.env.step(np.int64(step + MAX_STEP))
        cost_usd = float(info["cost_usd"])
    return cost_usd / piece.bound_usd


def train(
    pieces: Sequence[Piece],
    seed: int = 1,
    rounds: int = ROUNDS,
    candidates: int = CANDIDATES,
    say: Callable[[str], None] = lambda _: None,
) -> Trained:
    """The policy with the lowest geometric mean of cost over the bound.

    pieces: what it is trained on; seed: random seed; rounds, candidates: of the search; say: gets
    a line for each round.
    """
    random = np.random.default_rng(seed)
    names = [parameter.name for parameter in BEFORE.parameters()]
    middle = np.array(BEFORE.weights)
    spread = np.full(len(middle), SPREAD)
    best, lowest = BEFORE, math.inf
    for number in range(rounds + 1):
        drawn = middle + spread * random.standard_normal((candidates, len(middle)))
        drawn[0] = middle
        if number == 0:
            drawn = drawn[:1]  # what it costs before training
        found = [replace(BEFORE, **dict(zip(names, map(float, w), strict=True))) for w in drawn]
        costs = np.array([_mean_cost(policy, pieces) for policy in found])
        order = np.argsort(costs)
        if costs[order[0]] < lowest:
            best, lowest = found[int(order[0])], float(costs[order[0]])
        if number > 0:
            elite: NDArray[np.float64] = drawn[order[:ELITE]]
            middle, spread = elite.mean(axis=0), 0.8 * elite.std(axis=0) + 0.04
        say(f"round {number}: best {lowest:.3f}, of this round {costs.min():.3f}")
    return best


def _mean_cost(policy: Trained, pieces: Sequence[Piece]) -> float:
    return float(np.exp(np.mean([math.log(cost_of(policy, piece)) for piece in pieces])))


def read_pieces(folder: Path) -> list[Piece]:
    """An hour from the middle of each training trace."""
    pieces = []
    for name in TRACES:
        files = sorted(folder.glob(f"{name}_rate.csv*"))
        if not files:
            raise InputError("FOLDER", str(folder), f"a folder with {name}_rate.csv")
        trace = read_trace(files[0])
        assert isinstance(trace, RateTrace)
        begin_s = max(0.0, (trace.duration_s - PIECE_S) / 2)
        kept = (trace.t_s >= begin_s) & (trace.t_s < begin_s + PIECE_S)
        times = trace.t_s[kept] - trace.t_s[kept][0]
        end_s = float(times[-1] + (times[-1] - times[-2]))
        piece = RateTrace(times, trace.rate_per_s[kept], end_s=end_s)
        pieces.append(Piece.of(Path(name).name, piece))
    return pieces


def main() -> None:
    """Train on the traces of a folder and store the result."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("folder", type=Path, help="traces, <family>/*_rate.csv")
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--out", type=Path, default=STORED)
    given = reader.parse_args()
    check_output(given.out, "--out", inputs=given.folder.glob("*/*_rate.csv*"))
    pieces = read_pieces(given.folder)
    policy = train(pieces, given.seed, say=lambda text: print(text, flush=True))
    weights = {p.name: round(float(getattr(policy, p.name)), 4) for p in policy.parameters()}
    how = (
        f"an hour from the middle of each, cross-entropy search with {ROUNDS} rounds of "
        f"{CANDIDATES} candidates, seed {given.seed}"
    )
    stored = {"weights": weights, "traces": [piece.name for piece in pieces], "how": how}
    write_output(given.out, json.dumps(stored, indent=2) + "\n", "--out")


if __name__ == "__main__":
    main()
