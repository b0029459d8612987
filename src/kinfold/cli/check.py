"""`kinfold check`: whether a loss keeps the contract of the losses of this package."""

import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from torch import nn

    from kinfold.testing import LossReport

_MARKS = {"holds": "ok     ", "fails": "FAILS  ", "skipped": "-      "}
_CLASSES = 6


def check(
    loss: Annotated[
        str,
        typer.Argument(help="A .py file, FILE.py:CLASS, a registered name, or MODULE:CLASS of an installed package."),
    ],
    only: Annotated[list[str] | None, typer.Option(help="Run this check only; may be repeated.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the loss as NAME=VALUE; may be repeated.")
    ] = None,
    dim: Annotated[int, typer.Option(help="Dimensions of the embeddings.", min=1)] = 16,
    device: Annotated[
        str, typer.Option(help="Device of the check `second device`: cuda, mps, second (needs g++), or none.")
    ] = "second",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check a loss: gradients, odd batches, precisions, ranks, another device. Exit code 1 if a check fails.

    Example: `kinfold check my_loss.py`, or `kinfold check pytorch_metric_learning.losses:CircleLoss`

    A loss is a torch module that is called as loss(embeddings, labels). Arguments `num_classes` and `dim` (or
    `embedding_size`) are filled in. A file is executed: check files that you trust.
    """
    from kinfold.testing import check_loss

    settings = dict(_parse_option(entry) for entry in option or [])
    target = None if device == "none" else device
    reports = [
        check_loss(_create(kind, settings, dim), dim=dim, checks=only, device=target, name=name)
        for name, kind in _find_losses(loss).items()
    ]
    if as_json:
        echo(json.dumps([report.as_json() for report in reports], indent=2))
    else:
        for report in reports:
            _print(report)
    if not all(report.passed for report in reports):
        raise typer.Exit(1)


def _print(report: "LossReport") -> None:
    echo(f"{report.loss}")
    width = max(len(finding.check) for finding in report)
    for finding in report:
        echo(f"  {_MARKS[finding.status]}{finding.check:{width}}  {finding.message}".rstrip())
    count = sum(finding.status != "skipped" for finding in report)
    echo(f"  {count - len(report.failures)} of {count} checks hold")


def _find_losses(target: str) -> dict[str, Any]:
    """Return the classes that a command line argument names."""
    from torch import nn

    from kinfold import registry

    source, _, name = target.partition(":")
    if not source.endswith(".py") and not name:
        return {target: registry.resolve("losses", target)}
    module = _import_file(source) if source.endswith(".py") else _import_module(source)
    if name:
        if not hasattr(module, name):
            raise ValueError(f"{source} has no {name!r}{registry.suggest(name, vars(module))}")
        return {name: getattr(module, name)}
    kinds = {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, nn.Module) and kind.__module__ == module.__name__
    }
    if not kinds:
        raise ValueError(f"{source} defines no torch module: write a class with forward(self, embeddings, labels)")
    return kinds


def _import_file(source: str) -> Any:
    import importlib.util
    import sys

    from kinfold.files.paths import describe_missing

    path = Path(source)
    if not path.is_file():
        raise ValueError(describe_missing(path))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module  # classes are looked up there when they are copied
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _import_module(source: str) -> Any:
    try:
        return importlib.import_module(source)
    except ImportError as error:
        raise ValueError(f"{source} cannot be imported: {error}") from error


def _create(kind: Any, settings: dict[str, Any], dim: int) -> "nn.Module":
    from kinfold.registry.options import check_types

    parameters = inspect.signature(kind).parameters
    _check_options(kind, settings, parameters)
    check_types(kind.__name__, kind, {name: value for name, value in settings.items() if name in parameters})
    known = {"num_classes": _CLASSES, "dim": dim, "embedding_size": dim}
    needed = {
        name: value
        for name, value in known.items()
        if name in parameters and parameters[name].default is inspect.Parameter.empty
    }
    if "dim" in parameters and "num_classes" in parameters:  # class vectors, where both are optional
        needed = {"num_classes": _CLASSES, "dim": dim} | needed
    # a constructor that passes *args on does not say what it needs: try class vectors
    message = ""
    for extra in ({}, {"num_classes": _CLASSES, "embedding_size": dim}):
        try:
            created: nn.Module = kind(**needed | extra | settings)
        except TypeError as error:
            message = message or str(error)
        else:
            return created
    raise ValueError(f"the loss cannot be created: {message}; --set NAME=VALUE passes an option")


def _check_options(kind: Any, settings: dict[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raise a ValueError for an option that the constructor does not take."""
    from kinfold.registry import suggest

    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in settings:
        if name not in parameters:
            takes = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
            raise ValueError(f"{kind.__name__} has no option {name!r}{suggest(name, parameters)}; {takes}")


def _parse_option(entry: str) -> tuple[str, Any]:
    name, separator, text = entry.partition("=")
    if not separator:
        raise ValueError(f"--set {entry}: write NAME=VALUE")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text
