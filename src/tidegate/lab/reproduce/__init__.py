"""The papers' experiments, one file a paper: ``tidegate reproduce fugu|cervino|visp|drs|all``.

Each module has one function, ``run(quick, seeds, progress) -> Experiment``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tidegate.lab.claims import PAPERS, Experiment

__all__ = ["PAPERS", "run_paper"]

Progress = Callable[[float, str], None]
"""Called with the share done, 0 to 1, and what is being done."""


def run_paper(paper: str, quick: bool, seeds: int, progress: Progress) -> Experiment:
    """Run one paper's experiments. quick: minutes at most; seeds: how many runs of each."""
    module = import_module(f"tidegate.lab.reproduce.{paper}")
    experiment: Experiment = module.run(quick, seeds, progress)
    return experiment
