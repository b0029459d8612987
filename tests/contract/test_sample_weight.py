"""Weights of anchors: the same statements for every registered loss."""

import pytest
import torch

from kinfold.losses import ClassWeighted, Loss, Mined, Nested, Terms, balance_classes, create, tiles
from kinfold.miners import create as create_miner
from kinfold.pairs import Relation, Triplets
from tests.problems import (
    LOSSES,
    NUM_CLASSES,
    all_triplets_of,
    batch,
    close,
    generator,
    gradient,
    has_proxies,
    kind_of,
    make,
)

X, Y = batch(41)
WEIGHTED = [name for name in LOSSES if make(name).takes_sample_weight]
REFUSED = [name for name in LOSSES if name not in WEIGHTED]
ON_PAIRS = [name for name in WEIGHTED if not has_proxies(name)]
COUNTS = torch.randint(0, 4, (len(X),), generator=generator(5))


@pytest.fixture(params=["whole", "tiles"])
def tiling(request, monkeypatch):
    if request.param == "tiles":
        for name in ("MIN_ROWS", "TILE_PAIRS", "WHOLE_PAIRS"):
            monkeypatch.setattr(tiles, name, 1 if name == "MIN_ROWS" else 50)
        monkeypatch.setattr(tiles, "TRIANGLE_ROWS", 5)


def repeat_anchors(name, x, counts):
    """The loss in which anchor i is listed counts[i] times, with the gradient by the batch."""
    leaf, items = x.detach().clone().requires_grad_(), torch.arange(len(x))
    rows = items.repeat_interleave(counts)
    options = {}
    if not has_proxies(name):
        options = {"ref_embeddings": leaf, "ref_labels": Y, "ids": items[rows], "ref_ids": items}
    value = make(name).double()(leaf[rows], Y[rows], **options)
    value.backward()
    return value.detach(), leaf.grad


def test_the_losses_that_take_no_weights_are_those_without_a_mean_over_samples():
    assert {kind_of(name) for name in REFUSED} <= {"batch", "anchor"}
    assert [name for name in REFUSED if kind_of(name) != "batch"] == ["proxy-anchor"]
    assert "angular" in WEIGHTED


@pytest.mark.parametrize("name", REFUSED)
def test_weights_without_a_meaning_are_refused(name):
    with pytest.raises(ValueError, match="sample_weight has no meaning"):
        make(name)(X, Y, sample_weight=torch.ones(len(X)))


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_one_change_nothing(name, tiling):
    expected = gradient(make(name).double(), X, Y)
    actual = gradient(make(name).double(), X, Y, sample_weight=torch.ones(len(X)))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


# adaface compares lengths with those of the whole batch, whatever the weights
@pytest.mark.parametrize("name", [name for name in WEIGHTED if name != "adaface"])
def test_an_anchor_of_weight_n_counts_n_times(name, tiling):
    actual = gradient(make(name).double(), X, Y, sample_weight=COUNTS.double())
    torch.testing.assert_close(actual, repeat_anchors(name, X, COUNTS), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_common_factor_scales_the_sum_and_not_the_mean(name):
    weights = torch.rand(len(X), generator=generator(1), dtype=torch.float64)
    for reduction, factor in (("mean", 1.0), ("sum", 3.0)):
        loss = make(name, reduction=reduction).double()
        if kind_of(name) == "batch":  # a mean with either
            factor = 1.0
        if loss.regularizer() is None:
            assert close(
                loss(X, Y, sample_weight=3 * weights).item(), factor * loss(X, Y, sample_weight=weights).item()
            )


@pytest.mark.parametrize("name", [n for n in WEIGHTED if kind_of(n) != "batch"])
def test_values_without_a_reduction_are_multiplied(name):
    loss = make(name, reduction="none").double()
    weights = torch.rand(len(X), generator=generator(1), dtype=torch.float64)
    shape = (-1, 1) if kind_of(name) == "pair" else (-1,)
    torch.testing.assert_close(loss(X, Y, sample_weight=weights), weights.reshape(shape) * loss(X, Y))


@pytest.mark.parametrize("name", WEIGHTED)
def test_no_weight_above_zero_gives_a_differentiable_zero(name):
    value, slope = gradient(make(name), X, Y, sample_weight=torch.zeros(len(X)))
    assert value == 0
    assert not slope.any()


@pytest.mark.parametrize("name", [n for n in ON_PAIRS if make(n).has_pair_weights])
def test_pair_weights_have_the_weight_of_the_anchor(name):
    loss, zero = make(name).double(), COUNTS == 0
    weights = loss.pair_weights(X, Y, sample_weight=COUNTS.double())
    assert not weights[zero].any()
    assert weights[~zero].any()


TRIPLETS = all_triplets_of(Relation.from_labels(Y), limit=60)


@pytest.mark.parametrize("name", ["triplet", "soft-margin-triplet", "snr", "margin", "contrastive", "sigmoid"])
def test_mined_triplets_have_the_weight_of_their_anchor(name):
    repeats = COUNTS[TRIPLETS.anchor]
    fields = (TRIPLETS.anchor, TRIPLETS.positive, TRIPLETS.negative, TRIPLETS.valid)
    repeated = Triplets(*(field.repeat_interleave(repeats) for field in fields))
    loss = make(name, **({"regularization": 0.0} if name == "snr" else {})).double()
    expected = gradient(loss, X, Y, tuples=repeated)
    actual = gradient(loss, X, Y, tuples=TRIPLETS, sample_weight=COUNTS.double())
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def test_the_published_margin_loss_counts_triplets_with_their_weight():
    loss = create("margin", variant="as-coded").double()
    repeats = COUNTS[TRIPLETS.anchor]
    fields = (TRIPLETS.anchor, TRIPLETS.positive, TRIPLETS.negative, TRIPLETS.valid)
    repeated = Triplets(*(field.repeat_interleave(repeats) for field in fields))
    value = loss(X, Y, tuples=TRIPLETS, sample_weight=COUNTS.double())
    torch.testing.assert_close(value, loss(X, Y, tuples=repeated))


@pytest.mark.parametrize("name", [n for n in ON_PAIRS if kind_of(n) == "pair" or make(n).graded])
def test_weights_beside_a_real_valued_relation(name):
    degree = torch.rand(len(X), len(X), generator=generator(3), dtype=torch.float64)
    rows = torch.arange(len(X)).repeat_interleave(COUNTS)
    options = {"ids": rows, "ref_ids": torch.arange(len(X)), "ref_embeddings": X}
    expected = make(name).double()(X[rows], relation=degree[rows], **options)
    actual = make(name).double()(X, relation=degree, sample_weight=COUNTS.double())
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def test_weights_of_chunked_classes(monkeypatch):
    from kinfold.losses import proxy_loss

    weights = torch.rand(len(X), generator=generator(1), dtype=torch.float64)
    expected = gradient(make("arcface").double(), X, Y, sample_weight=weights)
    monkeypatch.setattr(tiles, "WHOLE_PAIRS", 0)
    monkeypatch.setattr(proxy_loss, "MANY_VECTORS", 1)
    actual = gradient(make("arcface").double(), X, Y, sample_weight=weights)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def test_weights_of_mined_and_nested_losses():
    weights = COUNTS.double()
    miner = create_miner("multi-similarity")
    loss = create("supcon")
    expected = loss(X, Y, tuples=miner(X, Y), sample_weight=weights)
    assert close(Mined("supcon", miner)(X, Y, sample_weight=weights).item(), expected.item())
    nested = Nested("supcon", dims=[3, 7])
    parts = [loss(X[:, :d], Y, sample_weight=weights).item() for d in (3, 7)]
    assert close(nested(X, Y, sample_weight=weights).item(), sum(parts) / 2)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), "shape"),
        ([1.0] * len(X), "tensor of shape"),
        (torch.full((len(X),), -1.0), "not negative"),
        (torch.full((len(X),), float("nan")), "finite"),
    ],
)
def test_weights_that_are_not_valid_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        make("supcon")(X, Y, sample_weight=weights)


def test_a_loss_of_a_user_that_sums_its_counts_is_told_how_to_take_weights():
    class Summed(Loss):
        def terms(self, pairs):
            values = pairs.scores.sum(dim=1)
            return Terms.over(values, len(values))

    with pytest.raises(ValueError, match="counts"):
        Summed()(X, Y, sample_weight=torch.ones(len(X)))


class TestClassWeighted:
    def test_equals_sample_weights(self):
        weights = torch.tensor([0.5, 2.0, 1.0, 0.0])
        expected = make("multi-similarity")(X, Y, sample_weight=weights[Y])
        assert close(ClassWeighted("multi-similarity", weights)(X, Y).item(), expected.item())
        doubled = ClassWeighted("multi-similarity", weights)(X, Y, sample_weight=COUNTS.double())
        assert close(doubled.item(), make("multi-similarity")(X, Y, sample_weight=weights[Y] * COUNTS).item())

    def test_labels_give_the_class_beside_a_relation(self):
        relation = Y[:, None] == Y
        weighted = ClassWeighted("supcon", [1.0, 2.0, 3.0, 4.0])
        assert close(weighted(X, Y, relation=relation).item(), weighted(X, Y).item())
        per_class = ClassWeighted(create("margin", num_classes=NUM_CLASSES), torch.arange(1.0, 5.0))
        assert close(per_class(X, Y, relation=relation).item(), per_class(X, Y).item())

    def test_weights_are_saved(self):
        state = ClassWeighted("supcon", [1.0, 2.0]).state_dict()
        assert state["class_weights"].tolist() == [1.0, 2.0]

    @pytest.mark.parametrize("weights", [[-1.0, 1.0], [0.0, 0.0], [[1.0]], [float("inf")]])
    def test_wrong_weights_are_refused(self, weights):
        with pytest.raises(ValueError, match="class_weights"):
            ClassWeighted("supcon", weights)

    def test_a_label_without_a_weight_is_refused(self):
        with pytest.raises(ValueError, match="reindex"):
            ClassWeighted("supcon", [1.0])(X, Y)

    def test_balanced_classes_count_the_same(self):
        weights = balance_classes(Y, 5)
        totals = torch.bincount(Y, weights=weights[Y].double())
        torch.testing.assert_close(totals, torch.full((4,), len(Y) / 5, dtype=torch.float64))
        assert weights[4] == 0
        with pytest.raises(ValueError, match="integers"):
            balance_classes(torch.ones(3))
