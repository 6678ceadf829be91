"""Spark contexts with the agent, one after the other, in one JVM; run by test_agent_setup.py.

Each line of the input is a JSON object with settings. A context is created with them and runs a
job. Then a line with the job's result is printed, and the next line of the input ends the context.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark import SparkConf, SparkContext


def main() -> None:
    # Settings with which a JVM is started are those of all its contexts.
    jvm: Any = SparkContext
    jvm._ensure_initialized()
    for line in iter(sys.stdin.readline, ""):
        # Without the settings of the first context, which are properties of the JVM.
        conf = SparkConf(loadDefaults=False).setMaster("local[1]").setAppName("agent")
        conf.setAll(json.loads(line).items())
        context: Any = SparkContext(conf=conf)
        numbers = context._jvm.java.util.ArrayList([1, 2, 3])
        print(f"counted {context._jsc.parallelize(numbers).count()}", flush=True)
        sys.stdin.readline()
        context.stop()
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
