"""Real Kubernetes for tests: etcd, the API server, and pods that run as processes of this machine.

`python -m tests.clusters.kubernetes` starts it for a person; `make test-kubernetes` runs the tests.
"""
