"""Reading the numbers off a display's image: by tesseract where it is installed, else by our own.

Both get the same PNG bytes and yield the same `Display`, and both are held to the display's check
number, so a wrong digit is noticed and not counted.
"""

from __future__ import annotations

import os
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from shutil import which
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidegate.apps.factory.display import (
    CELL,
    DIGITS,
    FRAME,
    LINES,
    Display,
    Pixels,
    check_number,
    template,
)
from tidegate.errors import InputError

__all__ = ["READERS", "ReaderName", "Unreadable", "choose_reader", "read"]

ReaderName = Literal["tesseract", "own"]
PNG = b"\x89PNG\r\n\x1a\n"
_LEAST_LIKENESS = 0.7
_DARK = 110


class Unreadable(ValueError):  # noqa: N818 - a finding about an image, with the reason as its text
    """An image that nobody can read; its text is the reason for which it is set aside."""


def choose_reader(wanted: str = "auto") -> ReaderName:
    """The reader that `wanted` means here: "auto" is tesseract where it is installed, else "own".

    >>> choose_reader("own")
    'own'
    """
    if wanted == "auto":
        return "tesseract" if which("tesseract") else "own"
    if wanted not in READERS:
        raise InputError("reader", wanted, f"auto, {' or '.join(READERS)}")
    if wanted == "tesseract" and which("tesseract") is None:
        remedy = "install it (for example: apt install tesseract-ocr), or take reader=own"
        raise InputError("reader", wanted, "installed here", remedy)
    return "tesseract" if wanted == "tesseract" else "own"


def read(png: bytes, reader: ReaderName = "own") -> Display:
    """What a display shows; `Unreadable` with the reason when that cannot be told.

    >>> from tidegate.apps.factory.display import draw
    >>> shown = Display(3, 1_700_000_000_000, 40_000_000, 2_000, 1_500, 70_123, 61)
    >>> read(draw(shown, np.random.default_rng(1))) == shown
    True
    """
    digits = READERS[reader](_digit_area(_decoded(png)))
    if len(digits) != len(LINES) or any(len(line) != DIGITS for line in digits):
        raise Unreadable("unreadable digits")
    *numbers, check = map(int, digits)
    if check != check_number(numbers):
        raise Unreadable("digits fail their check")
    return Display(*numbers)


def _decoded(png: bytes) -> Pixels:
    import cv2

    if not png.startswith(PNG):
        raise Unreadable("not a PNG image")
    _check_chunks(png)
    picture = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE)
    if picture is None:
        raise Unreadable("damaged image")
    return np.asarray(picture, np.uint8)


def _check_chunks(png: bytes) -> None:
    """Every chunk must be whole: OpenCV would fill in what is lost, and print about it."""
    at, kind = len(PNG), b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", png.ljust(at + 4, b"\0"), at)
        kind, end = png[at + 4 : at + 8], at + 12 + length
        checksum = png[end - 4 : end]
        if len(checksum) < 4 or zlib.crc32(png[at + 4 : end - 4]) != int.from_bytes(checksum):
            raise Unreadable("damaged image")
        at = end


def _digit_area(picture: Pixels) -> Pixels:
    """The part with the digits: the frame is found by its long dark lines."""
    height, width = len(LINES) * CELL[0], DIGITS * CELL[1]
    dark = picture < _DARK
    rows = np.flatnonzero(dark.mean(axis=1) > 0.7)
    columns = np.flatnonzero(dark.mean(axis=0) > 0.7)
    if not rows.size or not columns.size:
        raise Unreadable("no display in the image")
    top, right = rows[0] + FRAME, columns[-1] - FRAME + 1
    area = picture[top : top + height, max(0, right - width) : right]
    if area.shape != (height, width):
        raise Unreadable("no display in the image")
    return area


@cache
def _templates() -> NDArray[np.float64]:
    """The ten digits as vectors of mean 0 and length 1, one a column."""
    return _standardised(np.stack([template(str(d)).ravel() for d in range(10)])).T


def _standardised(cells: NDArray[np.uint8]) -> NDArray[np.float64]:
    centred = cells - cells.mean(axis=1, keepdims=True)
    return np.asarray(centred / (np.linalg.norm(centred, axis=1, keepdims=True) + 1e-9))


def _own(area: Pixels) -> list[str]:
    """Template matching: each cell is the digit that it correlates with most."""
    height, width = CELL
    cells = area.reshape(len(LINES), height, DIGITS, width).swapaxes(1, 2)
    likeness = _standardised(cells.reshape(-1, height * width)) @ _templates()
    if likeness.max(axis=1).min() < _LEAST_LIKENESS:
        raise Unreadable("unreadable digits")
    digits = "".join(map(str, likeness.argmax(axis=1)))
    return [digits[at : at + DIGITS] for at in range(0, len(digits), DIGITS)]


def _tesseract(area: Pixels) -> list[str]:
    """One call of the tesseract program, for a block of lines of digits."""
    import cv2

    with_margin = cv2.copyMakeBorder(area, 20, 20, 20, 20, cv2.BORDER_REPLICATE)
    done = subprocess.run(
        ["tesseract", "-", "-", "--psm", "6", "-c", "tessedit_char_whitelist=0123456789"],
        input=cv2.imencode(".png", with_margin)[1].tobytes(),
        capture_output=True,
        check=True,
        timeout=60,
        # One thread: the operator's instances share the cores already.
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    return [
        line
        for spaced in done.stdout.decode("ascii", "replace").splitlines()
        if (line := spaced.replace(" ", "").strip())
    ]


READERS: Mapping[str, Callable[[Pixels], list[str]]] = {"tesseract": _tesseract, "own": _own}
"""From the part of an image that holds digits to its lines."""
