"""The experiments of published papers, repeated: ``tidegate reproduce``.

Each paper has a folder here that holds everything about it. ``claims.py`` declares the claims of
the paper, each with the function that judges it. ``experiment.py`` runs the experiments, redraws
the figures and defines ``PAPER``. Folders are discovered; no list has to be extended.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from tidegate.lab.papers.claims import Paper

__all__ = ["PAPERS", "load_paper"]

PAPERS = tuple(sorted(module.name for module in iter_modules(__path__) if module.ispkg))
"""The names of all papers."""


def load_paper(name: str) -> Paper[Any]:
    """A paper by the name of its folder.

    >>> PAPERS
    ('cervino', 'drs', 'fugu', 'visp')
    >>> load_paper("fugu").claims[0].published
    '0.822'
    """
    paper: Paper[Any] = import_module(f"{__name__}.{name}.experiment").PAPER
    return paper
