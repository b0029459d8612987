"""Time and memory of losses beside those of the peers, forward and backward."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from benchmarks.comparison.libraries import OML, OURS, PML, SIZES, Size, Step, batch, subject, turns
from benchmarks.timing import peak_bytes

PROXY_CLASSES = 100
MEMORY_LIMIT = 8 * 2**30
SLOW = 2.0  # seconds; a slower peer is timed once


def both(sizes: list[Size], seconds: float) -> list[dict[str, Any]]:
    """One step of every loss that pytorch-metric-learning has too, forward and backward, taking turns."""
    from benchmarks import losses as bench
    from benchmarks.peer import peers

    results: list[dict[str, Any]] = []
    for size, proxies in ((size, proxies) for size in sizes for proxies in (False, True)):
        classes = PROXY_CLASSES if proxies else size[0] // size[2]
        makers = peers(classes, size[1])
        for title, name, options, miner in bench.rows([]):
            if title not in makers or bench.owns_proxies(name) != proxies:
                continue
            x, y = batch(size, classes)
            ours = _backward(bench.make(name, options, miner, classes, size[1]), x, y)
            row = {"loss": title, "batch": size[0], "dim": size[1], "ours_bytes": peak_bytes(ours)}
            row |= _beside(ours, _backward(makers[title](), x, y), seconds)
            results.append(row)
            print(loss_table([row]).splitlines()[-1], flush=True)
    return results


def _beside(ours: Callable[[], None], peer: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Times of both libraries, and the memory of the peer.

    A slow peer is timed once, and its memory is not measured, because the profiler would take far longer. For a peer
    that needs too much memory, a string says so instead of the numbers.
    """
    try:
        with limited_memory():
            once = turns({"peer": peer}, 0.0, least=1)["peer"]
    except (RuntimeError, MemoryError) as error:
        best = turns({"ours": ours}, seconds)
        return {"ours_ms": best["ours"] * 1e3, "peer_ms": too_much(error), "peer_bytes": too_much(error)}
    slow = once > SLOW
    best = {"peer": once} | turns({"ours": ours} if slow else {"ours": ours, "peer": peer}, seconds)
    times = {"ours_ms": best["ours"] * 1e3, "peer_ms": best["peer"] * 1e3}
    return times | {"peer_bytes": None if slow else peak_bytes(peer)}


@contextmanager
def limited_memory() -> Iterator[None]:
    """No more than MEMORY_LIMIT on top of what the process has mapped."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def too_much(error: BaseException) -> str:
    """Return the table entry for a failed allocation; raise any other error again."""
    if not isinstance(error, MemoryError) and not any(part in str(error) for part in ("memory", "alloc")):
        raise error
    return f"over {MEMORY_LIMIT / 2**30:.0f} GB"


def _backward(step: Step, x: Tensor, y: Tensor) -> Callable[[], None]:
    """One step from fresh gradients."""

    def run() -> None:
        x.grad = None
        if isinstance(step, nn.Module):
            step.zero_grad()
        step(x, y).backward()  # type: ignore[no-untyped-call]

    return run


def loss_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"| loss | batch | {OURS}, ms | {PML}, ms | ratio | {OURS}, MB | {PML}, MB | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        time_columns = _against(r["ours_ms"], r["peer_ms"], 2)
        memory_columns = _against(r["ours_bytes"] / 2**20, r["peer_bytes"], 1, 2**20)
        lines.append(f"| {r['loss']} | {r['batch']} x {r['dim']} | {time_columns} | {memory_columns} |")
    return "\n".join(lines)


def _against(ours: float, peer: float | str | None, digits: int, unit: float = 1.0) -> str:
    """Three cells: ours, the peer's, and how many times ours that is."""
    if isinstance(peer, float | int):
        return f"{ours:.{digits}f} | {peer / unit:.{digits}f} | {peer / unit / ours:.1f}"
    return f"{ours:.{digits}f} | {peer or 'not measured'} | "


def triplets(library: str) -> list[dict[str, Any]]:
    """The triplet loss over all triplets, distances not squared: time against the floor, memory, value."""
    results, step = [], _all_triplets(library)
    for size in SIZES:
        x, y = batch(size)
        run, floor = _backward(step, x, y), _backward(_floor, x, y)
        row: dict[str, Any] = {"library": library, "batch": size[0], "dim": size[1]}
        with limited_memory():
            try:
                best = turns({"floor": floor, "loss": run}, 2.0)
                row |= {"ms": best["loss"] * 1e3, "ratio": best["loss"] / best["floor"], "bytes": peak_bytes(run)}
                row["value"] = step(x, y).item()
            except (RuntimeError, MemoryError) as error:
                row["failed"] = too_much(error)
        results.append(row)
    return results


def _floor(x: Tensor, _: Tensor) -> Tensor:
    """Normalize, one similarity matrix, its sum."""
    unit = functional.normalize(x)
    return (unit @ unit.T).sum()


def _all_triplets(library: str) -> Step:
    """Margin 0.2, unit rows, the mean over all triplets."""
    if library == OURS:
        import kinfold

        return kinfold.losses.create("triplet", squared=False)
    if library == PML:
        from pytorch_metric_learning import losses, reducers

        loss: nn.Module = losses.TripletMarginLoss(margin=0.2, reducer=reducers.MeanReducer())
        return loss
    peer = subject(OML, "triplet")
    assert peer is not None
    return lambda x, y: peer[0](functional.normalize(x), y)


def triplet_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| all triplets | batch | ms | x floor | MB | value |", "|---|---|---|---|---|---|"]
    for r in sorted(rows, key=lambda row: row["batch"]):
        first_columns = f"| {r['library']} | {r['batch']} x {r['dim']} | "
        if "failed" in r:
            lines.append(f"{first_columns}{r['failed']} | | {r['failed']} | |")
        else:
            lines.append(
                f"{first_columns}{r['ms']:.2f} | {r['ratio']:.1f} | {r['bytes'] / 2**20:.1f} | {r['value']:.6f} |"
            )
    return "\n".join(lines)
