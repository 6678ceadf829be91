"""Frequent patterns in short texts, the FPD application of the DRS paper."""

from tidegate.apps.patterns.app import application

__all__ = ["application"]
