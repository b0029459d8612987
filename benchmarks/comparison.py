"""kinfold beside its peers: what one has to read, what a loss and an evaluation cost, what an install brings.

    python -m benchmarks.comparison --environments DIR     # all of it: about ten minutes
    python -m benchmarks.comparison --only reading         # a part: reading, losses, evaluation, installs
    python -m benchmarks.comparison --fill                 # writes the last numbers into docs/comparison.md

DIR holds one virtual environment for each library, named like its distribution; docs/comparison.md says how they are
made. Without it open-metric-learning and the installs are left out. pytorch-metric-learning takes turns with kinfold in
one process, open-metric-learning runs in its own, against the same floor. All with one thread, and times are of the
processor: what else the machine does then counts little.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.installs import install_table, installs
from benchmarks.reading import entered, lines_to_read, only_code
from benchmarks.timing import peak_bytes

ROOT = Path(__file__).parent.parent
OURS, PML, OML = "kinfold", "pytorch-metric-learning", "open-metric-learning"
PACKAGES = {OURS: "kinfold", PML: "pytorch_metric_learning", OML: "oml"}
PARTS = ("reading", "losses", "evaluation", "installs")
Size = tuple[int, int, int]  # batch, dimension, items of a class
SIZES: list[Size] = [(128, 512, 4), (640, 1024, 5)]
PROXY_CLASSES = 100
MEMORY_LIMIT = 8 * 2**30
SLOW = 2.0  # seconds; a slower peer is timed once
READ = ("contrastive", "triplet", "multi-similarity")
# the one name that open-metric-learning's losses import from torchvision, whose own library does not load beside every
# build of torch; nothing measured here runs a line of it
STAND_IN = """import sys, types
for name in ("torchvision", "torchvision.ops"): sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision.ops"].MLP = None
"""
IMPORTS = {
    OURS: "import kinfold; kinfold.losses.create('triplet')",
    PML: "from pytorch_metric_learning import losses; losses.TripletMarginLoss()",
    OML: STAND_IN + "from oml.losses import TripletLossWithMiner; TripletLossWithMiner(margin=0.2)",
}
Step = Callable[[Tensor, Tensor], Tensor]


def subject(library: str, name: str) -> tuple[Step, nn.Module] | None:
    """How a library computes a loss from embeddings and labels, and its module; None where it has no such loss."""
    if library == OURS:
        import kinfold

        ours: nn.Module = kinfold.losses.create(name)
        return ours, ours
    if library == OML:
        exec(STAND_IN)
        theirs: nn.Module = import_module("oml.losses").TripletLossWithMiner(margin=0.2)
        return (theirs, theirs) if name == "triplet" else None
    from pytorch_metric_learning import losses, miners  # type: ignore[import-untyped]

    if name == "multi-similarity":  # ours mines by itself
        similarity, miner = losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner()
        return lambda x, y: similarity(x, y, miner(x, y)), similarity
    found: nn.Module = {"contrastive": losses.ContrastiveLoss, "triplet": losses.TripletMarginLoss}[name]()
    return found, found


def batch(size: Size, classes: int | None = None) -> tuple[Tensor, Tensor]:
    rows, dim, per_class = size
    x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return x, torch.arange(rows) // per_class % (classes or rows)


def reading(library: str) -> list[dict[str, Any]]:
    """For each loss: files, functions and lines entered by one call, the calls, and the classes it inherits from."""
    package = Path(str(import_module(PACKAGES[library]).__file__)).parent
    rows, read = [], {}
    for name in READ:
        made = subject(library, name)
        if made is None:
            continue
        step, module = made
        x, y = batch((32, 16, 4))
        step(x, y)  # what is done once only is not part of the way
        way = entered(lambda step=step, x=x, y=y: step(x, y), package)  # type: ignore[misc]
        read[name] = lines_to_read(way.calls)
        row: dict[str, Any] = {"loss": name, "library": library, "files": len({c.co_filename for c in way.calls})}
        row |= {"functions": len(way.functions), "calls": way.functions.total(), "run": len(only_code(way.run))}
        row["ancestors"] = len(set(type(module).__mro__[1:]) - set(nn.Module.__mro__))
        rows.append(row)
    for row in rows:
        shared = set().union(*(lines for name, lines in read.items() if name != row["loss"]))
        row |= {"lines": len(read[row["loss"]]), "own": len(read[row["loss"]] - shared) if shared else ""}
    return rows


def reading_table(rows: list[dict[str, Any]]) -> str:
    keys = ("loss", "library", "files", "functions", "lines", "own", "run", "calls", "ancestors")
    titles = ("loss", "library", "files", "functions", "their lines", "own lines", "lines run", "calls", "ancestors")
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
    ordered = sorted(rows, key=lambda row: READ.index(row["loss"]))
    return "\n".join([head, *("| " + " | ".join(str(row[key]) for key in keys) + " |" for row in ordered)])


def both(sizes: list[Size], seconds: float) -> list[dict[str, Any]]:
    """One step of every loss that pytorch-metric-learning has too, forward and backward, taking turns."""
    from benchmarks import losses as bench
    from benchmarks.peer import peers

    found: list[dict[str, Any]] = []
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
            found.append(row)
            print(loss_table([row]).splitlines()[-1], flush=True)
    return found


def _beside(ours: Callable[[], None], theirs: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Times of both, and the memory of the peer; a slow one is timed once and its memory, which takes the profiler far
    longer, is left out; one that needs too much is told in words."""
    try:
        with limited_memory():
            once = turns({"peer": theirs}, 0.0, least=1)["peer"]
    except (RuntimeError, MemoryError) as error:
        best = turns({"ours": ours}, seconds)
        return {"ours_ms": best["ours"] * 1e3, "peer_ms": too_much(error), "peer_bytes": too_much(error)}
    slow = once > SLOW
    best = {"peer": once} | turns({"ours": ours} if slow else {"ours": ours, "peer": theirs}, seconds)
    told = {"ours_ms": best["ours"] * 1e3, "peer_ms": best["peer"] * 1e3}
    return told | {"peer_bytes": None if slow else peak_bytes(theirs)}


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
    """How the tables tell of an allocation that failed; any other error goes on."""
    if not isinstance(error, MemoryError) and not any(word in str(error) for word in ("memory", "alloc")):
        raise error
    return f"over {MEMORY_LIMIT / 2**30:.0f} GB"


def turns(works: dict[str, Callable[[], Any]], seconds: float, least: int = 5) -> dict[str, float]:
    """Seconds of the processor for one call of each, the minimum over rounds in which they take turns."""
    best, spent, rounds = dict.fromkeys(works, float("inf")), 0.0, 0
    while rounds < least or (spent < seconds and rounds < 60):
        for name, work in works.items():
            begin = time.process_time()
            work()
            took = time.process_time() - begin
            best[name], spent = min(best[name], took), spent + took
        rounds += 1
    return best


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
        time_told = _against(r["ours_ms"], r["peer_ms"], 2)
        memory_told = _against(r["ours_bytes"] / 2**20, r["peer_bytes"], 1, 2**20)
        lines.append(f"| {r['loss']} | {r['batch']} x {r['dim']} | {time_told} | {memory_told} |")
    return "\n".join(lines)


def _against(ours: float, peer: float | str | None, digits: int, unit: float = 1.0) -> str:
    """Three cells: ours, the peer's, and how many times ours that is."""
    if isinstance(peer, float | int):
        return f"{ours:.{digits}f} | {peer / unit:.{digits}f} | {peer / unit / ours:.1f}"
    return f"{ours:.{digits}f} | {peer or 'not measured'} | "


def triplets(library: str) -> list[dict[str, Any]]:
    """The triplet loss over all triplets, distances not squared: time against the floor, memory, value."""
    found, step = [], _all_triplets(library)
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
        found.append(row)
    return found


def _floor(x: Tensor, _: Tensor) -> Tensor:
    """Normalise, one similarity matrix, its sum."""
    unit = functional.normalize(x)
    return (unit @ unit.T).sum()


def _all_triplets(library: str) -> Step:
    """Margin 0.2, unit rows, the mean over all triplets."""
    if library == OURS:
        import kinfold

        return kinfold.losses.create("triplet", squared=False)
    if library == PML:
        from pytorch_metric_learning import losses, reducers

        theirs: nn.Module = losses.TripletMarginLoss(margin=0.2, reducer=reducers.MeanReducer())
        return theirs
    made = subject(OML, "triplet")
    assert made is not None
    return lambda x, y: made[0](functional.normalize(x), y)


def triplet_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| all triplets | batch | ms | x floor | MB | value |", "|---|---|---|---|---|---|"]
    for r in sorted(rows, key=lambda row: row["batch"]):
        own = f"| {r['library']} | {r['batch']} x {r['dim']} | "
        if "failed" in r:
            lines.append(f"{own}{r['failed']} | | {r['failed']} | |")
        else:
            lines.append(f"{own}{r['ms']:.2f} | {r['ratio']:.1f} | {r['bytes'] / 2**20:.1f} | {r['value']:.6f} |")
    return "\n".join(lines)


def evaluation(python: Path | None, small: bool) -> dict[str, list[dict[str, Any]]]:
    """Time and memory of an evaluation at the sizes of CUB-200-2011 and Stanford Online Products."""
    import kinfold
    from benchmarks import evaluate as bench

    found: dict[str, list[dict[str, Any]]] = {}
    for size, least in [("cub", 3), ("sop", 1)][: 1 if small else 2]:
        works = {n: w for n, w in bench.subjects(size).items() if n.startswith(("float32", "kinfold: recall", "pyt"))}
        best = turns(works, 0.0, least)
        floor = best["float32 product alone (the floor)"]
        rows = [{"name": n, "seconds": s, "ratio": s / floor, **bench.peak(size, n)} for n, s in best.items()]
        if python is not None:
            x, labels = bench.data(*bench.SIZES[size])
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"x": x, "labels": torch.from_numpy(labels)}, Path(folder) / "rows.pt")
                row = child(python, "retrieval", folder)
            score = kinfold.metrics.evaluate(x, labels, metrics=["recall@1"])["recall@1"]
            rows.append({**row, "name": f"{OML}: CMC@1,10,100, P@1", "difference": abs(row["cmc@1"] - score)})
        found["{:,} x {}, {:,} classes".format(*bench.SIZES[size][:3])] = rows
        print(evaluation_table(found), "\n", flush=True)
    return found


def retrieval(folder: str) -> dict[str, Any]:
    """The same with open-metric-learning's functions, in its own process, with the floor beside it."""
    batched_knn = import_module("oml.functional.knn").batched_knn
    calc_retrieval_metrics = import_module("oml.functional.metrics").calc_retrieval_metrics

    held = torch.load(Path(folder) / "rows.pt", weights_only=True)
    x, labels = held["x"], held["labels"]
    buffer, every, found = torch.empty(1024, len(x)), torch.arange(len(x)), {}

    def product() -> None:
        for block in x.split(1024):
            torch.mm(block, x.T, out=buffer[: len(block)])

    def work() -> None:
        _, retrieved, relevant = batched_knn(x, every, every, top_n=100, labels_gt=labels)
        ks = {"cmc_top_k": (1, 10, 100), "precision_top_k": (1,), "map_top_k": ()}
        found.update(calc_retrieval_metrics(retrieved, relevant, verbose=False, **ks))

    Path("/proc/self/clear_refs").write_text("5")
    before = _held("VmRSS")
    best = turns({"work": work}, 0.0, least=1)
    above = _held("VmHWM") - before
    ratio = best["work"] / turns({"floor": product}, 0.0, least=2)["floor"]
    return {"seconds": best["work"], "ratio": ratio, "above": above, "cmc@1": float(found["cmc"][1])}


def _held(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def evaluation_table(data: dict[str, list[dict[str, Any]]]) -> str:
    tables = []
    for title, rows in data.items():
        head = [f"| {title} | seconds | x floor | memory above the inputs |", "|---|---|---|---|"]
        lines = [f"| {r['name']} | {r['seconds']:.2f} | {r['ratio']:.2f} | {r['above'] / 2**30:.2f} GB |" for r in rows]
        tables.append("\n".join(head + lines))
    return "\n\n".join(tables)


def child(python: Path | str, what: str, argument: str) -> Any:
    """What another interpreter found, which may hold another library."""
    command = [str(python), "-m", "benchmarks.comparison", "--child", what, argument]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(parts: list[str], environments: dict[str, Path], small: bool, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    others = {OML: environments[OML]} if OML in environments else {}
    pythons: dict[str, Path | str] = {OURS: sys.executable, PML: sys.executable, **others}
    if "reading" in parts:
        found["reading"] = [row for name, python in pythons.items() for row in child(python, "reading", name)]
        print(reading_table(found["reading"]), "\n", flush=True)
    if "installs" in parts and environments:
        found["installs"] = installs(environments, IMPORTS)
        print(install_table(found["installs"]), "\n", flush=True)
    if "losses" in parts:
        found["triplets"] = [row for name, python in pythons.items() for row in child(python, "triplets", name)]
        print(triplet_table(found["triplets"]), "\n", flush=True)
        found["losses"] = both(SIZES[: 1 if small else 2], seconds)
    if "evaluation" in parts:
        found["evaluation"] = evaluation(environments.get(OML), small)
    return found


def fill_page(data: dict[str, Any]) -> None:
    from benchmarks.docs import fill

    page = ROOT / "docs" / "comparison.md"
    tables: dict[str, Callable[[Any], str]] = {"reading": reading_table, "installs": install_table}
    tables |= {"triplets": triplet_table, "losses": loss_table, "evaluation": evaluation_table}
    for part, table in tables.items():
        if part in data:
            versions = ", ".join(f"{key} {value}" for key, value in data["about"][part].items())
            fill(page, part, f"{table(data[part])}\n\nMeasured with {versions}.")


def about() -> dict[str, Any]:
    import kinfold

    found = {"torch": torch.__version__, OURS: kinfold.__version__, PML: metadata.version(PML)}
    return found | {"threads": torch.get_num_threads(), "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="folder of one virtual environment for each library")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--small", action="store_true", help="the smaller size of losses and of evaluation alone")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each loss")
    parser.add_argument("--json", type=Path, default=Path("results/bench_comparison.json"))
    parser.add_argument("--fill", action="store_true", help="write the numbers of an earlier run into the page")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # of children, and of libraries that are loaded later
    torch.set_num_threads(1)
    if arguments.child:
        what, argument = arguments.child
        work: dict[str, Callable[[str], Any]] = {"reading": reading, "triplets": triplets, "retrieval": retrieval}
        print(json.dumps(work[what](argument)))
        return
    kept = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"about": {}}
    if arguments.fill:
        fill_page(kept)
        return
    folder = arguments.environments
    environments = {} if folder is None else {name: (folder / name / "bin" / "python").absolute() for name in PACKAGES}
    found = measure(arguments.only, environments, arguments.small, arguments.seconds)
    kept |= {**found, "about": kept["about"] | dict.fromkeys(found, about())}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(kept, indent=1))
    print(f"written to {arguments.json}; --fill writes it into the page")


if __name__ == "__main__":
    main()
