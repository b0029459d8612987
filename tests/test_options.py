"""Options by name: what is unknown, missing or of the wrong kind is refused, and nothing else."""

from typing import Literal

import numpy as np
import pytest
import torch

import kinfold
from kinfold.registry.options import check_options


def taken(
    number: float = 1.0,
    whole: int = 1,
    switch: bool = False,
    word: str = "",
    either: int | str = 1,
    maybe: float | None = None,
    anything: torch.Tensor | float = 1.0,
    one_of: Literal["a", "b"] = "a",
    bare=None,
):
    pass


GOOD = [
    {"number": 2, "whole": 3, "switch": True, "word": "x", "either": "2b", "maybe": None, "bare": object()},
    {"number": np.float32(2.0), "whole": np.int64(3), "either": 5, "maybe": 0.5, "anything": "whatever"},
    {"number": torch.tensor(0.5), "one_of": "c"},  # which words there are it says itself
]
BAD = [
    ({"number": "big"}, "'it': number must be a number, got 'big'"),
    ({"number": True}, "number must be a number, got True"),
    ({"whole": 1.5}, "whole must be a whole number, got 1.5"),
    ({"switch": 1}, "switch must be true or false, got 1"),
    ({"word": 3}, "word must be a word, got 3"),
    ({"either": 0.5}, "either must be a whole number or a word, got 0.5"),
    ({"one_of": 3}, "one_of must be a word, got 3"),
    ({"maybe": "no"}, "maybe must be a number or none, got 'no'"),
    ({"numbr": 1.0}, "'it' has no option 'numbr' (did you mean 'number'?)"),
]


@pytest.mark.parametrize("options", GOOD)
def test_values_of_their_kind_are_taken(options):
    check_options("it", taken, options, kinfold.registry.suggest)


@pytest.mark.parametrize(("options", "why"), BAD)
def test_others_are_refused_in_words(options, why):
    with pytest.raises(ValueError, match="it") as refused:
        check_options("it", taken, options, kinfold.registry.suggest)
    assert why in str(refused.value)


def test_hints_that_stand_for_nothing_are_left_alone():
    def strange(x: "no.such.type" = 1) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    check_options("strange", strange, {"x": "anything"}, kinfold.registry.suggest)


def test_names_of_all_kinds_are_checked():
    with pytest.raises(ValueError, match="'triplet': margin must be a number, got 'big'"):
        kinfold.losses.create("triplet", margin="big")
    with pytest.raises(ValueError, match=r"'distance-weighted': .* must be a number"):
        kinfold.miners.create("distance-weighted", lower_cutoff="near")
    with pytest.raises(ValueError, match=r"'spc': batch_size must be a whole number, got 8\.5"):
        kinfold.samplers.create("spc", [0, 0, 1, 1], batch_size=8.5)


def test_a_mined_loss_takes_names():
    x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    mined = kinfold.losses.Mined("margin", "semihard")
    assert mined(x, y) == kinfold.losses.Mined(kinfold.losses.create("margin"), kinfold.miners.create("semihard"))(x, y)
