"""Streaming applications that Tidegate runs, profiles and checks, most of them from the papers.

An application is a module or package with a function `application()` that returns an `Application`.
To add one, write the module and list it in `APPLICATIONS`.
"""

__all__ = ["APPLICATIONS"]

APPLICATIONS = {
    "ticks": "tidegate.apps.ticks",
    "max-price": "tidegate.apps.max_price",
    "factory": "tidegate.apps.factory.app",
    "logos": "tidegate.apps.logos.app",
    "patterns": "tidegate.apps.patterns.app",
    "exchange-day": "tidegate.apps.exchange_day",
    "four-queries": "tidegate.apps.four_queries",
}
"""The module of each application, by the application's name."""
