"""Sets and robust losses at their edges: groups of nothing, losses that differ in their last digits, large batches."""

import pytest
import torch

from kinfold.dro import KL, Average, ChiSquare, KLBall, Robust, TopK
from kinfold.losses import tiles
from tests.dro.sets import SETS
from tests.problems import batch, generator, gradient

X, Y = batch(121, sizes=(5, 3, 1, 4, 6, 2))


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_groups_without_any_entry_are_worth_zero(chosen):
    losses = torch.zeros(3, 0, dtype=torch.float64)
    assert chosen.weights(losses).shape == (3, 0)
    assert chosen.value(losses).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_a_constant_added_to_all_losses_changes_no_weight(chosen):
    """Differences of a thousandth count as much beside a million as alone."""
    losses = torch.randint(1, 200, (4, 9), generator=generator(5)).double() / 1024
    far = losses + 2.0**23
    assert torch.equal(far - 2.0**23, losses)  # nothing was rounded
    torch.testing.assert_close(chosen.weights(far), chosen.weights(losses), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_losses_whose_squares_vanish_still_have_weights(chosen):
    weights = chosen.weights(torch.tensor([[1e-170, 0.0, 0.0], [0.0, 2e-200, 1e-200]], dtype=torch.float64))
    assert bool((weights >= 0).all())
    assert weights.sum(dim=1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("group", ["batch", "sign", "anchor", "anchor-sign", "class"])
@pytest.mark.parametrize("chosen", [KL(0.2), TopK(7)], ids=repr)
def test_large_batches_have_the_value_of_the_whole(group, chosen, monkeypatch):
    """Only a group that is one row can be processed in row chunks."""
    loss = Robust("similarity-margin", chosen, group=group)
    expected = gradient(loss, X, Y)
    monkeypatch.setattr(tiles, "MIN_ROWS", 1)
    monkeypatch.setattr(tiles, "TILE_PAIRS", 50)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 50)
    torch.testing.assert_close(gradient(loss, X, Y), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{"group": "batch"}, {"group": "anchor-sign"}, {"group": "sign", "sample": 5}])
def test_balance_is_for_the_two_signs_of_the_whole_batch(options):
    with pytest.raises(ValueError, match="balanced must be used with group='sign'"):
        Robust("binomial", TopK(4), balanced=True, **options)
    with pytest.raises(ValueError, match="one TopK set"):
        Robust("binomial", (TopK(4), TopK(4)), group="sign", balanced=True)


def test_options_at_the_ends_of_their_ranges():
    losses = torch.tensor([0.1, 0.7, 0.4], dtype=torch.float64)
    even = [1 / 3] * 3
    assert ChiSquare(radius=0.0).weights(losses).tolist() == pytest.approx(even)
    assert KLBall(radius=0.0).weights(losses).tolist() == pytest.approx(even, abs=1e-6)
    for narrow in (ChiSquare(effective=1), KLBall(effective=1), TopK(1)):
        assert narrow.weights(losses).tolist() == [0.0, 1.0, 0.0]
    assert Robust("binomial", KL(0.1), sample=1)(X, Y).isfinite()
    assert TopK("1b").for_batch(3, 1.0).k == 3


@pytest.mark.parametrize(
    "build",
    [
        lambda: TopK("0b"),
        lambda: TopK("b"),
        lambda: TopK("-1b"),
        lambda: KL(-0.1),
        lambda: KL(float("nan")),
        lambda: KLBall(radius=-1e-9),
        lambda: ChiSquare(effective=0.99),
        lambda: Robust("binomial", (KL(1.0), KL(1.0), KL(1.0)), group="sign"),
        lambda: Robust("binomial", KL(1.0), group="sign", pseudo_pair=True),
        lambda: Average().weights(torch.tensor(0.5)),
        lambda: Average().weights(torch.rand(3), torch.ones(3)),
    ],
)
def test_what_lies_beyond_is_refused(build):
    with pytest.raises(ValueError, match="must be"):
        build()


@pytest.mark.parametrize("chosen", [KLBall(effective="2b"), ChiSquare(effective="2b")], ids=repr)
def test_a_number_of_anchors_is_known_within_robust_alone(chosen):
    with pytest.raises(ValueError, match="number of anchors"):
        chosen.weights(torch.rand(4))
    assert chosen.for_batch(3, 2.0).effective == 6  # entries as they are: only a number of pairs stands twice
    assert Robust("binomial", chosen)(X, Y).isfinite()


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_no_group_at_all_has_no_weights(chosen):
    assert chosen.weights(torch.zeros(0, 4)).shape == (0, 4)
    assert chosen.value(torch.zeros(0, 4)).shape == (0,)
