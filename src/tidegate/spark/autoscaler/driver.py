"""The script that ``tidegate submit`` hands to spark-submit in place of the application."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Python has put this file's folder first, whose modules are nobody's top-level ones.
    del sys.path[0]
    from tidegate.spark.autoscaler.attach import run

    sys.exit(run(sys.argv[1:]))
