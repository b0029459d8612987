"""What the docstring of a registered name says: summary, text, and every argument."""

import ast
import inspect
import json
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from kinfold.registry.lookup import resolve, targets

_ROOT = Path(__file__).parents[2]
_ARGUMENT = re.compile(r" {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: *(.*)")


@dataclass(frozen=True)
class Argument:
    """One argument of a registered class or function.

    Args:
        type: Its annotation, as a string.
        default: Its default value, as a string; None if it is required.
        text: Its entry under `Args:`; empty if it has none.
    """

    type: str
    default: str | None
    text: str


def summarize(kind: str, name: str) -> str:
    """First paragraph of the documentation of a name, read from its file without importing it.

    Args:
        kind: Kind of object, such as "losses".
        name: Registered name.

    Returns:
        One line; empty if there is no docstring or the module is not part of kinfold and not imported yet.
    """
    module, attribute = targets(kind)[name].split(":")
    imported = getattr(sys.modules.get(module), "__file__", None)
    file = Path(imported) if imported else _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file():
        return ""
    tree = ast.parse(file.read_text())
    definitions = [
        node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute
    ]
    docstrings = [ast.get_docstring(node) for node in definitions]
    if _has_own_module(kind, module):
        docstrings.insert(0, ast.get_docstring(tree))
    text = next(filter(None, docstrings), "")
    return text.split("\n\n")[0].replace("\n", " ")


def describe(kind: str, name: str) -> tuple[str, dict[str, Argument]]:
    """Documentation of a name.

    Args:
        kind: Kind of object, such as "losses".
        name: Registered name.

    Returns:
        Text of its docstring without `Args:` and examples, and its arguments by name.

    Raises:
        ValueError: Unknown kind or name.
    """
    target = resolve(kind, name)
    docstrings = [inspect.getdoc(target) or ""]
    if _has_own_module(kind, target.__module__):  # the docstring of the module is about this name only
        docstrings.insert(0, inspect.cleandoc(sys.modules[target.__module__].__doc__ or ""))
    text = "\n\n".join(filter(None, map(_prose, docstrings)))
    return text or f"{target.__module__}:{target.__qualname__} has no docstring", read_arguments(target)


def read_arguments(target: Callable[..., Any]) -> dict[str, Argument]:
    """Arguments of a class or function, with the text that its docstring has under `Args:`."""
    texts = _argument_texts(inspect.getdoc(target) or "")
    return {
        name: Argument(
            type=_format_type(parameter.annotation),
            default=None if parameter.default is parameter.empty else _format_default(parameter.default),
            text=texts.get(name, ""),
        )
        for name, parameter in inspect.signature(target).parameters.items()
    }


def _has_own_module(kind: str, module: str) -> bool:
    return sum(target.startswith(f"{module}:") for target in targets(kind).values()) == 1


def _sections(docstring: str) -> list[tuple[str, list[str]]]:
    """(title, lines) of a Google-style docstring; the title of prose is empty."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in docstring.splitlines():
        if re.fullmatch(r"(Args|Returns|Yields|Raises|Examples?|Attributes):", line):
            sections.append((line[:-1], []))
        elif line and not line.startswith(" ") and sections[-1][0]:
            sections.append(("", [line]))
        else:
            sections[-1][1].append(line)
    return sections


def _prose(docstring: str) -> str:
    paragraphs = "\n".join(
        "\n".join([f"{title}:", *lines] if title else lines)
        for title, lines in _sections(docstring)
        if title not in ("Args", "Example", "Examples")
    ).split("\n\n")
    return "\n\n".join(text.strip("\n") for text in paragraphs if text.strip() and not text.lstrip().startswith(">>>"))


def _argument_texts(docstring: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    current: list[str] = []
    for title, lines in _sections(docstring):
        for line in lines if title == "Args" else []:
            if entry := _ARGUMENT.fullmatch(line):
                current = [name.lstrip("*") for name in entry[1].split(", ")]
                texts |= dict.fromkeys(current, entry[2])
            else:
                texts |= {name: f"{texts[name]} {line.strip()}".strip() for name in current}
    return texts


def _format_type(annotation: Any) -> str:
    """The annotation as a user writes it: `int | None`, `"mean" | "sum"`, `Tensor`."""
    if annotation is inspect.Parameter.empty:
        return ""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(map(_format_type, arguments))
    if origin is Literal:
        return " | ".join(map(_format_default, arguments))
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and origin is None:
        return annotation.__name__
    text = annotation if isinstance(annotation, str) else str(annotation)
    return re.sub(r"\b(?:[a-z_][\w]*\.)+", "", text)


def _format_default(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str | bool | int | float) else str(value)
