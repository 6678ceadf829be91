"""The script that ``tidegate submit`` hands to spark-submit in place of the application."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Python has put this file's folder first; its modules are not top-level modules.
    del sys.path[0]
    from tidegate.spark.autoscaler.submitted import run

    sys.exit(run(sys.argv[1:]))
