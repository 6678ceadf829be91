"""Addresses of Connect servers: checked when they are given, and never shown with their token."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from tidegate.errors import InputError

__all__ = ["Endpoint", "read_endpoint"]

OWN = ("session_id", "user_id")
REMEDY = "write it as sc://host:port/;token=…;use_ssl=true"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Connect server. address: ``sc://host:port``; parameters: ``key=value``, as Spark has them.

    ui_url: of its web page, for the CPU time of queries; None: that is not measured.
    """

    address: str
    parameters: tuple[str, ...] = field(default=(), repr=False)
    ui_url: str | None = None

    def url(self, **more: str) -> str:
        """What Spark Connect is given, with more parameters.

        >>> read_endpoint("sc://spark:15002/;token=t").url(user_id="me")
        'sc://spark:15002/;token=t;user_id=me'
        """
        words = (*self.parameters, *(f"{key}={quote(value)}" for key, value in more.items()))
        return f"{self.address}/;" + ";".join(words)


def read_endpoint(text: str) -> Endpoint:
    """An address with its parameters; InputError, without the token, for one that cannot be used.

    >>> read_endpoint("sc://spark.example:15002/;use_ssl=true;ui=http://spark.example:4040").ui_url
    'http://spark.example:4040'
    """
    address, _, rest = text.partition("/;")
    address = address.rstrip("/")
    try:
        parts = urlsplit(address)
        known = parts.scheme == "sc" and parts.hostname and not parts.path and parts.port != 0
    except ValueError:  # a port that is none
        known = False
    if not known:
        raise InputError("--endpoint", address, "the address of a Connect server", REMEDY)
    kept: list[str] = []
    ui_url = None
    for word in filter(None, rest.split(";")):
        key, _, value = word.partition("=")
        if not key or not value:
            allowed = "key=value, separated by semicolons"
            raise InputError(f"--endpoint {address}: parameter", key or "=…", allowed, REMEDY)
        if key in OWN:
            remedy = "leave it out: the fleet needs sessions of its own, to find its queries again"
            raise InputError(f"--endpoint {address}: parameter", key, "the fleet's to set", remedy)
        if key == "use_ssl" and value.lower() not in ("true", "false"):
            raise InputError(f"--endpoint {address}: use_ssl", value, "true or false")
        if key == "ui":
            ui_url = value
        else:
            kept.append(word)
    plain = "use_ssl=false" in (word.lower() for word in kept) and parts.hostname != "localhost"
    if plain and any(word.startswith("token=") for word in kept):
        remedy = "a token goes over TLS only, except to localhost: leave use_ssl=false out"
        raise InputError(f"--endpoint {address}: use_ssl", "false", "true with a token", remedy)
    return Endpoint(address, tuple(kept), ui_url)
