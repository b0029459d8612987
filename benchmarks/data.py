"""Measure reading: images per second against plain Pillow, and milliseconds per batch of every sampler.

    make bench-data
    python -m benchmarks.data --images 200 --batches 20

Images are 500 x 375 JPEG files of noise and shapes, generated for the run. The floor is the least work of any reader:
open, decode and resize with Pillow to the same sizes, in as many processes. kinfold decodes, transforms as the pipeline
"study" does, and assembles batches of bytes. Samplers are measured at the size of Stanford Online Products' training
set. Times are minima over rounds that take turns.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

import kinfold
from kinfold.data import Batches, create_pipeline, load

ITEMS, CLASSES, DIM, BATCH = 59_551, 11_318, 128, 112
Work = Callable[[], object]


def photographs(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    (folder / "class").mkdir(parents=True)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        noise = Image.fromarray(rng.integers(0, 255, (375, 500, 3), dtype=np.uint8)).filter(ImageFilter.GaussianBlur(2))
        Image.blend(coarse, noise, 0.4).save(folder / "class" / f"{i:04}.jpg", quality=90)


def read(path: Path, size: tuple[int, int]) -> int:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR)).nbytes


def plain(paths: list[Path], size: tuple[int, int], pool: ProcessPoolExecutor | None = None) -> Work:
    sizes = [size] * len(paths)
    if pool is None:
        return lambda: sum(map(read, paths, sizes))
    return lambda: sum(pool.map(read, paths, sizes, chunksize=32))


def ours(folder: Path, transform: Any, workers: int) -> Work:
    batches = Batches(load("folder", root=folder), transform, batch_size=32, shuffle=True, workers=workers)
    return lambda: sum(len(batch.images) for batch in batches)


def samplers(batches: int) -> dict[str, float]:
    """Milliseconds of one batch, the memory bank filled where there is one; the minimum of three epochs."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(CLASSES), 2), rng.integers(0, CLASSES, ITEMS - 2 * CLASSES)])
    embeddings = torch.nn.functional.normalize(torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(0)))
    milliseconds = {}
    for name in kinfold.list("samplers"):
        options = {"per_class": 2} if name not in ("random", "spc-r", "smart-mining") else {}
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
        milliseconds[name] = 1000 * best / len(sampler)
    return milliseconds


def timed(works: dict[Any, Work], rounds: int) -> dict[Any, float]:
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def images_table(data: dict[str, Any]) -> str:
    lines = ["| decode and | Pillow, images a second | kinfold | kinfold / Pillow |", "|---|---|---|---|"]
    rows = data["images"].items()
    return "\n".join(
        lines + [f"| {name} | {floor:.0f} | {rate:.0f} | {rate / floor:.2f} |" for name, (floor, rate) in rows]
    )


def samplers_table(data: dict[str, Any]) -> str:
    lines = ["| sampler | milliseconds a batch |", "|---|---|"]
    return "\n".join(lines + [f"| {name} | {ms:.2f} |" for name, ms in data["samplers"].items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, default=Path("results/bench_data.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as in a worker
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        photographs(folder, arguments.images)
        study, paths = create_pipeline("study"), sorted((folder / "class").iterdir())
        crop, resized = (224, 224), (341, 256)
        with ProcessPoolExecutor(2) as pool:
            works = {
                "random resized crop to 224, flip": (plain(paths, crop), ours(folder, study.train, 0)),
                "the same, two workers": (plain(paths, crop, pool), ours(folder, study.train, 2)),
                "short side to 256, center crop of 224": (plain(paths, resized), ours(folder, study.test, 0)),
            }
            pairs = {(name, which): work for name, both in works.items() for which, work in enumerate(both)}
            seconds = timed(pairs, arguments.rounds)
    data = {
        "about": {"kinfold": kinfold.__version__, "python": platform.python_version(), "machine": platform.machine()},
        "images": {name: [arguments.images / seconds[name, which] for which in (0, 1)] for name in works},
        "samplers": samplers(arguments.batches),
    }
    print(images_table(data), samplers_table(data), sep="\n\n")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1))
    print(f"\nwritten to {arguments.json}")


if __name__ == "__main__":
    main()
