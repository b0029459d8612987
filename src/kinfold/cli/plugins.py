"""The option `--plugin` of every command that creates something by name."""

from typing import Annotated

import typer


def _load(given: list[str] | None) -> list[str] | None:
    from kinfold.registry import plugins

    for plugin in given or []:
        plugins.load(plugin)
    return given


def repeated(given: list[str] | None) -> str:
    """The same options again, for a command that goes on."""
    return "".join(f" --plugin {plugin}" for plugin in given or [])


# eager: loaded before any other option is looked at, so that a command need not do anything about it
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        callback=_load,
        is_eager=True,
        help="A .py file (or a module) of yours that registers a loss, a miner, ...; may be repeated.",
    ),
]
