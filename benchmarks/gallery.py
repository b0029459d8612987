"""What opening and searching a gallery costs, as ratios to a float32 product and topk on the same rows.

    python -m benchmarks.gallery --rows 1000000 --dim 128

Prints the time to open a gallery with labels, ids and paths, the first search (which checks every sha256), and for 1
and 100 queries the ratio of `Gallery.search` to `(queries @ rows.T).topk(k)`. Rounds alternate between the two, and
medians are compared, so that both see the same machine.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kinfold import Gallery
from kinfold.pairs import normalize


def main() -> None:
    """Build a gallery of random unit vectors in a temporary folder and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to put the gallery; a temporary folder if left out"
    )
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    rows = normalize(torch.randn(options.rows, options.dim, generator=generator))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "gallery"
        build_time = _time(lambda: _build(path, rows))
        open_times = [_time(lambda: len(Gallery.open(path))) for _ in range(options.rounds)]
        gallery = Gallery.open(path)
        query = torch.randn(1, options.dim, generator=generator)
        first = _time(lambda: gallery.search(query, options.k))
        print(f"{options.rows:,} x {options.dim}, {torch.get_num_threads()} thread(s), k = {options.k}")
        print(f"build {build_time:.1f} s, open {statistics.median(open_times):.3f} s, first search {first:.2f} s")
        print("| queries | product and topk | Gallery.search | ratio |\n|---|---|---|---|")
        for count in (1, 100):
            queries = normalize(torch.randn(count, options.dim, generator=generator))
            floors, times = [], []
            for _ in range(options.rounds):
                floors.append(_time(lambda: (queries @ rows.T).topk(options.k)))  # noqa: B023
                times.append(_time(lambda: gallery.search(queries, options.k)))  # noqa: B023
            floor, ours = statistics.median(floors), statistics.median(times)
            print(f"| {count} | {1000 * floor:.0f} ms | {1000 * ours:.0f} ms | {ours / floor:.2f} |")


def _build(path: Path, rows: torch.Tensor) -> None:
    gallery = Gallery.create(path, dim=rows.shape[1])
    names = [f"item-{i:07}" for i in range(len(rows))]
    gallery.add(
        rows, [f"class-{i % 10_000}" for i in range(len(rows))], names, [f"photos/{name}.jpg" for name in names]
    )


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
