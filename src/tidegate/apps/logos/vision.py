"""Logo detection: SIFT features of a picture, matches with 16 logos, and the logos found.

Three pure functions divide the work as in the paper: `features` finds points that can be recognised
at any scale and rotation; `matches` compares their descriptors with those of the logos (L2);
`verdict` decides which logos are there. OpenCV uses one thread, because many tasks call it at the
same time. Every sum is exact, so the result of a picture does not depend on the machine.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DESCRIPTOR", "LOGOS", "LOGO_PX", "Features", "Found", "features", "grey", "logo", "matches",
    "read_picture", "verdict",
]  # fmt: skip

LOGOS = 16
LOGO_PX = 96
"""Width and height of a logo as it is drawn."""
DESCRIPTOR = 128
"""Bytes of a feature's descriptor."""
MOST_PX, MOST_BYTES = 4096, 8_000_000
"""A picture with a larger side or size is not decoded: it may be a decompression bomb."""
MOST_FEATURES = 2000
RATIO = 0.8
"""A match must be closer than this share of the distance to the next best logo (Lowe's test)."""
FAR = 280.0
"""Maximum L2 distance of a match; descriptors have a length of about 512."""
LEAST_MATCHES = 5
"""Minimum number of matches that agree on the place of a logo."""
WITHIN_PX = 4.0
"""Maximum distance of a match from the place on which the others agree."""


@dataclass(frozen=True)
class Features:
    """points: n x 2, pixels. descriptors: n x 128, whole numbers from 0 to 255."""

    points: NDArray[np.float32]
    descriptors: NDArray[np.uint8]


@dataclass(frozen=True)
class Found:
    """A logo in a picture. matches: how many agree. corners: x and y of its corners, in pixels."""

    logo: int
    matches: int
    corners: tuple[int, ...]


def logo(number: int) -> NDArray[np.uint8]:
    """A logo as a colour picture; numbers from 16 on are decoys."""
    import cv2

    random = np.random.default_rng(1000 + number)

    def colour() -> tuple[int, ...]:
        return tuple(int(c) for c in random.integers(0, 256, 3))

    def point() -> tuple[int, int]:
        x, y = random.integers(6, LOGO_PX - 6, 2)
        return int(x), int(y)

    picture = np.full((LOGO_PX, LOGO_PX, 3), random.integers(190, 256, 3), np.uint8)
    for _ in range(26):
        x, y = point()
        match random.integers(4):
            case 0:
                cv2.circle(picture, (x, y), int(random.integers(4, 14)), colour(), -1, cv2.LINE_AA)
            case 1:
                corner = (x + int(random.integers(6, 26)), y + int(random.integers(6, 26)))
                cv2.rectangle(picture, (x, y), corner, colour(), -1)
            case 2:
                triangle = np.array([(x, y), point(), point()], np.int32)
                cv2.fillPoly(picture, [triangle], colour(), cv2.LINE_AA)
            case _:
                letter, size = chr(65 + int(random.integers(26))), float(random.uniform(0.6, 1.2))
                font = cv2.FONT_HERSHEY_DUPLEX
                cv2.putText(picture, letter, (x, y), font, size, colour(), 2, cv2.LINE_AA)
    frame = tuple(int(c) for c in random.integers(0, 80, 3))
    cv2.rectangle(picture, (0, 0), (LOGO_PX - 1, LOGO_PX - 1), frame, 3)
    return picture


def grey(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A colour picture in greyscale."""
    import cv2

    return cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(np.uint8)


def read_picture(data: bytes | None) -> tuple[NDArray[np.uint8] | None, str | None]:
    """The greyscale picture in PNG or JPEG bytes, or the reason why there is none."""
    import cv2

    if not data:
        return None, "no picture"
    if len(data) > MOST_BYTES:
        return None, f"more than {MOST_BYTES // 1_000_000} MB"
    size = _size(data)
    if size is None:
        return None, "neither PNG nor JPEG"
    if not 16 <= min(size) <= max(size) <= MOST_PX:
        return None, f"a side not within 16 to {MOST_PX} pixels"
    if not data.endswith((b"IEND\xaeB`\x82", b"\xff\xd9")):  # OpenCV would invent the rest
        return None, "a torn picture"
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    except cv2.error:
        picture = None
    if picture is None:
        return None, "a picture that cannot be decoded"
    return picture.astype(np.uint8), None


def _size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header, before memory is allocated for the pixels."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return width, height
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame's header
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return None


def features(picture: NDArray[np.uint8]) -> Features:
    """The SIFT features of a picture, the strongest `MOST_FEATURES` of them."""
    points, descriptors = _sift().detectAndCompute(picture, None)
    if descriptors is None:
        return Features(np.empty((0, 2), np.float32), np.empty((0, DESCRIPTOR), np.uint8))
    where = np.array([point.pt for point in points], np.float32)
    return Features(where, descriptors.astype(np.uint8))  # OpenCV's floats are whole numbers


def matches(found: Features) -> NDArray[np.float32]:
    """Pairs of similar features: n x 5, the logo, x and y in it, x and y in the picture.

    Distances are exact, because sums of whole numbers below 2²⁴ are exact as 32-bit floats.
    """
    if not len(found.points):
        return np.empty((0, 5), np.float32)
    index = _index()
    these = found.descriptors.astype(np.float32)
    squares = (these**2).sum(axis=1)[:, None] + index.squares - 2 * (these @ index.descriptors.T)
    by_logo = np.minimum.reduceat(squares, index.starts, axis=1)
    nearest = by_logo.argmin(axis=1)
    each = np.arange(len(these))
    best = by_logo[each, nearest]
    by_logo[each, nearest] = np.inf
    good = (best < RATIO**2 * by_logo.min(axis=1)) & (best < FAR**2)
    which = squares.argmin(axis=1)
    pairs = np.column_stack([nearest, index.points[which], found.points]).astype(np.float32)
    chosen: NDArray[np.float32] = pairs[good]
    return chosen


def verdict(pairs: NDArray[np.float32]) -> list[Found]:
    """The logos that enough matches put in the same place, after shift, rotation and scale."""
    import cv2

    found = []
    for number in range(LOGOS):
        here = pairs[pairs[:, 0] == number]
        if len(here) < LEAST_MATCHES:
            continue
        # OpenCV samples with a fixed random seed.
        shape, agree = cv2.estimateAffinePartial2D(
            here[:, 1:3].copy(), here[:, 3:5].copy(), method=cv2.RANSAC,
            ransacReprojThreshold=WITHIN_PX,
        )  # fmt: skip
        # Several matches of one point of the logo count once.
        count = len(np.unique(here[agree[:, 0] > 0, 1:3], axis=0)) if shape is not None else 0
        if count < LEAST_MATCHES or not 0.3 < np.hypot(shape[0, 0], shape[1, 0]) < 3:
            continue
        square = np.array([(0, 0), (LOGO_PX, 0), (LOGO_PX, LOGO_PX), (0, LOGO_PX)])
        corners = square @ shape[:, :2].T + shape[:, 2]
        found.append(Found(number, count, tuple(int(c) for c in np.rint(corners).ravel())))
    return found


@dataclass(frozen=True)
class _Index:
    points: NDArray[np.float32]
    descriptors: NDArray[np.float32]
    squares: NDArray[np.float32]
    starts: NDArray[np.int64]


@lru_cache(maxsize=1)
def _index() -> _Index:
    """The features of all logos, one logo after another; computed once per process."""
    each = [features(grey(logo(n))) for n in range(LOGOS)]
    descriptors = np.concatenate([f.descriptors for f in each]).astype(np.float32)
    starts = np.cumsum([0] + [len(f.points) for f in each[:-1]])
    points = np.concatenate([f.points for f in each])
    return _Index(points, descriptors, (descriptors**2).sum(axis=1), starts)


@lru_cache(maxsize=1)
def _sift() -> Any:
    import cv2

    cv2.setNumThreads(1)
    return cv2.SIFT_create(nfeatures=MOST_FEATURES)  # type: ignore[attr-defined]
