"""`kinfold list`: list registered names, or describe one of them."""

import json
from typing import Annotated

import typer

from kinfold import recipes, registry
from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo
from kinfold.registry.documentation import Argument, describe, summarize


def listing(
    kind: Annotated[
        str | None, typer.Argument(help="losses, miners, sets, metrics, recipes, tables, ...; all kinds by default.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Describe this name and its arguments.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """List the names of losses, miners, metrics, ... or describe one name: text, arguments, types and defaults.

    Example: `kinfold list losses triplet`
    """
    if kind is not None and name is not None:
        _print_name(kind, name, as_json)
        return
    names = {entry: registry.names(entry) for entry in (registry.kinds() if kind is None else [kind])}
    if as_json:
        echo(json.dumps(names, indent=2))
    elif kind is None:
        for entry, entry_names in names.items():
            echo(f"{entry}: {', '.join(entry_names)}")
    else:
        width = max(map(len, names[kind]))
        for entry in names[kind]:
            echo(f"{entry:<{width}}  {_summary(kind, entry)}".rstrip())


def _print_name(kind: str, name: str, as_json: bool) -> None:
    text, arguments = (_file_text(kind, name), {}) if kind in ("recipes", "tables") else describe(kind, name)
    if as_json:
        options = {key: vars(argument) for key, argument in arguments.items()}
        echo(json.dumps({"kind": kind, "name": name, "text": text, "options": options}, indent=2))
        return
    echo(text)
    if arguments:
        echo("\nOptions")
        for key, argument in arguments.items():
            echo(f"  {key}{_signature(argument)}")
            if argument.text:
                echo(f"      {argument.text}")


def _signature(argument: Argument) -> str:
    """`: float = 0.2`, or `: int (required)`."""
    annotation = f": {argument.type}" if argument.type else ""
    return annotation + (" (required)" if argument.default is None else f" = {argument.default}")


def _summary(kind: str, name: str) -> str:
    if kind not in ("recipes", "tables"):
        return summarize(kind, name)
    first = _file_text(kind, name).splitlines()[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _file_text(kind: str, name: str) -> str:
    if kind == "recipes":
        return recipes.find_recipe(name).read_text().rstrip()
    from kinfold.papers import published

    published.load_table(name)  # raises ValueError with the closest name
    return (published.FOLDER / f"{name}.toml").read_text().rstrip()
