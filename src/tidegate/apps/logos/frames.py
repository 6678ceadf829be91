"""Frames of a synthetic video: textures with logos in known places.

A logo is scaled, rotated and lit at random. Noise and blur are added to the frame, from almost none
to enough to hide small logos. Some frames have a decoy, a similar logo that is not searched for.
PNG and JPEG alternate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.apps.logos.vision import LOGO_PX, LOGOS, logo
from tidegate.apps.records import with_bad_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["HEIGHT_PX", "WIDTH_PX", "frame", "frames", "spoiled"]

WIDTH_PX, HEIGHT_PX = 320, 240
DECOYS = 8
SCALES, LIGHT = (0.45, 1.25), (0.5, 1.15)
NOISE, BLUR_PX = (1.0, 14.0), (0.3, 1.5)
"""Standard deviations of the noise, of 255, and of the blur."""


def frames(
    source: str, moments: NDArray[np.float64], first_id: int, random: np.random.Generator
) -> pa.Table:
    """One frame for each moment (see `tidegate.apps.application.Generate`).

    planted: the logos in it, for the tally; no operator reads them.
    """
    import cv2
    import pyarrow as pa

    pictures, planted = [], []
    for n in range(first_id, first_id + len(moments)):
        picture, numbers = frame(random)
        kind = ".png" if n % 2 else ".jpg"
        pictures.append(cv2.imencode(kind, picture)[1].tobytes())
        planted.append(numbers)
    return pa.table(
        {
            "id": np.arange(first_id, first_id + len(moments)),
            "at_us": np.round(moments * 1e6).astype(np.int64),
            "picture": pa.array(pictures, pa.binary()),
            "planted": pa.array(planted, pa.list_(pa.int32())),
        }
    )


def frame(random: np.random.Generator) -> tuple[NDArray[np.uint8], list[int]]:
    """A colour picture, and the logos in it."""
    import cv2

    x, y = (int(random.integers(0, 1024 - side)) for side in (WIDTH_PX, HEIGHT_PX))
    picture = _texture()[y : y + HEIGHT_PX, x : x + WIDTH_PX].astype(np.float32)
    picture = picture * random.uniform(0.6, 1.3) + random.uniform(-20, 20)
    count = int(random.choice(4, p=(0.25, 0.4, 0.25, 0.1)))
    numbers = sorted(random.choice(LOGOS, count, replace=False).tolist())
    decoy = [LOGOS + int(random.integers(DECOYS))] if count < 3 and random.random() < 0.3 else []
    # Each logo has its own column of the picture, so that none covers another.
    width = WIDTH_PX / max(1, len(numbers + decoy))
    for place, number in enumerate(random.permutation(numbers + decoy).tolist()):
        scale = min(random.uniform(*SCALES), width / (1.2 * LOGO_PX))
        reach = 0.62 * scale * LOGO_PX
        centre = (
            width * place + random.uniform(min(reach, width / 2), max(width - reach, width / 2)),
            random.uniform(reach, HEIGHT_PX - reach),
        )
        _put(picture, number, centre, scale, random.uniform(0, 360), random.uniform(*LIGHT))
    soft = cv2.GaussianBlur(picture, (0, 0), random.uniform(*BLUR_PX))
    noise = random.standard_normal(soft.shape, np.float32) * random.uniform(*NOISE)
    return np.clip(soft + noise, 0, 255).astype(np.uint8), numbers


def spoiled(table: pa.Table, share: float, random: np.random.Generator) -> pa.Table:
    """The frames with about that share of bad ones added, of every kind."""
    return with_bad_rows(table, share, random, _FAULTS)


_BOMB = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x01\x00\x00\x00\x01\x00\x00\x08\x02\x00\x00\x00"
"""The header of a picture of 65,536 by 65,536 pixels."""


def _spoil(fault: Callable[[dict[str, Any]], dict[str, Any]], row: dict[str, Any]) -> None:
    row.update(planted=None, **fault(row))


_FAULTS = tuple(
    partial(_spoil, fault)
    for fault in (
        lambda row: {"picture": row["picture"][: len(row["picture"]) // 2]},  # torn
        lambda row: {"picture": None},
        lambda row: {"picture": b"\x00\xff" * 500},  # poison
        lambda row: {"picture": _BOMB},
        lambda row: {"id": None},
    )
)


def _put(
    picture: NDArray[np.float32],
    number: int,
    centre: tuple[float, float],
    scale: float,
    degrees: float,
    light: float,
) -> None:
    """Put a logo into the picture, in place."""
    import cv2

    middle = LOGO_PX / 2
    shape = cv2.getRotationMatrix2D((middle, middle), degrees, scale).astype(np.float64)
    shape[:, 2] += np.array(centre) - middle
    size = (WIDTH_PX, HEIGHT_PX)
    layer = cv2.warpAffine(logo(number).astype(np.float32) * light, shape, size)
    cover = cv2.warpAffine(np.ones((LOGO_PX, LOGO_PX), np.float32), shape, size)[:, :, None]
    picture *= 1 - cover
    picture += layer.astype(np.float32)  # already faded at its borders


@lru_cache(maxsize=1)
def _texture() -> NDArray[np.uint8]:
    """A large background to cut frames from: noise at three scales, mostly grey."""
    import cv2

    random = np.random.default_rng(7)
    total = np.zeros((1024, 1024, 3), np.float32)
    for sigma, weight in ((2.0, 12.0), (8.0, 25.0), (40.0, 40.0)):
        noise = cv2.GaussianBlur(random.normal(0, 1, total.shape).astype(np.float32), (0, 0), sigma)
        noise = noise + 2.5 * noise.mean(axis=2, keepdims=True)
        total += weight * noise / noise.std()
    return np.clip(total + 120, 0, 255).astype(np.uint8)
