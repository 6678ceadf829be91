"""Logos in a video: frames through a topology on a local Spark, and the logos found in them.

Covers: an application by name, generated input with bad frames, a complete run, the comparison with
the reference, frames that are set aside, precision and recall. With a file name as argument it also
writes a picture of some frames with the detected logos outlined.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from pyspark.sql import SparkSession

from tidegate.apps.application import ResultCheck, application
from tidegate.apps.live import SETTINGS
from tidegate.apps.logos.frames import spoiled
from tidegate.spark.local.session import session_on

FRAMES = 40
BAD_SHARE = 0.15
BEGIN_S = 1_700_000_000.0


def outlined(check: ResultCheck, frames: list[int]) -> Any:
    """The frames side by side; green: found and planted, red: found and not planted."""
    given = {row["id"]: row for row in check.inputs["frames"].to_pylist() if row["planted"]}
    found = {row["frame"]: row["found"] for row in check.results["aggregate"].to_pylist()}
    pictures = []
    for number in frames:
        data = np.frombuffer(given[number]["picture"], np.uint8)
        picture: Any = cv2.imdecode(data, cv2.IMREAD_COLOR)
        for each in found[number]:
            corners = np.array(each["corners"], np.int32).reshape(4, 2)
            right = each["logo"] in given[number]["planted"]
            colour = (60, 220, 0) if right else (0, 0, 255)
            cv2.polylines(picture, [corners], True, colour, 2, cv2.LINE_AA)
            words, corner = f"logo {each['logo']}, {each['matches']} matches", corners.min(axis=0)
            at = (min(max(2, int(corner[0])), 190), max(12, int(corner[1]) - 4))
            font, white = cv2.FONT_HERSHEY_SIMPLEX, (255, 255, 255)
            cv2.putText(picture, words, at, font, 0.4, white, 1, cv2.LINE_AA)
        pictures.append(picture)
    return np.vstack([np.hstack(pictures[:3]), np.hstack(pictures[3:6])])


def main(spark: SparkSession, picture: str | None = None) -> None:
    app, random = application("logos"), np.random.default_rng(2)
    frames = app.generate("frames", BEGIN_S + np.arange(FRAMES) / 13, 0, random)
    batches = [spoiled(frames.slice(first, 20), BAD_SHARE, random) for first in (0, 20)]
    with TemporaryDirectory() as folder:
        check = app.run_through(spark, Path(folder), {"frames": batches})
    for row in sorted(check.results["aggregate"].to_pylist(), key=lambda row: row["frame"])[:10]:
        logos = ", ".join(f"logo {f['logo']} ({f['matches']} matches)" for f in row["found"])
        print(f"frame {row['frame']:2}: {row['features']:3} features, {logos or 'no logo'}")
    print(*app.tally(check.inputs, check.results), sep="\n")
    for operator, reasons in check.rejected.items():
        for reason, count in sorted(reasons.items()):
            print(f"set aside by {operator}: {count} x {reason}")
    print("equal to the reference" if check.exact else f"not equal: {check.wrong}")
    if picture is not None:
        several = [row["id"] for row in frames.to_pylist() if row["planted"]][:6]
        cv2.imwrite(picture, outlined(check, several), [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == "__main__":
    with session_on("local[2]", Path("out/example.log"), SETTINGS) as spark:
        main(spark, *sys.argv[1:2])
