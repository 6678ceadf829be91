"""BTU-based provisioning, the technique of the VISP paper."""

from tidegate.policies.btu.policy import QUIRKS, Btu, BtuMemory

__all__ = ["QUIRKS", "Btu", "BtuMemory"]
