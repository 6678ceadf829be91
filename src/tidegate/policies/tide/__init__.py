"""Tide: a latency and a share, kept for the least money."""

from tidegate.policies.tide.policy import Tide, TideMemory

__all__ = ["Tide", "TideMemory"]
