"""Draw docs/img/factory.png: a machine's display as the camera sees it, and a report of O9."""

from __future__ import annotations

import itertools
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from tidegate.apps.factory.plant import Plant
from tidegate.apps.factory.report import report_figure

START_S = 1_700_000_000.0
SPAN_S = 36.0


def main() -> None:
    """Values by the formulas of the paper, without a stream."""
    plant = Plant(machines=4)
    values = []
    for machine in range(plant.machines):
        at_s = START_S + np.arange(-plant.tick_s, SPAN_S, plant.tick_s)
        shown = plant.displays(np.full(len(at_s), machine), at_s)
        for before, here in itertools.pairwise(shown):
            cycle_s = (here.clock_ms - before.clock_ms) / 1000
            performance = (here.made - before.made) * plant.ideal_s / cycle_s
            availability = 1 - (here.planned_ms + here.defect_ms) / here.total_ms
            oee = availability * performance * (here.made - here.bad) / here.made
            values.append((machine, here.clock_ms, oee))
    random = np.random.default_rng(1)
    (image,) = plant.images(np.array([2]), np.array([START_S + 20]), random)
    assert isinstance(image, bytes)
    figure = report_figure(int(1000 * START_S), int(1000 * (START_S + SPAN_S)), values)
    drawn = BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)
    display, report = Image.open(BytesIO(image)).convert("RGB"), Image.open(drawn).convert("RGB")
    both = Image.new("RGB", (display.width + report.width + 20, report.height), "white")
    both.paste(display, (0, (report.height - display.height) // 2))
    both.paste(report, (display.width + 20, 0))
    path = Path(__file__).with_suffix(".png")
    both.quantize(64).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
