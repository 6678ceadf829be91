"""What the cluster says of a job, added to the facts of the job."""

from __future__ import annotations

from dataclasses import replace

from tidegate.errors import BackendError
from tidegate.spark.doctor.kubernetes import KubernetesAccess, pod_rights
from tidegate.spark.doctor.yarn import queue_room, resource_manager
from tidegate.spark.scalability.facts import JobFacts
from tidegate.spark.scalability.settings import NotKnown

__all__ = ["with_cluster"]


def with_cluster(facts: JobFacts, access: KubernetesAccess, manager_url: str = "") -> JobFacts:
    """The facts with what Kubernetes allows the driver, or with the room in the queue of YARN.

    A cluster that does not answer is a fact that is not known, with the reason. access: how to ask
    the API server. manager_url: address of YARN's ResourceManager; empty: by ``yarn-site.xml``.
    """
    try:
        cluster = facts.cluster
    except NotKnown:
        return facts
    try:
        if cluster == "k8s" and facts.pod_rights is None:
            return replace(facts, pod_rights=pod_rights(facts.need("settings"), access))
        if cluster == "yarn":
            name = facts.setting("spark.yarn.queue") or "default"
            return replace(facts, queue=queue_room(manager_url or resource_manager(), name))
    except BackendError as error:
        missing = "pod_rights" if cluster == "k8s" else "queue"
        return replace(facts, unknown={**facts.unknown, missing: str(error)})
    return facts
