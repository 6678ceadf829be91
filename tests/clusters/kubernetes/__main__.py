"""Start Kubernetes on this machine, and print how to submit a job to it."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.clusters.kubernetes.cluster import NAMESPACE, KubernetesCluster
from tests.clusters.kubernetes.programs import fetch
from tidegate.errors import BackendError


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.clusters.kubernetes", description=__doc__
    )
    parser.add_argument("--executors", type=int, help="executor pods that fit; others stay pending")
    options = parser.parse_args()
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    try:
        fetch()
    except BackendError as problem:
        sys.exit(str(problem))
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-kubernetes-") as folder,
        KubernetesCluster(Path(folder)) as cluster,
    ):
        cluster.node.executors = options.executors
        admin = Path(folder, "admin.token")
        admin.touch(mode=0o600)
        admin.write_text(cluster.admin.token, encoding="ascii")
        confs = "".join(
            f" \\\n    --conf {key}={value}" for key, value in cluster.conf(cluster.token()).items()
        )
        print(
            f"Kubernetes runs in {folder} until Ctrl-C. Pods run as processes; their logs are in "
            f"{folder}/pods.\n\nSubmit a job:\n\n"
            f"  tidegate submit --slo 10s --max-executors 4 --master {cluster.master}{confs} "
            "\\\n    --conf spark.executor.cores=2 --conf spark.executor.memory=512m app.py\n\n"
            "Look at it:\n\n"
            f'  curl --cacert {cluster.plane.ca} -H "Authorization: Bearer $(cat {admin})" \\\n'
            f"    {cluster.plane.url}/api/v1/namespaces/{NAMESPACE}/pods\n",
            flush=True,
        )
        end.wait()


if __name__ == "__main__":
    main()
