"""Definitions of the two kinds in deploy/kubernetes that are not of Kubernetes itself.

They are written here, with the fields that our files use, after the documentation of the two
operators. They are not the definitions that the operators install.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DEFINITIONS"]

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def thing(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def definition(group: str, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Kubernetes protects groups that end in k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": thing(("spec",), spec=spec)},
                }
            ],
        },
    }


SECRET_KEY = thing(("key",), name=TEXT, key=TEXT)
MONITOR = thing(
    ("selector", "endpoints"),
    selector=thing(matchLabels=TEXTS),
    endpoints=many(
        thing(
            port=TEXT,
            interval=TEXT,
            scheme=TEXT,
            authorization=thing(type=TEXT, credentials=SECRET_KEY),
        )
    ),
)
MOUNTS = many(thing(("name", "mountPath"), name=TEXT, mountPath=TEXT, readOnly={"type": "boolean"}))
QUANTITIES = {
    "type": "object",
    "additionalProperties": {"x-kubernetes-int-or-string": True},
}
CONTAINER = thing(
    ("name",),
    name=TEXT,
    image=TEXT,
    restartPolicy=TEXT,
    command=many(TEXT),
    args=many(TEXT),
    ports=many(thing(("containerPort",), name=TEXT, containerPort=NUMBER)),
    resources=thing(requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=MOUNTS,
)
VOLUME = thing(
    ("name",),
    name=TEXT,
    secret=thing(secretName=TEXT, defaultMode=NUMBER),
    emptyDir=thing(sizeLimit={"x-kubernetes-int-or-string": True}),
)
APPLICATION = thing(
    ("driver", "executor", "sparkVersion", "type"),
    type={"type": "string", "enum": ["Java", "Python", "Scala", "R"]},
    pythonVersion={"type": "string", "enum": ["2", "3"]},
    mode={"type": "string", "enum": ["cluster", "client"]},
    sparkVersion=TEXT,
    image=TEXT,
    mainApplicationFile=TEXT,
    restartPolicy=thing(
        type={"type": "string", "enum": ["Never", "Always", "OnFailure"]},
        onFailureRetryInterval=NUMBER,
        onSubmissionFailureRetryInterval=NUMBER,
    ),
    sparkConf=TEXTS,
    volumes=many(VOLUME),
    driver=thing(
        cores=NUMBER,
        memory=TEXT,
        serviceAccount=TEXT,
        labels=TEXTS,
        volumeMounts=MOUNTS,
        initContainers=many(CONTAINER),
    ),
    executor=thing(instances=NUMBER, cores=NUMBER, memory=TEXT),
)

DEFINITIONS = (
    definition("monitoring.coreos.com", "v1", "ServiceMonitor", MONITOR),
    definition("sparkoperator.k8s.io", "v1beta2", "SparkApplication", APPLICATION),
)
