"""The option `--plugin` of every command that creates something by name."""

from typing import Annotated

import typer


def _load(plugin_names: list[str] | None) -> list[str] | None:
    from kinfold.registry import plugins

    for plugin in plugin_names or []:
        plugins.load(plugin)
    return plugin_names


def format_plugins(plugins: list[str] | None) -> str:
    """The options ` --plugin ...` of a command that continues this one."""
    return "".join(f" --plugin {plugin}" for plugin in plugins or [])


# eager: plugins are loaded before other options are parsed, so commands need no code for it
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        callback=_load,
        is_eager=True,
        help="Your .py file or module that registers a loss, a miner, ...; may be repeated.",
    ),
]
