"""DRS: a queueing network says how many processors each operator needs."""

from tidegate.policies.drs.policy import Drs

__all__ = ["Drs"]
