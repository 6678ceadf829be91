"""The papers' experiments, one folder a paper: ``tidegate reproduce fugu|cervino|visp|drs|all``.

Each module has one function, ``run(quick, seeds, progress) -> Experiment``, with more arguments for
its size: how many measurement points, minutes or items a run has.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tidegate.lab.papers.claims import PAPERS, Experiment

__all__ = ["PAPERS", "run_paper", "usual_seeds"]

Progress = Callable[[float, str], None]
"""Called with the share done, 0 to 1, and what is being done."""


def usual_seeds(paper: str, quick: bool) -> int:
    """Runs of each experiment when nobody says how many; quick ones of FUGU are long.

    >>> [usual_seeds(paper, quick=True) for paper in PAPERS]
    [1, 3, 3, 3]
    """
    return (1 if paper == "fugu" else 3) if quick else 5


def run_paper(paper: str, quick: bool, seeds: int, progress: Progress, **more: Any) -> Experiment:
    """Run one paper's experiments.

    quick: minutes at most; seeds: how many runs of each; more: of the paper's own ``run``.
    """
    module = import_module(f"tidegate.lab.papers.{paper}.experiment")
    experiment: Experiment = module.run(quick, seeds, progress, **more)
    return experiment
