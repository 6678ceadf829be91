"""Run the storm: random faults on real Spark, seed after seed, one line a fault.

    python -m tests.storm                                # what is missing of 60 seeds; make storm
    python -m tests.storm --world fleet --seeds 3        # seeds 1 to 3 of one world
    python -m tests.storm --draw                         # only draw docs/measured/storm.md again

Seeds that have passed according to the ledger, ``docs/measured/storm.jsonl``, are not run again, so
a storm that was interrupted goes on with the seed that it was in. The folder of a seed that had a
problem is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.storm.ledger import LEDGER, PAGE, ROOT, draw, last_runs, read_ledger
from tests.storm.seed import MARK, left_over
from tidegate.spark.local.kafka_jars import jar_folder

WORLDS = {"application": 35, "fleet": 20, "kafka": 5}
"""Worlds with the number of their seeds."""
AT_ONCE = 25
"""Seeds that share a cluster."""
SEED_LIMIT_S = 1_500.0
"""No seed takes so long, whatever the machine does, in seconds."""


def commit() -> str:
    """The commit of the working copy, with a plus sign if files of the program differ from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], stdout=-1, text=True, check=False)
    paths = ["src", "tests", "agent"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *paths], check=False)
    return name.stdout.strip() + ("+" if changed.returncode else "")


def run(world: str, seeds: list[int], faults: int, ledger: Path) -> bool:
    """Run seeds on one cluster, each into the ledger when it ends; return whether all passed."""
    folder = Path(tempfile.mkdtemp(prefix=f"tidegate-storm-{world}-"))
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, MARK: folder.name, "PYTHONPATH": path}
    words = [sys.executable, "-m", f"tests.storm.{world}", str(folder), str(faults)]
    of, waiting, passed = commit(), list(seeds), True
    process = subprocess.Popen([*words, *map(str, seeds)], env=env, cwd=ROOT)
    end_s = time.monotonic() + SEED_LIMIT_S * len(seeds)
    try:
        while process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.5)
            # The last one waits for the end of the run, which may leave something behind.
            while len(waiting) > 1 and (folder / f"{world}-{waiting[0]}.jsonl").exists():
                passed &= enter(folder, world, waiting.pop(0), of, ledger)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            code = process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        left = left_over(folder.name)
    problems = [f"the run ended with code {code}"] if code else []
    ended = [seed for seed in waiting if (folder / f"{world}-{seed}.jsonl").exists()]
    for seed in ended:
        last = (problems, left) if seed == ended[-1] else ([], [])
        passed &= enter(folder, world, seed, of, ledger, *last)
    if waiting != ended or problems or left:
        print(f"{world}: {', '.join(problems) or 'seeds are missing'}; {left}; see {folder}")
        return False
    if passed:
        shutil.rmtree(folder, ignore_errors=True)
    return passed


def enter(
    folder: Path,
    world: str,
    seed: int,
    of: str,
    ledger: Path,
    problems: Sequence[str] = (),
    left: Sequence[str] = (),
) -> bool:
    """Append the lines of a seed to the ledger; return whether it has passed.

    of: the commit. problems, left: problems and processes of the whole run, which this one ends.
    """
    text = (folder / f"{world}-{seed}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    end = rows[-1]
    end["commit"] = of
    end["problems"] += problems
    end["processes_left"] += left
    with ledger.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    said = "; ".join([*end["problems"], *end["processes_left"]])
    said = said or "rows equal a batch, nothing is left"
    print(f"{world} {seed}: {end['faults']} faults, {end['rows']} rows: {said}", flush=True)
    return not (end["problems"] or end["processes_left"])


def main() -> None:
    """Run the seeds that are missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--world", choices=list(WORLDS), help="one world only")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, help="number of seeds of each world")
    parser.add_argument("--faults", type=int, default=20, help="faults of each seed")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--draw", action="store_true", help="only draw the page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    passed = True
    for world, usual in () if options.draw else WORLDS.items():
        if options.world not in (None, world):
            continue
        if world == "kafka" and not (jar_folder() / "broker").exists():
            print("kafka: left out, because its jars are missing: run make kafka", flush=True)
            continue
        done = {one.key for one in last_runs(read_ledger(options.ledger)) if one.passed}
        every = range(options.seed, options.seed + (options.seeds or usual))
        missing = [seed for seed in every if (world, seed) not in done]
        for at in range(0, len(missing), AT_ONCE):
            began_s = time.monotonic()
            passed &= run(world, missing[at : at + AT_ONCE], options.faults, options.ledger)
            print(f"{world}: {time.monotonic() - began_s:.0f} s", flush=True)
    if options.ledger == LEDGER:
        draw()
        print(f"drawn: {PAGE.relative_to(ROOT)}")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
