"""What opening and searching a gallery costs, as ratios to a float32 product and topk on the same rows.

    python -m benchmarks.gallery --rows 1000000 --dim 128
    python -m benchmarks.gallery --rows 1000000 --dim 128 --index faiss --classes 10000

Prints the time to open a gallery with labels, ids and paths, the first search (which checks every sha256), and for 1
and 100 queries the ratio of `Gallery.search` to `(queries @ rows.T).topk(k)`. Rounds alternate between the two, and
medians are compared, so that both see the same machine. With `--index`, the same for approximate search, and the share
of the exact neighbors that it finds. `--classes` draws items around so many class centers, with noise of half of their
length, instead of independent directions; queries are new items of the same classes.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from kinfold import Gallery
from kinfold.pairs import normalize

Source = Callable[[int], Tensor]


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
    parser.add_argument("--index", choices=["faiss", "usearch"], help="also measure approximate search")
    parser.add_argument(
        "--classes", type=int, help="classes around which items are drawn; independent rows if left out"
    )
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    draw = _make_source(options.dim, options.classes, generator)
    rows = draw(options.rows)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "gallery"
        build_time = _time(lambda: _build(path, rows))
        open_times = [_time(lambda: len(Gallery.open(path))) for _ in range(options.rounds)]
        gallery = Gallery.open(path)
        query = draw(1)
        first = _time(lambda: gallery.search(query, options.k))
        print(f"{options.rows:,} x {options.dim}, {torch.get_num_threads()} thread(s), k = {options.k}")
        print(f"build {build_time:.1f} s, open {statistics.median(open_times):.3f} s, first search {first:.2f} s")
        _compare(gallery, rows, draw, options.k, options.rounds, approximate=False)
        if options.index is None:
            return
        index_time = _time(lambda: gallery.build_index(options.index))
        gallery = Gallery.open(path)
        first = _time(lambda: gallery.search(query, options.k, approximate=True))
        print(f"{options.index}: build {index_time:.0f} s, first search {first:.2f} s")
        queries = draw(1000)
        exact, near = (gallery.search(queries, options.k, approximate=flag).ids for flag in (False, True))
        shares = [len({*a} & {*b}) / options.k for a, b in zip(exact, near, strict=True)]
        first_share = statistics.mean(a[0] == b[0] for a, b in zip(exact, near, strict=True))
        share_near, share_first = 100 * statistics.mean(shares), 100 * first_share
        print(
            f"finds {share_near:.1f} % of the {options.k} nearest, and the nearest for {share_first:.1f} % of queries"
        )
        _compare(gallery, rows, draw, options.k, options.rounds, approximate=True)


def _compare(gallery: Gallery, rows: Tensor, draw: Source, k: int, rounds: int, *, approximate: bool) -> None:
    """Print the times of 1 and 100 queries beside those of a product and topk."""
    title = "Gallery.search, approximate" if approximate else "Gallery.search"
    print(f"| queries | product and topk | {title} | ratio |\n|---|---|---|---|")
    for count in (1, 100):
        queries = draw(count)
        floors, times = [], []
        for _ in range(rounds):
            floors.append(_time(lambda: (queries @ rows.T).topk(k)))  # noqa: B023
            times.append(_time(lambda: gallery.search(queries, k, approximate=approximate)))  # noqa: B023
        floor, ours = statistics.median(floors), statistics.median(times)
        print(f"| {count} | {1000 * floor:.1f} ms | {1000 * ours:.1f} ms | {ours / floor:.3f} |", flush=True)


def _make_source(dim: int, classes: int | None, generator: torch.Generator) -> Source:
    """Return a function that draws so many unit vectors."""
    centers = None if classes is None else normalize(torch.randn(classes, dim, generator=generator))

    def draw(count: int) -> Tensor:
        noise = torch.randn(count, dim, generator=generator)
        if centers is None:
            return normalize(noise)
        chosen = torch.randint(len(centers), (count,), generator=generator)
        return normalize(centers[chosen] + noise * (0.5 / dim**0.5))

    return draw


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
