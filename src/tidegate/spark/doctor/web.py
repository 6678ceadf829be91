"""JSON over HTTP, with errors of one sentence."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from tidegate.errors import BackendError

__all__ = ["Unreachable", "ask"]

LIMIT_S = 10.0


class Unreachable(BackendError):  # noqa: N818 - reads as what it is
    """Nobody answers at an address."""


def ask(
    url: str,
    body: Mapping[str, Any] | None = None,
    token: str | None = None,
    trust: ssl.SSLContext | None = None,
) -> Any:
    """The JSON that an address answers with; BackendError with the reason otherwise.

    url: the address. body: sent as JSON with POST; None for GET. token: bearer token. trust: how
    the server's certificate is checked; default: as the system does.
    """
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    place = url.partition("?")[0]
    # Drivers and clusters are near; the proxies of the environment lead elsewhere.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    try:
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=LIMIT_S) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise BackendError(f"{place} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"{place} cannot be reached: {error.reason}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BackendError(f"{place} does not answer with JSON: {error}") from error
