"""`kinfold train`: from data to a good space in one command; a run that was stopped goes on."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.plugins import Plugins, format_plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.training import Run


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A .toml file, or a name that `kinfold list recipes` shows.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value, as in `loss.k=160`; may be repeated.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The data set; short for --set data.name=...")] = None,
    root: Annotated[Path | None, typer.Option(help="Its folder or file; short for --set data.root=...")] = None,
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
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Check every name and option, print the whole configuration and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Train, evaluate and save. Stopped by a signal, it saves first; killed, it loses a minute at most.

    Example: `kinfold train glyphs --set loss.name=dro-topk --set loss.k=160 --out runs/topk`

    From the weights of another run: `kinfold train images --root photos --from runs/birds`

    On several processes: `torchrun --nproc-per-node 2 -m kinfold train glyphs --out runs/two`
    """
    from kinfold import recipes
    from kinfold.cli.progress import show_training
    from kinfold.training.checking import check
    from kinfold.training.config.parsing import apply_changes, configure, read_tables, to_tables, to_toml
    from kinfold.training.run import Run
    from kinfold.training.run import train as run_training
    from kinfold.training.signals import Stopped
    from kinfold.training.warm_start import inherit_model

    short = {"data.name": data, "data.root": str(root.resolve()) if root else None}
    short |= {"loss.name": loss, "miner.name": miner, "sampler.name": sampler}
    if start is not None:
        Run.open(start)  # raises where it is not the folder of a run
        short["model.weights"] = str(start.resolve())
    asked = [f"{key}={json.dumps(value)}" for key, value in short.items() if value]
    asked += changes or []
    if resume is not None:
        if recipe is not None or asked or out is not None:
            raise ValueError(
                "--resume goes on with a run as it was begun: give the folder alone. To begin a new run from its "
                f"weights: kinfold train RECIPE --from {resume}"
            )
        given, folder = None, resume
        if dry_run:
            echo(to_toml(to_tables(Run.open(resume).config)), nl=False)
            return
        if Run.open(resume).finished and first_rank():
            echo(f"{resume} is finished", err=True)
    else:
        if recipe is None and not any(change.replace(" ", "").startswith("data.name=") for change in asked):
            raise ValueError(
                "say what to train on: a recipe (kinfold train glyphs; kinfold list recipes shows all), data "
                "(kinfold train --data NAME --root ...), or a run to go on with (kinfold train --resume FOLDER)"
            )
        given = configure(
            inherit_model(apply_changes({} if recipe is None else read_tables(recipes.find_recipe(recipe)), asked))
        )
        if dry_run:
            check(given)
            echo(to_toml(to_tables(given)), nl=False)
            return
        folder = free_folder(Path(recipe or given.data.name).stem) if out is None else out
    try:
        with show_training(enabled=not as_json) as callback:
            done = run_training(given, folder, resume=resume is not None, callbacks=[callback])
    except Stopped as stopped:
        if first_rank():
            echo(f"{stopped}, saved; go on with: kinfold train --resume {folder}{format_plugins(plugin)}", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if not first_rank():
        return
    if given is not None and done.config.model.dim != given.model.dim:
        echo(
            f"model.dim is {done.config.model.dim}, not {given.model.dim}: features of that width have no more "
            "dimensions to give",
            err=True,
        )
    if as_json:
        echo(json.dumps({"run": str(done.folder), **done.scores}, indent=2))
    else:
        show(done)
    if done.scores.get("diverged"):
        echo(f"the training came to nothing: {done.scores['ended']}; try a smaller optimizer.lr", err=True)
        raise typer.Exit(1)


def show(run: "Run") -> None:
    """The scores as a table, and where everything lies."""
    from rich.table import Table

    from kinfold.cli.console import Console

    scores = run.scores
    columns = [split for split in ("validation", "test") if split in scores]
    table = Table()
    table.add_column("metric")
    starts = scores.get("start", {}) if scores["steps"] else {}
    for split in columns:
        count = scores.get("classes", {}).get(split)
        heading = f"{split} (inflated)" if split == "test" and scores["inflated"] else split
        table.add_column(heading if count is None else f"{heading}, {count:,} classes", justify="right")
        if split in starts:
            table.add_column("start", justify="right")
            table.add_column("gain", justify="right")
    for name in run.config.evaluation.metrics:
        cells = [name]
        for split in columns:
            value, start = scores[split].get(name), starts.get(split, {}).get(name)
            cells.append(_number(value))
            if split in starts:
                cells += [_number(start), "" if None in (value, start) else f"{value - start:+.4f}"]
        table.add_row(*cells)
    console = Console(file=sys.stdout)
    console.print(table)
    evaluation = run.config.evaluation
    by = f"{scores['selection']} {evaluation.metric}" if scores["selection"] == "validation" else scores["selection"]
    told = f"step {scores['step']} of {scores['steps']}, selected by {by}; {scores['ended']}"
    console.print(told, highlight=False)
    if scores.get("selected_start"):
        console.print(
            "the start was selected: no later step was better, so these are the scores of the weights before training; "
            "try another loss or optimizer.lr, or more steps"
        )
    if columns == ["validation"] and scores["selection"] == "validation":
        console.print("there are no test classes; the step was chosen on these, which flatters them a little")
    if scores["inflated"]:
        console.print("inflated: the steps were chosen by looking at the test classes, for every metric apart")
    if not columns:
        console.print("there are no validation and no test classes: nothing was measured")
    console.print(f"{run.folder}", highlight=False, markup=False, soft_wrap=True)


def free_folder(name: str) -> Path:
    """runs/NAME-1, or the next number that is free."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("several ranks write one run: give its folder with --out")
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder


def first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"
