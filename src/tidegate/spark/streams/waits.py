"""Operators whose time is waiting, such as an enrichment that calls a service.

A waiting task occupies a slot but no processor, so a small machine carries many of them: that is
how demos and benchmarks show several hosts on two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.units import finite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["imitate_call"]


def imitate_call(batch: DataFrame, wait_s: float) -> DataFrame:
    """The same rows, each after a wait, as if a service had been asked about it.

    wait_s: seconds per row, rounded to milliseconds. It waits in the JVM, without Python workers.
    """
    milliseconds = round(finite(wait_s, "wait_s", low=0) * 1000)
    # Spark takes a call by reflection for not deterministic, so it is neither folded into a
    # constant nor left out: a filter has to look. A void method yields the word "null".
    waited = f"java_method('java.lang.Thread', 'sleep', {milliseconds}L)"
    return batch.filter(f"coalesce({waited}, '') <> 'never'")
