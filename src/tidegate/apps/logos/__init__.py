"""Logos in the frames of a video, the VLD application of the DRS paper."""

from tidegate.apps.logos.app import application

__all__ = ["application"]
