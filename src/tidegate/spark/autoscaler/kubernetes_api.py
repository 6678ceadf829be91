"""Questions to the API server of Kubernetes, through the client that the driver itself uses.

The driver has the address, the certificate and the account already. An API server that is away must
not hold up a turn, so every question has a time limit, and none is asked while another one hangs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tidegate.lifecycle import Background

__all__ = ["KubernetesApi"]

log = logging.getLogger(__name__)

ANSWER_S = 3.0
"""An answer that takes longer is not waited for, in seconds."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class KubernetesApi:
    """The API server, as the driver sees it.

    backend: returns Spark's scheduler backend, an object of the JVM. namespace: of the executors.
    application: the application's id.
    """

    def __init__(self, backend: Callable[[], Any], namespace: str, application: str) -> None:
        self._backend = backend
        self.namespace = namespace
        self._application = application
        self._asking: Background[str] | None = None

    def executor_pods(self) -> list[dict[str, Any]] | None:
        """The executor pods of the application, None when there is no answer."""
        selector = quote(f"spark-app-selector={self._application},spark-role=executor")
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}"
        answer = self._ask(lambda client: client.raw(path))
        return None if answer is None else list(answer.get("items") or ())

    def may_create_pods(self) -> bool | None:
        """Whether the driver's account may create pods, None when there is no answer."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": self.namespace,
                    "verb": "create",
                    "resource": "pods",
                }
            },
        }
        answer = self._ask(lambda client: client.raw(REVIEWS, "POST", review))
        return None if answer is None else (answer.get("status") or {}).get("allowed")

    def _ask(self, question: Callable[[Any], Any]) -> dict[str, Any] | None:
        if self._asking is not None and not self._asking.ended():
            return None
        self._asking = Background(lambda: str(question(self._client())), "tidegate-kubernetes")
        if not self._asking.ended(ANSWER_S):
            return None
        try:
            answer = json.loads(self._asking.result())
        except Exception as error:  # whatever it is, the answer is not known
            log.debug("the API server did not answer: %s", error)
            return None
        return answer if isinstance(answer, dict) else None

    def _client(self) -> Any:
        """The client of Spark's scheduler backend."""
        backend = self._backend()
        for field in backend.getClass().getDeclaredFields():
            # The compiler of Scala may put the name of the class in front of it.
            if str(field.getName()).split("$$")[-1] == "kubernetesClient":
                field.setAccessible(True)
                return field.get(backend)
        raise LookupError("this version of Spark has no client that could be asked")
