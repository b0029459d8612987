"""`train`: from a recipe to a finished run."""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kinfold.data import Dataset, convert
from kinfold.data.labeled import find_reader
from kinfold.distributed import ProcessGroup
from kinfold.files.atomic import write_json
from kinfold.files.documents import nan_to_null
from kinfold.models.module_backbone import wrap_module
from kinfold.training.builder import RunBuilder
from kinfold.training.checking import check
from kinfold.training.config.parsing import apply_changes, configure, read_tables, to_tables, to_toml
from kinfold.training.config.settings import PASSED, RunConfig
from kinfold.training.environment import find_differences
from kinfold.training.evaluation import compute_final_scores
from kinfold.training.initial_model import inherit_model
from kinfold.training.loop.trainer import Callback, Event, Trainer
from kinfold.training.run import Run
from kinfold.training.run_folder import RunFolder

Recipe = RunConfig | Mapping[str, Any] | Path | str


def train(
    recipe: Recipe | None = None,
    folder: Path | str | None = None,
    *,
    changes: Sequence[str] = (),
    resume: bool = False,
    dataset: Any = None,
    backbone: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train, evaluate and save.

    Args:
        recipe: A TOML file, tables as a dictionary, or a `RunConfig`. Tables may name a run as model.weights: training
            starts from its weights, and [model] is completed from that run.
        folder: A new folder for the run.
        changes: Changes of the recipe, such as "loss.k=160".
        resume: Continue the run in `folder` with its own configuration. A finished run is returned as it is.
        dataset: Train on this data instead of what the configuration names: a path, a `kinfold.data.Dataset`, a data
            frame, a table, a torch dataset or whatever `kinfold.data.convert` takes. The path becomes part of the
            configuration. Anything else is not stored in the folder: whoever resumes or opens the run passes it again.
        backbone: A module from images to features, instead of the one that the configuration names; see
            `kinfold.models.module_backbone.ModuleBackbone`. It is not stored in the folder either.
        callbacks: Called with every event.

    Returns:
        The run, with its model and scores.

    Raises:
        ValueError: The recipe is wrong, or the folder is in use or not empty.
        Stopped: A signal asked training to stop; everything is saved.

    Examples:
        >>> run = train("recipe.toml", "runs/first", changes=["loss.k=160"])  # doctest: +SKIP
        >>> run.scores["test"]["recall@1"]  # doctest: +SKIP
    """
    if folder is None:
        raise ValueError("give the folder of the run: kinfold.train(recipe, 'runs/first')")
    if resume:
        if recipe is not None or changes:
            raise ValueError("a resumed run keeps its own configuration; give no recipe and no changes")
        return _resume(Run.open(folder, dataset, backbone), callbacks)
    config, dataset = _parse_recipe({} if recipe is None else recipe, changes, dataset)
    passed = None if backbone is None else wrap_module(backbone)
    if passed is not None:
        config = replace(config, model=replace(config.model, backbone=PASSED, weights=None, backbone_options={}))
    check(config)
    run_folder = RunFolder(folder)
    with ProcessGroup() as world, ExitStack() as stack:
        builder = RunBuilder(config, dataset, world, backbone=passed)
        trainer = builder.build_trainer(run_folder, callbacks)
        # nothing is written before everything could be built
        if world.is_first:
            estimate = builder.estimate_time(trainer)
            run_folder.begin(to_toml(to_tables(builder.config)), builder.describe())
            stack.enter_context(run_folder.lock())
            if estimate is not None:
                times = {"step_seconds": estimate.step_seconds, "run_seconds": estimate.run_seconds}
                times |= {"features_seconds": estimate.features_seconds, **estimate.faster}
                trainer.call_back(Event("estimate", 0, trainer.steps, times))
        world.barrier()
        return _fit(builder, trainer, Run(run_folder, builder.config, dataset, passed))


def _resume(run: Run, callbacks: Sequence[Callback]) -> Run:
    run_folder, dataset = run.run_folder, run.dataset
    with ProcessGroup() as world, ExitStack() as stack:
        if run.finished:
            return run
        environment = run_folder.read_environment()
        torch.set_num_threads(environment["threads"])  # another number would round differently
        has_checkpoint = any(run_folder.checkpoints.glob("*.safetensors"))
        config = run.config
        if config.model.memory_format == "auto":  # an earlier version began the run
            config = replace(config, model=replace(config.model, memory_format="contiguous"))
        builder = RunBuilder(config, dataset, world, resumed=has_checkpoint, backbone=run.backbone)
        builder.check_environment(run_folder, environment)
        differences = find_differences(environment, builder.describe())
        if differences and world.is_first:
            warnings.warn(
                f"{run_folder.path} is resumed in another environment ({', '.join(differences)}). The batches stay the "
                "same, but rounding and the draws of each process (dropout, partners in mixup) differ, so the result "
                "will not be bit for bit that of an uninterrupted run; environment.json records it",
                stacklevel=3,
            )
        trainer = builder.build_trainer(run_folder, callbacks)
        if world.is_first:
            stack.enter_context(run_folder.lock())
        world.barrier()
        state = run_folder.read_last_state()
        if world.is_first:
            run_folder.cut_log(0 if state is None else state["log"])
        if state is not None:
            trainer.load_state_dict(state)
        if differences and world.is_first:
            entry = {"step": trainer.step_number, "changed": differences}
            write_json(run_folder.environment, {**environment, "resumed": [*environment.get("resumed", []), entry]})
        world.barrier()
        return _fit(builder, trainer, replace(run, config=builder.config))


def _fit(builder: RunBuilder, trainer: Trainer, run: Run) -> Run:
    trainer.fit()
    finish_run(builder, trainer, run.run_folder)
    return run


def finish_run(builder: RunBuilder, trainer: Trainer, folder: RunFolder) -> None:
    """Evaluate the selected weights when training is over, and write them with their scores."""
    step, weights, scores = compute_final_scores(builder, trainer)
    if builder.world.is_first:
        folder.finish(step, weights, nan_to_null(scores))
    builder.world.barrier()


def _parse_recipe(recipe: Recipe, changes: Sequence[str], data: Any) -> tuple[RunConfig, Dataset | None]:
    """Return the configuration, and the dataset where it is not one that the configuration names."""
    if isinstance(data, str | Path):
        reader, root = find_reader(Path(data)), str(Path(data).resolve())
        changes, data = [*changes, f"data.name={json.dumps(reader)}", f"data.root={json.dumps(root)}"], None
    dataset = None if data is None else convert(data)
    if isinstance(recipe, RunConfig):
        return configure(to_tables(recipe), changes) if changes else recipe, dataset
    tables = apply_changes(recipe if isinstance(recipe, Mapping) else read_tables(recipe), changes)
    if dataset is not None and "name" not in tables.get("data", {}):
        tables = apply_changes(tables, [f"data.name={PASSED}"])
    return configure(inherit_model(tables)), dataset
