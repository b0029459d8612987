"""Rows are rounded to the nearest numbers of a type."""

import pytest
import torch

from kinfold.metrics._ranking.rounding import round_to_int8


def test_a_row_is_rounded_to_the_nearest_integers():
    rows = torch.tensor([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [254.0, 3.0, -127.0]])
    rounded = round_to_int8(rows)
    assert rounded.rows.tolist() == [[64, -127, 32], [0, 0, 0], [127, 2, -64]]  # 1.5 and 63.5 go to the even one
    assert rounded.scale.tolist() == [1 / 127, 1.0, 2.0]
    assert rounded.norm.tolist() == pytest.approx(rows.double().norm(dim=1).tolist())
    assert rounded.error.tolist() == pytest.approx((rows - rounded.rows * rounded.scale[:, None]).norm(dim=1).tolist())
    assert round_to_int8(rows, shared_scale=True).scale.tolist() == [2.0, 2.0, 2.0]
