"""Measure every loss: time against the similarity matrix alone and against the peer, and the memory it adds.

    make bench                                                     # all of it: about a quarter of an hour
    python -m benchmarks.losses --only lifted margin --no-peer     # some losses, ours alone

The floor is the least work of a loss on pairs: normalize, one similarity matrix, the backward pass of its sum. A
ratio of 1.0 means that the loss itself costs nothing. Extra memory is the peak above that of the floor, in score
matrices of the loss' own shape, (B, B) or (B, number of proxies); negative where the matrix is never held at once.
"""

import argparse
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import kinfold
from benchmarks.peer import peers, probe, work
from benchmarks.timing import about, interleaved, peak_bytes
from kinfold.losses import Mined

SIZES = [(80, 1024, 5), (640, 1024, 5), (4096, 128, 4)]
PROXY_CLASSES = [100, 11318]
# a loss with its usual miner stands beside the same loss over all pairs
VARIANTS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "contrastive + distance-weighted": ("contrastive", {}, "distance-weighted"),
    "triplet + semihard": ("triplet", {}, "semihard"),
    "margin + distance-weighted": ("margin", {}, "distance-weighted"),
    "snr + distance-weighted": ("snr", {}, "distance-weighted"),
    "lifted (oh-song)": ("lifted", {"variant": "oh-song"}, None),
    "soft-triple (no regularizer)": ("soft-triple", {"regularization": 0.0}, None),  # as the peer has it
}
SLOW_PEER = 2.0  # seconds; a slower peer is timed once, in its own process


def owns_proxies(name: str) -> bool:
    return "dim" in inspect.signature(kinfold.registry.resolve("losses", name)).parameters


def rows(only: list[str]) -> list[tuple[str, str, dict[str, Any], str | None]]:
    listed: list[tuple[str, str, dict[str, Any], str | None]]
    listed = [(name, name, {}, None) for name in kinfold.list("losses")]
    listed += [(title, *variant) for title, variant in VARIANTS.items()]
    return [row for row in listed if not only or row[0] in only or row[1] in only]


def make(name: str, options: dict[str, Any], miner: str | None, num_classes: int, dim: int) -> Any:
    owner = {"num_classes": num_classes, "dim": dim} if owns_proxies(name) else {}
    loss = kinfold.losses.create(name, **owner, **options)
    return loss if miner is None else Mined(loss, kinfold.miners.create(miner))


def floor(x: torch.Tensor, proxies: torch.Tensor | None) -> Callable[[], None]:
    def run() -> None:
        x.grad = None
        unit = functional.normalize(x)
        if proxies is None:
            (unit @ unit.T).sum().backward()  # type: ignore[no-untyped-call]
        else:
            proxies.grad = None
            (unit @ functional.normalize(proxies).T).sum().backward()  # type: ignore[no-untyped-call]

    return run


def measure(
    title: str,
    loss: Any,
    size: tuple[int, int, int],
    num_classes: int | None,
    peer_result: float | str | None,
    seconds: float,
) -> dict[str, Any]:
    batch, dim, per_class = size
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    classes = num_classes or batch // per_class
    y = torch.arange(batch) // per_class % classes
    vectors = getattr(loss, "proxies", None)
    proxies = None if vectors is None else vectors.detach().clone().flatten(0, -2).requires_grad_()
    columns = batch if proxies is None else len(proxies)

    def ours() -> None:
        x.grad = None
        loss.zero_grad()
        loss(x, y).backward()

    works = {"floor": floor(x, proxies), "ours": ours}
    if isinstance(peer_result, float) and peer_result < SLOW_PEER:
        step = peers(classes, dim)[title]()
        works["peer"] = lambda: work(step, x, y)
    best = interleaved(works, seconds)
    peer = best.get("peer", peer_result)
    extra = peak_bytes(ours) - peak_bytes(works["floor"])
    return {
        "loss": title,
        "batch": batch,
        "dim": dim,
        "per_class": per_class,
        "num_classes": num_classes,
        "floor_ms": best["floor"] * 1e3,
        "ours_ms": best["ours"] * 1e3,
        "ratio": best["ours"] / best["floor"],
        "extra_matrices": extra / (4 * batch * columns),
        "peer_ms": peer * 1e3 if isinstance(peer, float) else peer,
        "peer_over_ours": peer / best["ours"] if isinstance(peer, float) else peer,
    }


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| loss | B x d | classes | floor | ours | x floor | extra memory | peer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        peer = r["peer_over_ours"]
        peer_column = "" if peer is None else f"{peer:.1f} x ours" if isinstance(peer, float) else peer
        lines.append(
            f"| {r['loss']} | {r['batch']} x {r['dim']} | {r['num_classes'] or ''} | {r['floor_ms']:.1f} ms | "
            f"{r['ours_ms']:.1f} ms | {r['ratio']:.2f} | {r['extra_matrices']:.1f} | {peer_column} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="losses to measure (all)")
    parser.add_argument("--sizes", nargs="*", type=int, default=[0, 1, 2], help=f"which of {SIZES}")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each row")
    parser.add_argument("--json", type=Path, default=Path("results/bench_losses.json"), help="where the numbers go")
    parser.add_argument("--figure", action="store_true", help="only the runtime figure of the robust losses")
    arguments = parser.parse_args()
    from benchmarks import dro_runtime  # measures against the floor of this module

    if arguments.figure:
        ratios = dro_runtime.measure(4.0)
        print(dro_runtime.table(ratios))
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"about": {"clock": "wall time", **about()}, "runtime": ratios}, indent=1))
        return
    results: list[dict[str, Any]] = []
    for size in (SIZES[i] for i in arguments.sizes):
        for num_classes in (None, *PROXY_CLASSES):
            chosen = [row for row in rows(arguments.only) if owns_proxies(row[1]) == (num_classes is not None)]
            classes = num_classes or size[0] // size[2]
            makers = {} if arguments.no_peer else peers(classes, size[1])
            peer_results = probe(size, classes, [row[0] for row in chosen if row[0] in makers])
            for title, name, options, miner in chosen:
                loss = make(name, options, miner, classes, size[1])
                results.append(measure(title, loss, size, num_classes, peer_results.get(title), arguments.seconds))
                print(table(results[-1:]).splitlines()[-1], flush=True)
    runtime = dro_runtime.measure(4.0)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"about": about(), "results": results, "runtime": runtime}, indent=1))
    print("\n".join(["", table(results), "", dro_runtime.table(runtime), "", f"written to {arguments.json}"]))


if __name__ == "__main__":
    main()
