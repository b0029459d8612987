"""Options are checked against the signature: unknown, missing and mistyped options are refused, nothing else."""

from typing import Literal

import numpy as np
import pytest
import torch

import kinfold
from kinfold.registry.options import check_options


def target(
    number: float = 1.0,
    integer: int = 1,
    switch: bool = False,
    text: str = "",
    either: int | str = 1,
    maybe: float | None = None,
    anything: torch.Tensor | float = 1.0,
    one_of: Literal["a", "b"] = "a",
    bare=None,
):
    pass


GOOD = [
    {"number": 2, "integer": 3, "switch": True, "text": "x", "either": "2b", "maybe": None, "bare": object()},
    {"number": np.float32(2.0), "integer": np.int64(3), "either": 5, "maybe": 0.5, "anything": "whatever"},
    {"number": torch.tensor(0.5), "one_of": "c"},  # the target itself checks the choices
]
BAD = [
    ({"number": "big"}, "'it': number must be a number, got 'big'"),
    ({"number": True}, "number must be a number, got True"),
    ({"integer": 1.5}, "integer must be an integer, got 1.5"),
    ({"switch": 1}, "switch must be true or false, got 1"),
    ({"text": 3}, "text must be a string, got 3"),
    ({"either": 0.5}, "either must be an integer or a string, got 0.5"),
    ({"one_of": 3}, "one_of must be a string, got 3"),
    ({"maybe": "no"}, "maybe must be a number or none, got 'no'"),
    ({"numbr": 1.0}, "'it' has no option 'numbr' (did you mean 'number'?)"),
]


@pytest.mark.parametrize("options", GOOD)
def test_values_of_the_right_type_are_accepted(options):
    check_options("it", target, options, kinfold.registry.suggest)


@pytest.mark.parametrize(("options", "message"), BAD)
def test_other_options_are_refused_with_a_message(options, message):
    with pytest.raises(ValueError, match="it") as refused:
        check_options("it", target, options, kinfold.registry.suggest)
    assert message in str(refused.value)


def test_type_hints_that_cannot_be_evaluated_are_ignored():
    def strange(x: "no.such.type" = 1) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    check_options("strange", strange, {"x": "anything"}, kinfold.registry.suggest)


def test_options_of_losses_miners_and_samplers_are_checked():
    with pytest.raises(ValueError, match="'triplet': margin must be a number, got 'big'"):
        kinfold.losses.create("triplet", margin="big")
    with pytest.raises(ValueError, match=r"'distance-weighted': .* must be a number"):
        kinfold.miners.create("distance-weighted", lower_cutoff="near")
    with pytest.raises(ValueError, match=r"'spc': batch_size must be an integer, got 8\.5"):
        kinfold.samplers.create("spc", [0, 0, 1, 1], batch_size=8.5)


def test_a_mined_loss_accepts_names():
    x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    mined = kinfold.losses.Mined("margin", "semihard")
    assert mined(x, y) == kinfold.losses.Mined(kinfold.losses.create("margin"), kinfold.miners.create("semihard"))(x, y)
