"""`kinfold list`: what can be used by name."""

import json
from typing import Annotated

import typer

from kinfold import registry
from kinfold.cli.plugins import Plugins


def listing(
    kind: Annotated[
        str | None, typer.Argument(help="losses, miners, sets, metrics, recipes, tables, ...; all without it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Names of losses, miners, metrics and everything else that is created by name.

    Example: `kinfold list metrics`
    """
    kinds = registry.kinds() if kind is None else [kind]
    found = {entry: registry.names(entry) for entry in kinds}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for entry, names in found.items():
        typer.echo(f"{entry}: {', '.join(names)}" if kind is None else "\n".join(names))
