"""What a Kubernetes API server allows the driver, asked with access reviews.

The server is asked as the driver would ask it: with the token of the pod's service account, or with
the token that Spark's settings or the command line name. Nothing is created: an access review is a
question.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import BackendError
from tidegate.spark.doctor.web import ask
from tidegate.spark.scalability.cluster_checks import NEEDED_RIGHTS, USEFUL_RIGHTS
from tidegate.spark.scalability.facts import PodRights

__all__ = ["SETTINGS", "KubernetesAccess", "pod_rights"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the token of a pod's service account."""
REVIEWS = "apis/authorization.k8s.io/v1"
_PREFIXES = ("spark.kubernetes.authenticate", "spark.kubernetes.authenticate.driver")
SETTINGS = (
    *(f"{p}.{key}" for p in _PREFIXES for key in ("oauthToken", "oauthTokenFile", "caCertFile")),
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.trust.certificates",
)
"""Settings of Spark that say how to talk to the API server."""


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """How to ask an API server. Empty: as Spark's settings or the pod's service account say.

    token_file: file with a token. ca_file: certificate of the authority of the server. namespace:
    where executors run.
    """

    token_file: str = ""
    ca_file: str = ""
    namespace: str = ""


def pod_rights(settings: Mapping[str, str], access: KubernetesAccess) -> PodRights:
    """What the driver may do with pods; BackendError with the reason when nobody answers.

    settings: settings of Spark, with the address of the server in ``spark.master``. In cluster mode
    the driver has a service account of another name than the person who submits the job, and the
    server is asked about that account.
    """
    server = _server(settings["spark.master"])
    namespace = access.namespace or settings.get("spark.kubernetes.namespace") or "default"
    token, ca_file = _credentials(settings, access)
    trust = _trust(settings, ca_file) if server.startswith("https:") else None
    in_cluster_mode = settings.get("spark.submit.deployMode") == "cluster"
    in_pod = (ACCOUNT / "token").is_file()
    account = settings.get("spark.kubernetes.authenticate.driver.serviceAccountName", "default")
    about = f"system:serviceaccount:{namespace}:{account}"
    asks_for_other = in_cluster_mode and not in_pod
    denied: dict[str, str] = {}
    for right in (*NEEDED_RIGHTS, *USEFUL_RIGHTS):
        verb, resource = right.split()
        attributes = {"namespace": namespace, "verb": verb, "resource": resource}
        spec: dict[str, Any] = {"resourceAttributes": attributes}
        kind, path = "SelfSubjectAccessReview", "selfsubjectaccessreviews"
        if asks_for_other:
            kind, path = "SubjectAccessReview", "subjectaccessreviews"
            spec |= {"user": about, "groups": _groups(namespace)}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = ask(f"{server}/{REVIEWS}/{path}", review, token, trust)
        try:
            status = answer["status"]
            if not status.get("allowed", False):
                denied[right] = str(status.get("reason") or "")
        except (KeyError, TypeError, AttributeError):
            raise BackendError(f"{server} does not answer an access review") from None
    return PodRights(about if asks_for_other else "this account", namespace, denied)


def _groups(namespace: str) -> list[str]:
    """The groups that Kubernetes gives to every service account."""
    everyone = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return [*everyone, "system:authenticated"]


def _server(master: str) -> str:
    """The address of the API server in ``k8s://https://host:port``."""
    address = master.removeprefix("k8s://")
    return (address if "://" in address else f"https://{address}").rstrip("/")


def _credentials(settings: Mapping[str, str], access: KubernetesAccess) -> tuple[str, str]:
    """A token and the file of a certificate; empty where there is none."""
    token = ca_file = ""
    for prefix in _PREFIXES:
        token = settings.get(f"{prefix}.oauthToken", token)
        if file := settings.get(f"{prefix}.oauthTokenFile"):
            token = _read(file)
        ca_file = settings.get(f"{prefix}.caCertFile", ca_file)
    if not token and (ACCOUNT / "token").is_file():
        token = _read(str(ACCOUNT / "token"))
    if not ca_file and (ACCOUNT / "ca.crt").is_file():
        ca_file = str(ACCOUNT / "ca.crt")
    if access.token_file:
        token = _read(access.token_file)
    if not token:
        raise BackendError(
            "there is no token for the API server: run the command in the driver's pod, or give "
            "--kubernetes-token-file"
        )
    return token, access.ca_file or ca_file


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise BackendError(f"the token in {file} cannot be read: {error}") from None


def _trust(settings: Mapping[str, str], ca_file: str) -> ssl.SSLContext:
    try:
        trust = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise BackendError(f"the certificate in {ca_file} cannot be read: {error}") from None
    if settings.get("spark.kubernetes.trust.certificates", "").lower() == "true":
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE  # as Spark does
    return trust
