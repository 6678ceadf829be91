"""The display of a machine as the camera S2 sees it: seven numbers and a check, as a PNG image.

A machine's display counts from the start of production, so a lost image loses nothing else. The
generator also writes the numbers into the image's text chunk, the *planted truth*: only the
reference looks there. Readers read the pixels: tesseract where it is installed, otherwise template
matching in this module. Both return a `Display` and verify its check number, so a wrong digit is
noticed and not counted.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from shutil import which
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InputError

__all__ = ["READERS", "Display", "ReaderName", "Unreadable", "choose_reader", "draw", "read"]

Pixels = NDArray[np.uint8]
ReaderName = Literal["tesseract", "own"]
PNG = b"\x89PNG\r\n\x1a\n"


class Display(NamedTuple):
    """What a display shows. Times are in milliseconds; counts begin with the production.

    clock_ms: Unix time of the machine's clock. total_ms: time since the production began, of which
    planned_ms were planned downtime and defect_ms defects. made, bad: goods produced, and how many
    of them are bad.
    """

    machine: int
    clock_ms: int
    total_ms: int
    planned_ms: int
    defect_ms: int
    made: int
    bad: int


LINES = ("MACHINE", "CLOCK", "TOTAL", "PLANNED", "DEFECT", "MADE", "BAD", "CHECK")
DIGITS = 13
CELL = (24, 16)
"""Height and width of a digit in pixels."""
FRAME = 3
"""Thickness of the dark frame around the display, in pixels."""
_LABELS = 90
_AROUND = 12
"""Pixels by which the camera position varies."""
_PAPER, _INK = 215, 35
_GRAIN, _GRAINY = 14, 0.036
"""Strength of the camera's noise, and the share of noisy pixels; an image then has 12.5 kB."""
_PLANES = 32


def check_number(numbers: Iterable[int]) -> int:
    """A checksum that detects any single wrong digit and any two swapped digits.

    >>> check_number([3, 1700000000000]), check_number([3, 1700000000001])
    (61, 87)
    """
    digits = "".join(f"{number:0{DIGITS}d}" for number in numbers)
    return sum((place + 1) * int(digit) for place, digit in enumerate(digits)) % 97


@cache
def template(digit: str) -> Pixels:
    """A digit as the display draws it, in one cell."""
    import cv2

    cell = np.full(CELL, _PAPER, np.uint8)
    cv2.putText(cell, digit, (1, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.62, _INK, 2, cv2.LINE_AA)
    return cell


@cache
def _empty() -> Pixels:
    """The frame with its labels, without digits."""
    import cv2

    height, width = CELL
    inner = np.full((len(LINES) * height, _LABELS + DIGITS * width), _PAPER, np.uint8)
    for line, label in enumerate(LINES):
        at = (4, line * height + 18)
        cv2.putText(inner, label, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, _INK, 1, cv2.LINE_AA)
    return np.pad(inner, FRAME, constant_values=0)


@cache
def _noise() -> NDArray[np.int16]:
    """Planes of camera noise; each image takes one of them, because random numbers are slow."""
    random = np.random.default_rng(1)
    frame = _empty()
    shape = (_PLANES, frame.shape[0] + _AROUND, frame.shape[1] + _AROUND)
    draws = random.random(shape)
    grain = np.where(draws < _GRAINY / 2, -_GRAIN, np.where(draws > 1 - _GRAINY / 2, _GRAIN, 0))
    return grain.astype(np.int16)


def draw(display: Display, random: np.random.Generator, *, smudged: bool = False) -> bytes:
    """A photograph of a display: noisy, and some pixels off the centre.

    smudged: the right half is covered, so that the display is unreadable.
    """
    height, width = CELL
    frame = _empty().copy()
    numbers = (*display, check_number(display))
    for line, number in enumerate(numbers):
        top = FRAME + line * height
        row = np.hstack([template(digit) for digit in f"{number:0{DIGITS}d}"])
        frame[top : top + height, -FRAME - DIGITS * width : -FRAME] = row
    if smudged:
        frame[FRAME:-FRAME, frame.shape[1] // 2 : -FRAME] = 128
    grain = _noise()[random.integers(_PLANES)]
    picture = np.full(grain.shape, _PAPER, np.int16)
    down, right = random.integers(0, _AROUND + 1, 2)
    picture[down : down + frame.shape[0], right : right + frame.shape[1]] = frame
    picture += grain
    truth = {**display._asdict(), "readable": not smudged}
    return _png(picture.clip(0, 255).astype(np.uint8), json.dumps(truth))


def _png(picture: Pixels, truth: str) -> bytes:
    """A picture as a greyscale PNG, without row filters, which is fast."""
    height, width = picture.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), picture]).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"tEXt", b"truth\0" + truth.encode("latin-1")),
        (b"IDAT", zlib.compress(rows, 2)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return PNG + b"".join(packed)


# Reading

_LEAST_LIKENESS = 0.7
_DARK = 110


class Unreadable(ValueError):  # noqa: N818 - a property of the image
    """An unreadable image; the message is the reason why it is set aside."""


def choose_reader(wanted: str = "auto") -> ReaderName:
    """The reader to use: "auto" is tesseract where it is installed, otherwise "own".

    >>> choose_reader("own")
    'own'
    """
    if wanted == "auto":
        return "tesseract" if which("tesseract") else "own"
    if wanted not in READERS:
        raise InputError("reader", wanted, f"auto, {' or '.join(READERS)}")
    if wanted == "tesseract" and which("tesseract") is None:
        remedy = "install it (for example: apt install tesseract-ocr), or use reader=own"
        raise InputError("reader", wanted, "installed here", remedy)
    return "tesseract" if wanted == "tesseract" else "own"


def read(png: bytes, reader: ReaderName = "own") -> Display:
    """What a display shows; raises `Unreadable` with the reason if it cannot be read.

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
    """Raise `Unreadable` if a chunk is damaged: OpenCV would fill the gap and print a warning."""
    at, kind = len(PNG), b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", png.ljust(at + 4, b"\0"), at)
        kind, end = png[at + 4 : at + 8], at + 12 + length
        checksum = png[end - 4 : end]
        if len(checksum) < 4 or zlib.crc32(png[at + 4 : end - 4]) != int.from_bytes(checksum):
            raise Unreadable("damaged image")
        at = end


def _digit_area(picture: Pixels) -> Pixels:
    """The part with the digits; the frame is found by its long dark lines."""
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
    """The ten digits as vectors of mean 0 and length 1, one per column."""
    return _standardised(np.stack([template(str(d)).ravel() for d in range(10)])).T


def _standardised(cells: NDArray[np.uint8]) -> NDArray[np.float64]:
    centred = cells - cells.mean(axis=1, keepdims=True)
    return np.asarray(centred / (np.linalg.norm(centred, axis=1, keepdims=True) + 1e-9))


def _own(area: Pixels) -> list[str]:
    """Read by template matching: each cell is the digit with the highest correlation."""
    height, width = CELL
    cells = area.reshape(len(LINES), height, DIGITS, width).swapaxes(1, 2)
    likeness = _standardised(cells.reshape(-1, height * width)) @ _templates()
    if likeness.max(axis=1).min() < _LEAST_LIKENESS:
        raise Unreadable("unreadable digits")
    digits = "".join(map(str, likeness.argmax(axis=1)))
    return [digits[at : at + DIGITS] for at in range(0, len(digits), DIGITS)]


def _tesseract(area: Pixels) -> list[str]:
    """Read by one call of the tesseract program, for a block of lines of digits."""
    import cv2

    with_margin = cv2.copyMakeBorder(area, 20, 20, 20, 20, cv2.BORDER_REPLICATE)
    done = subprocess.run(
        ["tesseract", "-", "-", "--psm", "6", "-c", "tessedit_char_whitelist=0123456789"],
        input=cv2.imencode(".png", with_margin)[1].tobytes(),
        capture_output=True,
        check=True,
        timeout=60,
        # One thread: the instances of the operator already share the cores.
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    return [
        line
        for spaced in done.stdout.decode("ascii", "replace").splitlines()
        if (line := spaced.replace(" ", "").strip())
    ]


READERS: Mapping[str, Callable[[Pixels], list[str]]] = {"tesseract": _tesseract, "own": _own}
"""From the part of an image with the digits to its lines."""
