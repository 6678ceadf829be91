"""The files of deploy/kubernetes: how they refer to each other, and what a real API server says.

The first part is cheap and in `make test`. The second one needs the API server. Two of the kinds
are not of Kubernetes itself. Their definitions here are our own and have only the fields that the
files use, so they show that names, types and nesting are as we think they are, and not that an
operator takes them.
"""

from __future__ import annotations

import copy
import re
import shlex
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters.kubernetes.api import ApiError, collection
from tests.clusters.kubernetes.cluster import DEPLOY, NAMESPACE, KubernetesCluster, documents
from tests.clusters.kubernetes.definitions import DEFINITIONS

FILES = sorted(DEPLOY.glob("*.yaml"))
SECRET: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "tidegate"},
    "stringData": {"agent": "0123456789abcdef", "metrics": "0123456789abcdef"},
}


def everything() -> list[dict[str, Any]]:
    return [thing for file in FILES for thing in documents(file)]


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {t["metadata"].get("name", ""): t for t in everything() if t["kind"] == kind}


def pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each driver pod by its file, with its labels: the pod, the template, the operator's."""
    for file in FILES:
        for thing in documents(file):
            if thing["kind"] == "Pod":
                yield file.name, thing["metadata"]["labels"], thing["spec"]
            elif thing["kind"] == "SparkApplication":
                spec, driver = thing["spec"], thing["spec"]["driver"]
                # The operator calls its container spark-kubernetes-driver and gives it a role.
                main = {"name": "driver", "image": spec["image"], **driver}
                whole = {
                    "volumes": spec["volumes"],
                    "containers": [main],
                    "initContainers": driver["initContainers"],
                    "serviceAccountName": driver["serviceAccount"],
                }
                yield file.name, driver["labels"], whole


# --- in make test -----------------------------------------------------------------------------


def test_every_file_has_objects_with_names() -> None:
    assert len(FILES) == 5
    kinds = sorted(thing["kind"] for thing in everything())
    assert kinds == [
        *("Pod", "Pod", "Role", "RoleBinding", "Service"),
        *("ServiceAccount", "ServiceMonitor", "SparkApplication"),
    ]


def test_the_binding_gives_the_role_to_the_account_of_the_pods() -> None:
    (binding,) = named("RoleBinding").values()
    assert binding["roleRef"]["name"] in named("Role")
    (subject,) = binding["subjects"]
    assert subject["name"] in named("ServiceAccount")
    for file, _, spec in pods():
        if file != "driver-template.yaml":  # there spark-submit names it
            assert spec["serviceAccountName"] == subject["name"], file


def test_no_rule_has_a_wildcard_or_reads_secrets() -> None:
    for role in named("Role").values():
        for rule in role["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert set(rule["resources"]) <= {"pods", "configmaps"}


def test_mounts_are_of_volumes_that_exist_and_only_of_the_secret_that_is_described() -> None:
    for file, _, spec in pods():
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for container in (*spec["containers"], *spec["initContainers"]):
            for mount in container.get("volumeMounts", ()):
                assert mount["name"] in volumes, file
        secrets = {v["secret"]["secretName"] for v in volumes.values() if "secret" in v}
        assert secrets == {SECRET["metadata"]["name"]}, file
        assert f"create secret generic {SECRET['metadata']['name']}" in (
            DEPLOY / "driver.yaml"
        ).read_text(encoding="utf-8")


def words_of(file: str, spec: dict[str, Any]) -> str:
    """All settings of the driver of a file, as text."""
    text = (DEPLOY / file).read_text(encoding="utf-8")
    return text if file != "driver-template.yaml" else text + "spark.tidegate.agent.port=8271"


def test_the_controller_talks_to_the_port_of_the_agent_with_its_token() -> None:
    for file, _, spec in pods():
        (sidecar,) = spec["initContainers"]
        assert sidecar["restartPolicy"] == "Always", "it is a sidecar and not a first step"
        port = re.search(r"agent\.port[=:] ?\"?(\d+)", words_of(file, spec))
        assert port is not None, file
        assert sidecar["command"] == ["tidegate", "attach", f"http://127.0.0.1:{port[1]}"], file
        assert "--token-file=/etc/tidegate/agent" in sidecar["args"], file


def test_metrics_are_found_by_their_service_and_monitor() -> None:
    (service,) = named("Service").values()
    (monitor,) = named("ServiceMonitor").values()
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == SECRET["metadata"]["name"]
    assert credentials["key"] in SECRET["stringData"]
    for file, labels, spec in pods():
        given = labels | {"spark-role": "driver"}  # Spark and the operator set this one
        assert service["spec"]["selector"].items() <= given.items(), file
        (sidecar,) = spec["initContainers"]
        assert sidecar["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}]
        assert f"--metrics-address=0.0.0.0:{port['port']}" in sidecar["args"], file
        assert f"--metrics-token-file=/etc/tidegate/{credentials['key']}" in sidecar["args"], file


def test_the_driver_has_the_settings_without_which_nothing_scales_or_the_job_may_end() -> None:
    wanted = {
        "spark.dynamicAllocation.enabled": "false",
        "spark.decommission.enabled": "true",
        "spark.executor.maxNumFailures": "2147483647",
        "spark.plugins": "io.tidegate.spark.TidegatePlugin",
    }
    (pod,) = (spec for file, _, spec in pods() if file == "driver.yaml")
    given = [word.removeprefix("--conf=") for word in pod["containers"][0]["args"]]
    settings = dict(word.split("=", 1) for word in given if word.startswith("spark."))
    assert wanted.items() <= settings.items()
    (application,) = named("SparkApplication").values()
    assert wanted.items() <= application["spec"]["sparkConf"].items()


def test_the_programs_of_the_image_can_be_run_and_are_those_that_are_copied() -> None:
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for name in ("entrypoint.sh", "decom.sh"):
        assert (DEPLOY / name).stat().st_mode & stat.S_IXUSR
        assert f"deploy/kubernetes/{name}" in image
    user = re.search(r"^USER (\d+)$", image, re.MULTILINE)
    (pod,) = (spec for file, _, spec in pods() if file == "driver.yaml")
    assert user is not None and pod["securityContext"]["runAsUser"] == int(user[1])
    entry = re.search(r"^ENTRYPOINT (.+)$", image, re.MULTILINE)
    assert entry is not None and "/opt/entrypoint.sh" in shlex.split(entry[1].strip("[]"))


def test_a_driver_that_is_not_the_first_is_found_too() -> None:
    """The two pods and the application give the controller the same arguments."""
    arguments = [spec["initContainers"][0]["args"] for _, _, spec in pods()]
    assert len(arguments) == 3 and all(given == arguments[0] for given in arguments)


# --- on the API server ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_definitions(cluster: KubernetesCluster) -> KubernetesCluster:
    for definition in DEFINITIONS:
        cluster.apply(copy.deepcopy(definition))
    cluster.await_kinds(*(definition["spec"]["names"]["plural"] for definition in DEFINITIONS))
    cluster.apply(copy.deepcopy(SECRET))
    return cluster


def tried(cluster: KubernetesCluster, thing: dict[str, Any]) -> dict[str, Any]:
    """What the API server would store; fields that it does not know are an error."""
    path = collection(thing, NAMESPACE)
    made = cluster.admin.create(path, thing, dryRun="All", fieldValidation="Strict")
    assert isinstance(made, dict)
    return made


@pytest.mark.kubernetes
@pytest.mark.parametrize("file", [file.name for file in FILES])
def test_the_api_server_takes_every_object(with_definitions: KubernetesCluster, file: str) -> None:
    for number, thing in enumerate(documents(DEPLOY / file)):
        thing["metadata"].setdefault("name", "from-a-template")
        if thing["kind"] != "SparkApplication":
            thing["metadata"]["name"] += f"-{number}"  # those of rbac.yaml are there already
        for container in thing["spec"].get("containers", ()) if thing["kind"] == "Pod" else ():
            container.setdefault("image", "given-by-spark-submit")
        made = tried(with_definitions, thing)
        assert made["metadata"]["uid"], f"{file} has {thing['kind']}"


@pytest.mark.kubernetes
def test_the_driver_is_allowed_where_pods_are_restricted(
    with_definitions: KubernetesCluster,
) -> None:
    """The strictest of Kubernetes' own standards for pods."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    with_definitions.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "strict", "labels": enforced},
        },
    )
    for name in ("default", "spark-driver"):
        account = {"name": name, "namespace": "strict"}
        with_definitions.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    (pod,) = documents(DEPLOY / "driver.yaml")
    pod["metadata"]["namespace"] = "strict"
    assert tried(with_definitions, pod)["metadata"]["namespace"] == "strict"
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match="violates PodSecurity"):
        tried(with_definitions, pod)


@pytest.mark.kubernetes
def test_a_mistake_in_a_file_would_be_found(with_definitions: KubernetesCluster) -> None:
    (pod,) = documents(DEPLOY / "driver.yaml")
    pod["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(ApiError, match="unknown field"):
        tried(with_definitions, pod)
    (application,) = documents(DEPLOY / "sparkapplication.yaml")
    application["spec"]["driver"]["sidecar"] = []
    with pytest.raises(ApiError, match="unknown field"):
        tried(with_definitions, application)
