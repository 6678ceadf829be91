"""``python -m tidegate``: the command line."""

from __future__ import annotations

from tidegate.cli import main

if __name__ == "__main__":
    main()
