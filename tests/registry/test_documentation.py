"""Every argument of every registered name is documented, and read from its docstring."""

import inspect

import pytest

import kinfold
from kinfold import registry
from kinfold.registry.documentation import Argument, describe, read_arguments, summarize

KINDS = [kind for kind in registry.kinds() if kind not in ("recipes", "tables")]
ADDED = {(kind, name) for kind, name, _ in registry.list_added()}
NAMES = [(kind, name) for kind in KINDS for name in kinfold.list(kind) if (kind, name) not in ADDED]


class Documented:
    """A class.

    More about it.

    Args:
        margin: Distance between
            both sides.
        alpha, beta: Scales.
        mode (str): What to do: nothing.

    Returns:
        Nothing.

    Examples:
        >>> Documented(1) is None
        False
    """

    def __init__(
        self, margin: float, alpha: int | None = None, beta: "list[int]" = (), mode: str = "a", bare=1
    ) -> None:
        """Store nothing."""


def test_arguments_are_read_with_type_default_and_text():
    assert read_arguments(Documented) == {
        "margin": Argument("float", None, "Distance between both sides."),
        "alpha": Argument("int | None", "None", "Scales."),
        "beta": Argument("list[int]", "()", "Scales."),
        "mode": Argument("str", '"a"', "What to do: nothing."),
        "bare": Argument("", "1", ""),
    }


def test_a_description_leaves_out_arguments_and_examples(own_names):
    registry.register("losses", "documented", f"{__name__}:Documented")
    text, arguments = describe("losses", "documented")
    assert text.endswith("A class.\n\nMore about it.\n\nReturns:\n    Nothing.")
    assert [*arguments] == ["margin", "alpha", "beta", "mode", "bare"]
    assert summarize("losses", "documented") == "Every argument of every registered name is documented, and read " + (
        "from its docstring."
    )


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_argument_of_a_registered_name_is_documented(kind, name):
    target = registry.resolve(kind, name)
    undocumented = [key for key, argument in read_arguments(target).items() if not argument.text]
    assert not undocumented, f"{target.__module__}.{target.__qualname__}: add them under `Args:` in its docstring"


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_docstring_documents_no_argument_that_does_not_exist(kind, name):
    target = registry.resolve(kind, name)
    documented = registry.documentation._argument_texts(inspect.getdoc(target) or "")
    assert {*documented} <= {*inspect.signature(target).parameters}
