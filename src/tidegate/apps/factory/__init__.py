"""The factory of the VISP paper: nine operators between three sensors and a supervisor."""

from tidegate.apps.factory.app import application

__all__ = ["application"]
