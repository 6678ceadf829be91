"""Calls to the API server with the standard library: JSON over TLS with a bearer token."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["Api", "ApiError", "collection"]

TIMEOUT_S = 20.0


class ApiError(Exception):
    """An answer of the API server that is no success. status: HTTP's, 0 when there was none."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """The API server as one user sees it.

    url: such as ``https://127.0.0.1:6443``; ca: file with its certificate; token: of the user.
    """

    def __init__(self, url: str, ca: Path, token: str) -> None:
        self.url, self.ca, self.token = url, ca, token
        context = ssl.create_default_context(cafile=str(ca))
        # Not the proxies of the environment: the API server is on this machine.
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        ).open

    def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return self._call("GET", path, None, query)

    def create(self, path: str, body: Any, **query: str) -> Any:
        """Create an object in a collection, or call a subresource."""
        return self._call("POST", path, body, query)

    def update(self, path: str, body: Any, **query: str) -> Any:
        """Replace an object."""
        return self._call("PUT", path, body, query)

    def patch(self, path: str, body: Any, **query: str) -> Any:
        """Change fields of an object by a merge patch."""
        return self._call("PATCH", path, body, query)

    def delete(self, path: str, body: Any = None, **query: str) -> Any:
        """Delete an object or a collection."""
        return self._call("DELETE", path, body, query)

    def ready(self) -> bool:
        """Whether it answers and has done its start-up."""
        try:
            with self._open(self._request("GET", "/readyz", None, {}), timeout=TIMEOUT_S) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _request(
        self, verb: str, path: str, body: Any, query: dict[str, str]
    ) -> urllib.request.Request:
        tail = f"?{urllib.parse.urlencode(query)}" if query else ""
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        return urllib.request.Request(
            self.url + path + tail,
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {self.token}",
                "Content-Type": kind,
                "Accept": "application/json",
            },
            method=verb,
        )

    def _call(self, verb: str, path: str, body: Any, query: dict[str, str]) -> Any:
        try:
            with self._open(self._request(verb, path, body, query), timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                message = text.strip() or str(error)
            raise ApiError(error.code, message) from None
        except (OSError, urllib.error.URLError) as error:
            raise ApiError(0, f"{verb} {path}: {error}") from None


_PLURALS = {"networkpolicy": "networkpolicies"}
_WITHOUT_NAMESPACE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


def collection(thing: dict[str, Any], namespace: str) -> str:
    """The path of the collection that an object belongs to.

    thing: with ``apiVersion`` and ``kind``; namespace: of objects that name none.

    >>> collection({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "jobs")
    '/api/v1/namespaces/jobs/pods'
    """
    version, kind = thing["apiVersion"], thing["kind"]
    name = kind.lower()
    plural = _PLURALS.get(name, f"{name}s")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind in _WITHOUT_NAMESPACE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{thing['metadata'].get('namespace', namespace)}/{plural}"
