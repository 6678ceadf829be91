"""Questions that the papers left open, each as an experiment: ``tidegate reproduce future``.

Each question has one file here, which defines ``QUESTION``: what is asked, who asked it, how it is
examined, and the function that runs the experiment and answers.
"""

from __future__ import annotations

from importlib import import_module

from tidegate.lab.future.questions import Question

__all__ = ["QUESTIONS", "load_question"]

QUESTIONS = ("reward", "moves", "control", "placement", "early", "visp", "bursts", "trained")
"""The names of all questions, in the order of the page."""


def load_question(name: str) -> Question:
    """A question by the name of its file.

    >>> load_question("reward").origin
    'FUGU (Heinze et al. 2014), section VI'
    """
    question: Question = import_module(f"{__name__}.{name}").QUESTION
    return question
