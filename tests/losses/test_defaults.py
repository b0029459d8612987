"""A loss and the pure function beside it have the same defaults, so that either of them documents the other."""

import inspect

import pytest

import kinfold
from tests.problems import LOSSES, make

CLASSES = {name: kinfold.registry.resolve("losses", name) for name in LOSSES if not name.startswith("dro-")}


def shared_options():
    """(loss, function, option) wherever both take an option of one name and the function has a default for it."""
    for name, kind in CLASSES.items():
        module, options = inspect.getmodule(kind), inspect.signature(kind).parameters
        for function in vars(module).values():
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            for option, parameter in inspect.signature(function).parameters.items():
                if option in options and parameter.default is not inspect.Parameter.empty:
                    yield name, function.__name__, option


SHARED = list(shared_options())


def test_most_losses_have_such_a_function():
    assert len({name for name, _, _ in SHARED}) >= 15


@pytest.mark.parametrize(("name", "function", "option"), SHARED)
def test_the_function_has_the_default_of_the_loss(name, function, option):
    module = inspect.getmodule(CLASSES[name])
    ours = inspect.signature(getattr(module, function)).parameters[option].default
    default = inspect.signature(CLASSES[name]).parameters[option].default
    # None where an option belongs to one variant alone, and giving it beside another one is refused
    assert ours == (getattr(make(name), option) if default is None else default)
