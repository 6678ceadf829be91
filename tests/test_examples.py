"""Every example is run as a user would, and its output compared with the file beside the tests.

To accept a new output: ``python -m tests.test_examples``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_outputs import EXAMPLES, golden, run


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_printed_before(example: Path) -> None:
    assert run(example) == golden(example).read_text()


if __name__ == "__main__":
    for each in EXAMPLES:
        golden(each).write_text(run(each))
