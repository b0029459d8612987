"""What the training loop costs: ours against the bare loop of the same model, loss and data, and against the trainer of
the installed pytorch-metric-learning; a step of DRML against its baseline; both memory formats of image networks; and
what the recipe for glyphs reaches.

    make bench-training
    python -m benchmarks.training --rounds 3 --steps 20 --no-glyphs
    python -m benchmarks.training --memory-formats-only

The bare loop is what nobody can do without: take the batch out of the same array, zero the gradients, forward, loss,
backward, step. All three take turns; times are minima. Nothing is evaluated or saved meanwhile, as the bare loop does
not do that either.
"""

import argparse
import gc
import io
import json
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import kinfold
from kinfold import models, recipes
from kinfold.data import Batches, Dataset, Rows, create_dataset
from kinfold.data.normalize import SMALL_GRAY
from kinfold.training import Step, Trainer, components, configure
from kinfold.training.config import resolution
from kinfold.training.config.parsing import apply_changes, read_tables
from kinfold.training.loop.optimizers import build_optimizer
from kinfold.training.memory_format import time_memory_formats

Work = Callable[[], None]


@dataclass(frozen=True)
class Problem:
    """One model, loss and data; `normalize` makes a batch of items ready."""

    name: str
    tables: dict[str, Any]
    data: Dataset
    normalize: Callable[[Tensor], Tensor] | None
    steps: int


def problems(steps: int) -> list[Problem]:
    """Characters with a small network, and a linear head on features as large as those of CUB-200-2011."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 59)
    rows = (draw.normal(size=(100, 1280))[labels] + draw.normal(size=(len(labels), 1280))).astype(np.float16)
    features = create_dataset("features", Rows(rows), labels, np.full(len(labels), "train"))
    glyphs = kinfold.data.load("glyphs").subset("train")
    return [
        Problem(
            "conv4, 128 glyphs, multi-similarity", read_tables(recipes.find_recipe("glyphs")), glyphs, SMALL_GRAY, steps
        ),
        Problem(
            "linear head 1280 to 512, 80 rows, margin with distance-weighted mining",
            read_tables(recipes.find_recipe("features")),
            features,
            None,
            20 * steps,
        ),
    ]


def configured(problem: Problem) -> Any:
    config = configure(problem.tables, ["evaluation.selection=last", "data.validation=0", "model.init=random"])
    return resolution.resolve_config(config, problem.data)


def ours(problem: Problem) -> Work:
    config = configured(problem)
    model = components.build_model(config)
    objective = components.build_objective(config, len(problem.data.classes), model)
    sampler = components.build_sampler(config, problem.data.labels)
    batches = Batches(problem.data, None, problem.normalize, batch_sampler=sampler, mode="L")
    trainer = Trainer(
        Step(model, objective),
        build_optimizer(model, objective, config.optimizer),
        batches,
        sampler,
        0,
        config.schedule,
    )

    def work() -> None:
        trainer.steps += problem.steps
        trainer.fit()

    return work


def bare(problem: Problem) -> Work:
    config = configured(problem)
    model = components.build_model(config)
    loss = components.build_objective(config, len(problem.data.classes), model).loss
    steps = build_optimizer(model, loss, config.optimizer)
    sampler = components.build_sampler(config, problem.data.labels)
    array, labels = problem.data.items.array(), problem.data.labels  # type: ignore[attr-defined]
    model.train()

    epoch = 0

    def work() -> None:
        nonlocal epoch
        steps_done = 0
        while steps_done < problem.steps:
            sampler.set_epoch(epoch)
            epoch += 1
            for batch in sampler:
                items = torch.from_numpy(array[batch])
                images = items.float() if problem.normalize is None else problem.normalize(items[:, None])
                steps.zero_grad()
                value = loss(model(images), labels[batch])
                value.backward()
                steps.step()
                steps_done += 1
                if steps_done == problem.steps:
                    return

    return work


def peer(problem: Problem) -> Work:
    """pytorch-metric-learning's own trainer, losses, miners and sampler, with torch's data loader as it makes it."""
    from pytorch_metric_learning import losses, miners, samplers, trainers

    config = configured(problem)
    model = components.build_model(config)
    loss: nn.Module
    if config.miner is None:
        loss, mining = losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5), miners.MultiSimilarityMiner(0.1)
    else:
        loss, mining = losses.MarginLoss(0.2, nu=0, beta=1.2, learn_beta=True), miners.DistanceWeightedMiner()
    parameters = {"trunk_optimizer": torch.optim.Adam(model.parameters(), lr=config.optimizer.lr)}
    if [*loss.parameters()]:
        parameters["metric_loss_optimizer"] = torch.optim.Adam(loss.parameters(), lr=5e-4)
    size, per_class = config.sampler.options["batch_size"], config.sampler.options["per_class"]
    labels = problem.data.labels.tolist()
    trainer = trainers.MetricLossOnly(
        models={"trunk": model, "embedder": nn.Identity()},
        optimizers=parameters,
        batch_size=size,
        loss_funcs={"metric_loss": loss},
        mining_funcs={"tuple_miner": mining},
        dataset=_Items(problem),
        sampler=samplers.MPerClassSampler(labels, per_class, size, length_before_new_iter=problem.steps * size),
        iterations_per_epoch=problem.steps,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
    )

    def work() -> None:
        # its progress bar would fill the screen
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            trainer.train(num_epochs=1)

    return work


class _Items(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Single items for the peer's loader, ready for the network; normalized before the clock starts."""

    def __init__(self, problem: Problem) -> None:
        array = torch.from_numpy(problem.data.items.array().copy())  # type: ignore[attr-defined]
        self.images = array.float() if problem.normalize is None else problem.normalize(array[:, None])
        self.labels = problem.data.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.labels[index]


def compared(problem: Problem, rounds: int) -> dict[str, Any]:
    """Milliseconds a step, minima over rounds in which the loops take turns."""
    works = {"bare": bare(problem), "ours": ours(problem), "peer": peer(problem)}
    return {"problem": problem.name, **turns(works, rounds, problem.steps)}


def turns(works: dict[str, Work], rounds: int, steps: int) -> dict[str, Any]:
    best = dict.fromkeys(works, float("inf"))
    for work in works.values():
        work()
    gc.collect()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], (time.perf_counter() - start) / steps)
    return {"milliseconds": {name: 1000 * value for name, value in best.items()}}


def relational(rounds: int, steps: int) -> list[dict[str, Any]]:
    """Milliseconds of a step of DRML and of its baseline on the same trunk, in turns, minima."""
    rows = []
    for problem in problems(steps):
        works = {}
        for name in ("drml/proxy-anchor-baseline", "drml/proxy-anchor"):
            tables = apply_changes(
                read_tables(recipes.find_recipe(name)), ["model.dim=512"] if problem.normalize is None else []
            )
            works[name] = ours(replace(problem, tables=tables))
        rows.append(
            {
                "problem": problem.name.partition(", multi")[0].partition(", margin")[0],
                **turns(works, rounds, problem.steps),
            }
        )
    return rows


# backbone, channels and pixels of its images, images
NETWORKS = (
    ("conv4", 1, 28, 128),
    ("efficientnet-lite0", 3, 96, 16),
    ("efficientnet-lite0", 3, 224, 16),
    ("resnet50", 3, 96, 16),
    ("bn-inception", 3, 96, 16),
)


def memory_formats() -> list[dict[str, Any]]:
    """Milliseconds of forward and backward in both memory formats, as the trial at the start of a run measures them."""
    rows = []
    for backbone, channels, pixels, images in NETWORKS:
        model = models.create(backbone, batch_norm="frozen-statistics")
        batch = torch.randn(images, channels, pixels, pixels, generator=torch.Generator().manual_seed(0))
        for precision in ("float32", "bfloat16"):
            times = time_memory_formats(model, batch, precision)
            network = f"{backbone}, {images} images of {pixels} px"
            rows.append({"network": network, "precision": precision, "milliseconds": times})
    return rows


def glyphs() -> dict[str, Any]:
    """The recipe as it stands: seconds of training, evaluations of the validation classes included, and test scores."""
    start = time.perf_counter()
    ended = [start]

    def follow(event: Any) -> None:
        ended[0] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        run = kinfold.train(recipes.find_recipe("glyphs"), Path(folder) / "run", callbacks=[follow])
        return {"seconds": ended[0] - start, "steps": run.scores["steps"], "test": run.scores["test"]}


def tables(results: dict[str, Any]) -> str:
    lines = ["| network | precision | contiguous, ms | channels-last |", "|---|---|---|---|"]
    for entry in results["memory formats"]:
        contiguous, channels_last = entry["milliseconds"].values()
        lines.append(
            f"| {entry['network']} | {entry['precision']} | {contiguous:.0f} | {channels_last / contiguous:.2f} x |"
        )
    if "loops" not in results:
        return "\n".join(lines)
    lines += ["", "| work of a step | bare loop, ms | ours | pytorch-metric-learning's trainer |", "|---|---|---|---|"]
    for entry in results["loops"]:
        took = entry["milliseconds"]
        ratios = [f"{took[name] / took['bare']:.2f} x" for name in ("ours", "peer")]
        lines.append(f"| {entry['problem']} | {took['bare']:.2f} | {' | '.join(ratios)} |")
    lines += ["", "| work of a step | proxy-anchor, ms | DRML with proxy-anchor |", "|---|---|---|"]
    for entry in results["relational"]:
        before, after = entry["milliseconds"].values()
        lines.append(f"| {entry['problem']} | {before:.2f} | {after / before:.2f} x |")
    if results.get("glyphs"):
        recipe = results["glyphs"]
        lines += [
            "",
            f"`kinfold train glyphs`: {recipe['steps']} steps in {recipe['seconds']:.0f} s, recall@1 "
            f"{100 * recipe['test']['recall@1']:.1f} %, MAP@R {100 * recipe['test']['map@r']:.1f} % on unseen classes.",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=15, help="of the network in a round; the head takes 20 times more")
    parser.add_argument("--no-glyphs", action="store_true", help="leave the whole recipe out")
    parser.add_argument("--memory-formats-only", action="store_true", help="leave everything else out")
    parser.add_argument("--out", type=Path, default=Path("results/bench_training.json"))
    options = parser.parse_args()
    about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.machine()}
    results: dict[str, Any] = {"about": about, "memory formats": memory_formats()}
    if not options.memory_formats_only:
        results["loops"] = [compared(p, options.rounds) for p in problems(options.steps)]
        results["relational"] = relational(options.rounds, options.steps)
        results["glyphs"] = None if options.no_glyphs else glyphs()
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1))
    print(tables(results))


if __name__ == "__main__":
    main()
