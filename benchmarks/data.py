"""What reading costs: images a second against plain Pillow, and milliseconds a batch of every sampler.

    make bench-data
    python -m benchmarks.data --images 200 --batches 20

Images are photographs' worth of noise and shapes, 500 x 375 JPEG, made for the run. The floor is what no reader can do
without: open, decode and resize with Pillow, in one process. Ours decodes, augments as the study does (random resized
crop to 224, flip), and puts batches of bytes together. Samplers are measured at the size of Stanford Online Products'
training set. Times are minima of rounds that take turns.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

import kinfold
from kinfold.data import Batches, load, pipeline

ITEMS, CLASSES, DIM, BATCH = 59_551, 11_318, 128, 112
Work = Callable[[], object]


def photographs(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    (folder / "class").mkdir(parents=True)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        noise = Image.fromarray(rng.integers(0, 255, (375, 500, 3), dtype=np.uint8)).filter(ImageFilter.GaussianBlur(2))
        Image.blend(coarse, noise, 0.4).save(folder / "class" / f"{i:04}.jpg", quality=90)


def plain(paths: list[Path]) -> Work:
    def work() -> None:
        for path in paths:
            with Image.open(path) as image:
                np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))

    return work


def ours(folder: Path, transform: Any, workers: int) -> Work:
    batches = Batches(load("folder", root=folder), transform, batch_size=32, shuffle=True, workers=workers)
    return lambda: sum(len(batch.images) for batch in batches)


def samplers(batches: int) -> dict[str, float]:
    """Milliseconds of one batch, the memory bank filled where there is one; the minimum of three epochs."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(CLASSES), 2), rng.integers(0, CLASSES, ITEMS - 2 * CLASSES)])
    embeddings = torch.nn.functional.normalize(torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(0)))
    found = {}
    for name in kinfold.list("samplers"):
        options = {"per_class": 2} if name not in ("random", "spc-r") else {}
        sampler = kinfold.samplers.create(name, labels, batch_size=BATCH, batches=batches, seed=0, **options)
        if getattr(sampler, "needs_embeddings", False):
            sampler.update(torch.arange(ITEMS), embeddings)
        best = float("inf")
        for epoch in range(3):
            start = time.perf_counter()
            sampler.set_epoch(epoch)
            for _ in sampler:
                pass
            best = min(best, time.perf_counter() - start)
        found[name] = 1000 * best / len(sampler)
    return found


def timed(works: dict[str, Work], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def tables(data: dict[str, Any]) -> str:
    floor = data["images"]["Pillow: decode and resize"]
    lines = ["| reader | images a second | x Pillow |", "|---|---|---|"]
    lines += [f"| {name} | {rate:.0f} | {rate / floor:.2f} |" for name, rate in data["images"].items()]
    lines += ["", "| sampler | milliseconds a batch |", "|---|---|"]
    lines += [f"| {name} | {ms:.2f} |" for name, ms in data["samplers"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, default=Path("results/bench_data.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as in a worker
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        photographs(folder, arguments.images)
        study = pipeline("study")
        works = {
            "Pillow: decode and resize": plain(sorted((folder / "class").iterdir())),
            "kinfold: decode and random resized crop, flip": ours(folder, study.train, 0),
            "kinfold: decode, resize and centre crop": ours(folder, study.test, 0),
            "kinfold: decode and random resized crop, flip, two workers": ours(folder, study.train, 2),
        }
        seconds = timed(works, arguments.rounds)
    data = {
        "about": {"kinfold": kinfold.__version__, "python": platform.python_version(), "machine": platform.machine()},
        "images": {name: arguments.images / s for name, s in seconds.items()},
        "samplers": samplers(arguments.batches),
    }
    print(tables(data))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1))
    print(f"\nwritten to {arguments.json}")


if __name__ == "__main__":
    main()
