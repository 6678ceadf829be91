#!/usr/bin/env bash
# Spark runs this in an executor's pod before Kubernetes stops the pod: the executor finishes its
# tasks and leaves. Process 1 passes the signal on to Java.
kill -s PWR 1
timeout "${1:-60}" tail --pid=1 -f /dev/null
