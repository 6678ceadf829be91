"""Logos: what is seen in single pictures, and the whole application on Spark."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.apps.application import application
from tidegate.apps.logos import frames as logos_frames
from tidegate.apps.logos.frames import frames, spoiled
from tidegate.apps.logos.vision import (
    LOGO_PX,
    LOGOS,
    Features,
    features,
    grey,
    logo,
    matches,
    read_picture,
    verdict,
)


def test_a_logo_is_found_where_it_was_put() -> None:
    picture = np.full((240, 320, 3), 90, np.float32)
    logos_frames._put(picture, 5, (200.0, 110.0), 0.9, 30.0, 0.8)
    logos_frames._put(picture, LOGOS + 2, (70.0, 110.0), 1.0, 0.0, 1.0)  # nobody looks for it
    seen = features(grey(picture.astype(np.uint8)))
    (found,) = verdict(matches(seen))
    assert found.logo == 5
    corners = np.array(found.corners).reshape(4, 2)
    assert corners.mean(axis=0) == pytest.approx((200, 110), abs=2)
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    assert sides == pytest.approx(np.full(4, 0.9 * LOGO_PX), abs=3)
    # Packet by packet it is the same.
    parts = [Features(seen.points[i::2], seen.descriptors[i::2]) for i in range(2)]
    assert sum(len(matches(part)) for part in parts) == len(matches(seen))


def test_a_distance_is_the_one_that_is_defined() -> None:
    """The matrix product against differences, squared and summed in whole numbers."""
    seen = features(grey(logo(3)))
    assert (matches(seen)[:, 0] == 3).all()
    own = {tuple(pair[1:3]) for pair in matches(seen)}
    assert own == {tuple(point) for point in seen.points}  # each is nearest to itself
    empty = features(np.zeros((50, 50), np.uint8))
    assert len(empty.points) == 0 == len(matches(empty)) == len(verdict(matches(empty)))


def test_why_a_picture_is_none() -> None:
    png = cv2.imencode(".png", np.zeros((20, 30), np.uint8))[1].tobytes()
    jpg = cv2.imencode(".jpg", np.zeros((20, 30), np.uint8))[1].tobytes()
    for good in (png, jpg):
        picture, why = read_picture(good)
        assert why is None
        assert picture is not None
        assert picture.shape == (20, 30)
    assert read_picture(None)[1] == read_picture(b"")[1] == "no picture"
    assert read_picture(b"GIF89a" * 9)[1] == "neither PNG nor JPEG"
    assert read_picture(logos_frames._BOMB)[1] == "a side not within 16 to 4096 pixels"
    assert read_picture(png[:-20])[1] == read_picture(jpg[:-20])[1] == "a torn picture"
    hole = png[:35] + bytes(len(png) - 50) + png[-15:]
    assert read_picture(hole)[1] == "a picture that cannot be decoded"
    assert read_picture(png + b"\0" * 8_000_000)[1] == "more than 8 MB"
    for cut in range(2, len(jpg), 7):  # torn anywhere: a reason or a picture, never an error
        picture, why = read_picture(jpg[:cut])
        assert (picture is None) != (why is None)


def test_logos_on_spark_with_bad_frames(spark: SparkSession, tmp_path: Path) -> None:
    app = application("logos")
    random = np.random.default_rng(11)
    moments = 1_700_000_000 + np.arange(16) / 13
    moments[10] -= 3600  # a clock that goes back changes nothing: nobody reads it
    good = frames("frames", moments, 0, random)
    bad = spoiled(good.slice(0, 5), 1.0, random).slice(5)
    again = good.slice(3, 1)  # sent twice
    batches = [pa.concat_tables([good.slice(0, 12), bad]), good.slice(12), again]
    check = app.run_through(spark, tmp_path, {"frames": batches})

    assert check.wrong is not None
    missing, surplus = check.wrong["aggregate"]
    # The frame that was sent twice may be seen once or twice, never wrong.
    assert not surplus
    assert missing.total() <= 1
    assert {row["frame"] for row in check.results["aggregate"].to_pylist()} == set(range(16))
    assert set(check.rejected) == {"extract"}
    assert check.rejected["extract"] == {
        "a torn picture": 1,
        "no picture": 1,
        "neither PNG nor JPEG": 1,
        "a side not within 16 to 4096 pixels": 1,
        "no number": 1,
    }
    sentences = app.tally(check.inputs, check.results)
    assert sentences[0].startswith("16 frames" if missing else "17 frames")
    planted = {(r["id"], n) for r in good.to_pylist() for n in r["planted"]}
    found = {
        (r["frame"], each["logo"])
        for r in check.results["aggregate"].to_pylist()
        for each in r["found"]
    }
    assert len(found & planted) / len(found) > 0.95
    assert len(found & planted) / len(planted) > 0.7
