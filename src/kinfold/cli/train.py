"""`kinfold train`: train a model from a recipe or a dataset; `--resume` continues a run."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins, format_plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kinfold.training import Run


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A .toml file, or a name that `kinfold list recipes` shows.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value, as in `loss.k=160`; may be repeated.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The dataset; short for --set data.name=...")] = None,
    root: Annotated[Path | None, typer.Option(help="Its folder or file; short for --set data.root=...")] = None,
    drop: Annotated[
        Path | None, typer.Option(help="Leave out what this CSV file of `kinfold data audit` marks; data.drop.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="The loss; short for --set loss.name=...")] = None,
    miner: Annotated[str | None, typer.Option(help="The miner, or none; short for --set miner.name=...")] = None,
    sampler: Annotated[str | None, typer.Option(help="The sampler; short for --set sampler.name=...")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder of the run; else runs/NAME-1, ...")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Start from the weights of this run; short for --set model.weights=FOLDER."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Check every name and option, print the whole configuration and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Train, evaluate and save. A signal saves before it stops training; a kill loses a minute at most.

    Example: `kinfold train glyphs --set loss.name=dro-topk --set loss.k=160 --out runs/topk`

    From the weights of another run: `kinfold train images --root photos --from runs/birds`

    On several processes: `torchrun --nproc-per-node 2 -m kinfold train glyphs --out runs/two`
    """
    from kinfold import recipes
    from kinfold.cli.progress import show_training
    from kinfold.training import Run, Stopped, configure
    from kinfold.training import train as run_training
    from kinfold.training.checking import check
    from kinfold.training.config import apply_changes, read_tables, to_tables, to_toml
    from kinfold.training.initial_model import inherit_model

    options = {"data.name": data, "data.root": str(root.resolve()) if root else None}
    options |= {"data.drop": str(drop.resolve()) if drop else None}
    options |= {"loss.name": loss, "miner.name": miner, "sampler.name": sampler}
    if start is not None:
        Run.open(start)  # raises where it is not the folder of a run
        options["model.weights"] = str(start.resolve())
    all_changes = [f"{key}={json.dumps(value)}" for key, value in options.items() if value]
    all_changes += changes or []
    if resume is not None:
        if recipe is not None or all_changes or out is not None:
            raise ValueError(
                "--resume continues a run as it was begun: give the folder alone. To begin a new run from its weights: "
                f"kinfold train RECIPE --from {resume}"
            )
        config, folder = None, resume
        if dry_run:
            echo(to_toml(to_tables(Run.open(resume).config)), nl=False)
            return
        if Run.open(resume).finished and is_first_process():
            echo(f"{resume} is finished", err=True)
    else:
        if recipe is None and not any(change.replace(" ", "").startswith("data.name=") for change in all_changes):
            raise ValueError(
                "say what to train on: a recipe (kinfold train glyphs; kinfold list recipes shows all), data "
                "(kinfold train --data NAME --root ...), or a run to continue (kinfold train --resume FOLDER)"
            )
        tables = {} if recipe is None else read_tables(recipes.find_recipe(recipe))
        if not tables and recipe is not None:
            raise ValueError(f"{recipe} is empty: `kinfold list recipes glyphs` prints a recipe to begin with")
        config = configure(inherit_model(apply_changes(tables, all_changes)))
        if dry_run:
            check(config)
            echo(to_toml(to_tables(config)), nl=False)
            return
        folder = find_free_folder(Path(recipe or config.data.name).stem) if out is None else out
    try:
        with show_training(enabled=not as_json) as callback:
            run = run_training(config, folder, resume=resume is not None, callbacks=[callback])
    except Stopped as stopped:
        if is_first_process():
            echo(f"{stopped}, saved; continue with: kinfold train --resume {folder}{format_plugins(plugin)}", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if not is_first_process():
        return
    if config is not None and run.config.model.dim != config.model.dim:
        echo(
            f"model.dim is {run.config.model.dim}, not {config.model.dim}: the features have no more dimensions",
            err=True,
        )
    if as_json:
        echo(json.dumps({"run": str(run.folder), **run.scores}, indent=2))
    else:
        show_scores(run)
    if run.scores.get("diverged"):
        echo(f"training diverged: {run.scores['ended']}; try a smaller optimizer.lr", err=True)
        raise typer.Exit(1)


def show_scores(run: "Run") -> None:
    """Print the scores as a table, what they mean, and the folder of the run."""
    from rich.table import Table

    from kinfold.cli.console import Console
    from kinfold.training.display import format_score, tabulate_scores

    scores, evaluation = run.scores, run.config.evaluation
    rows = tabulate_scores(scores, evaluation.metrics)
    table = Table()
    for name in rows[0] if rows else ["metric"]:
        table.add_column(_name_column(name, scores), justify="left" if name == "metric" else "right")
    for row in rows:
        table.add_row(*(format_score(name, value) for name, value in row.items()))
    console = Console(file=sys.stdout)
    console.print(table)
    rule = scores["selection"]
    by = f"{rule} {evaluation.metric}" if rule == "validation" else rule
    console.print(f"step {scores['step']} of {scores['steps']}, selected by {by}; {scores['ended']}", highlight=False)
    if scores.get("selected_start"):
        console.print(
            "the start was selected: no later step was better, so these are the scores of the weights before training; "
            "try another loss or optimizer.lr, or more steps"
        )
    splits = [split for split in ("validation", "test") if split in scores]
    if splits == ["validation"] and rule == "validation":
        console.print(
            "there are no test classes; the step was selected on the validation classes, so their scores are slightly "
            "too high"
        )
    if scores["inflated"]:
        console.print("inflated: for every metric, the step was selected on the test classes")
    if not splits:
        console.print("there are no validation and no test classes: nothing was measured")
    console.print(f"{run.folder}", highlight=False, markup=False, soft_wrap=True)


def _name_column(name: str, scores: "Mapping[str, Any]") -> str:
    """Return the heading of a column: a split with its number of classes, or start or gain of the split before."""
    if name.endswith((" start", " gain")):
        return name.rpartition(" ")[2]
    heading = f"{name} (inflated)" if name == "test" and scores["inflated"] else name
    count = scores.get("classes", {}).get(name)
    return heading if count is None else f"{heading}, {count:,} classes"


def find_free_folder(name: str) -> Path:
    """Return runs/NAME-1, or the first number that is free."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("several processes write one run: give its folder with --out")
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder


def is_first_process() -> bool:
    """Return whether this is the process that prints."""
    return os.environ.get("RANK", "0") == "0"
