"""`kinfold list`: what can be used by name, and what one of the names is."""

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kinfold import recipes, registry
from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo
from kinfold.papers import published

_ROOT = Path(registry.__file__).parents[1]


def listing(
    kind: Annotated[
        str | None, typer.Argument(help="losses, miners, sets, metrics, recipes, tables, ...; all without it.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="One of them: what it is, and its options.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Names of losses, miners, metrics and everything else that is created by name; with a name, what that one is.

    Example: `kinfold list losses triplet`
    """
    if kind is not None and name is not None:
        text, options = _described(kind, name)
        if as_json:
            echo(json.dumps({"kind": kind, "name": name, "text": text, "options": options}, indent=2))
            return
        echo(text)
        if options:
            echo("\nOptions")
            width = max(map(len, options))
            for option, value in options.items():
                echo(f"  {option:<{width}}  {value}")
        return
    kinds = registry.kinds() if kind is None else [kind]
    found = {entry: registry.names(entry) for entry in kinds}
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if kind is None:
        for entry, names in found.items():
            echo(f"{entry}: {', '.join(names)}")
        return
    width = max(map(len, found[kind]))
    for known in found[kind]:
        echo(f"{known:<{width}}  {summary(kind, known)}".rstrip())


def summary(kind: str, name: str) -> str:
    """One line on a name: read from its file, as importing all of them would take seconds; empty where it says
    nothing."""
    if kind in ("recipes", "tables"):
        first = _described(kind, name)[0].splitlines()[0]
        return first.removeprefix("#").strip() if first.startswith("#") else ""
    places = registry.targets(kind)
    module, attribute = places[name].split(":")
    loaded = getattr(sys.modules.get(module), "__file__", None)
    file = Path(loaded) if loaded else _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file():  # of another package, not imported yet
        return ""
    tree = ast.parse(file.read_text())
    text = None
    if sum(place.startswith(f"{module}:") for place in places.values()) == 1:
        text = ast.get_docstring(tree)
    for node in tree.body:
        if text is None and isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            text = ast.get_docstring(node)
    return (text or "").split("\n\n")[0].replace("\n", " ")


def _described(kind: str, name: str) -> tuple[str, dict[str, str]]:
    """What stands under a name, and its options with their defaults."""
    if kind == "recipes":
        return recipes.find_recipe(name).read_text().rstrip(), {}
    if kind == "tables":
        published.load_table(name)  # raises with the nearest name
        return (published.FOLDER / f"{name}.toml").read_text().rstrip(), {}
    target = registry.resolve(kind, name)
    texts = [inspect.getdoc(target)]
    module = f"{target.__module__}:"
    if sum(place.startswith(module) for place in registry.targets(kind).values()) == 1:
        # a file for this alone says at its top what it is
        texts.insert(0, inspect.cleandoc(sys.modules[target.__module__].__doc__ or ""))
    text = "\n\n".join(filter(None, map(_without_examples, texts)))
    options = {
        key: "needed" if parameter.default is parameter.empty else _shown(parameter.default)
        for key, parameter in inspect.signature(target).parameters.items()
    }
    return text or f"{target.__module__}:{target.__qualname__} has no docstring", options


def _without_examples(text: str | None) -> str:
    paragraphs = (text or "").strip().split("\n\n")
    return "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.lstrip().startswith(">>>"))


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str | bool | int | float) else str(value)
