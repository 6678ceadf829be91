"""Files that were valid once: bits flipped, parts lost, repeated, replaced by absurd ones."""

from __future__ import annotations

import re

from hypothesis import strategies as st

ODD = (
    b"", b"\x00", b"\xff\xfe", b"\xc3", b"\n", b"\r", b",", b'"', b"'", b"{", b"}", b"[", b"]",
    b":", b"- ", b"&a *a", b"null", b"true", b"NaN", b"Infinity", b"-1", b"0", b"1e308", b"1e999",
    b"9" * 400, b"-" * 50, b"x" * 5000, b"[" * 300, b"\x1b[31m", "\u202e[/x]".encode(),
    b"2026-99-99",
    b"!!python/object/apply:os.system [true]", b"\t", b"# ", b"../../etc/passwd",
)  # fmt: skip
"""What is put into a file."""
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
VALUE = re.compile(rb'"[^"\\\n]*"|\[[^\[\]\n]*\]|\b(?:-?\d+(?:\.\d+)?|true|false|null)\b')
OTHERS = (
    b"5", b"-0.5", b"1e308", b"1" + b"0" * 30, b"null", b"true", b'""', b'"x"', b"[]", b"[5]",
    b'["x", null]', b"{}", b'{"x": 1}', b"[[[]]]", b"9" * 5000, b'"h-' + b"9" * 5000 + b'"',
    '"h-²"'.encode(),
)  # fmt: skip
"""Values of other kinds: the file stays well-formed, and says what nobody means."""
KINDS = ("flip", "cut", "tear", "twice", "insert", "number", "value", "value", "bytes")


@st.composite
def damaged(draw: st.DrawFn, valid: bytes, most: int = 4) -> bytes:
    """A file after a few accidents. valid: the file before them."""
    data = valid
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        to = min(len(data), at + draw(st.sampled_from((1, 2, 8, 64, 100_000))))
        kind = draw(st.sampled_from(KINDS))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[to:]
        elif kind == "tear":
            data = data[:at]
        elif kind == "twice":
            data = data[:to] + data[at:]
        elif kind == "insert":
            data = data[:at] + draw(st.sampled_from(ODD)) + data[at:]
        elif kind == "number" and (found := list(NUMBER.finditer(data))):
            one = draw(st.sampled_from(found))
            data = data[: one.start()] + draw(st.sampled_from(ODD)) + data[one.end() :]
        elif kind == "value" and (found := list(VALUE.finditer(data))):
            one = draw(st.sampled_from(found))
            data = data[: one.start()] + draw(st.sampled_from(OTHERS)) + data[one.end() :]
        elif kind == "bytes":
            data = data[:at] + draw(st.binary(max_size=20)) + data[to:]
    return data
