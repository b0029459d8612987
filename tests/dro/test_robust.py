"""Robust losses: value, gradient, groups, identities with known losses, and batches with little to weigh."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import kinfold
from kinfold.dro import KL, Average, ChiSquare, KLBall, Robust, Simplex, TopK
from kinfold.pairs import Relation, cosine, sphere_distance
from tests.problems import batch, close, generator, gradient, make

X, Y = batch(111)
RELATION = Relation.from_labels(Y)
PAIR_LOSSES = ["similarity-margin", "binomial", "similarity-contrastive"]
UNIQUE = [Average(), KL(0.2), KLBall(radius=0.5), ChiSquare(effective=9), TopK(7)]
GROUPS = ["batch", "sign", "anchor", "anchor-sign", "class"]


def matrix(pair_loss="similarity-margin"):
    return make(pair_loss, reduction="none")(X, Y)


def naive(losses, chosen, group):
    """The groups written out, each solved by the set alone."""
    positives, negatives, n = RELATION.positives, RELATION.negatives, len(X)

    def value(mask, a_set=chosen):
        return a_set.value(losses[mask]).item() if mask.any() else 0.0

    def row(i, mask):
        only = torch.zeros_like(mask)
        only[i] = mask[i]
        return only

    if group == "batch":
        return value(positives | negatives)
    if group == "sign":
        return (value(positives) + value(negatives)) / 2
    if group == "anchor":
        return sum(value(row(i, positives | negatives)) for i in range(n)) / n
    if group == "anchor-sign":
        return sum(value(row(i, positives)) + value(row(i, negatives)) for i in range(n)) / n
    classes = Y.unique()
    return sum(value((positives | negatives) & (c == Y)[:, None]) for c in classes) / len(classes)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("chosen", [Simplex(), *UNIQUE], ids=repr)
@pytest.mark.parametrize("pair_loss", PAIR_LOSSES)
def test_every_group_equals_the_groups_written_out(group, chosen, pair_loss):
    solo = TopK(14) if isinstance(chosen, TopK) and group in ("batch", "sign") else chosen  # 7 pairs stand twice
    assert close(Robust(pair_loss, chosen, group=group)(X, Y).item(), naive(matrix(pair_loss), solo, group), 1e-8)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("chosen", UNIQUE, ids=repr)
def test_the_gradient_is_that_of_the_robust_value(group, chosen):
    loss = Robust("similarity-margin", chosen, group=group)
    x = X[:8].clone().requires_grad_()
    assert gradcheck(lambda e: loss(e, Y[:8]), (x,), eps=1e-7, atol=1e-5, rtol=1e-3)


def test_two_sets_for_the_two_signs():
    both = Robust("binomial", (KL(0.5), TopK(3)), group="anchor-sign")(X, Y)
    positives = Robust("binomial", (KL(0.5), KL(0.5)), group="anchor-sign", reduction="none")(
        X, Y, tuples=Relation(RELATION.positives, torch.zeros_like(RELATION.negatives))
    )
    negatives = Robust("binomial", TopK(3), group="anchor-sign", reduction="none")(
        X, Y, tuples=Relation(torch.zeros_like(RELATION.positives), RELATION.negatives)
    )
    torch.testing.assert_close(both, (positives + negatives).mean(), rtol=1e-10, atol=1e-12)


def wide(margin=2.0):
    return make("similarity-margin", margin=margin)  # beyond 1 + threshold nothing clips


def test_grouped_kl_at_gamma_one_is_lifted_structure():
    loss = Robust(wide(), KL(1.0), group="anchor-sign")
    x, y = X[Y != 2], Y[Y != 2]  # lifted leaves out an anchor without positives, its group here has negatives
    value, slope = gradient(loss, x, y)
    expected, lifted = gradient(make("lifted"), x, y)
    torch.testing.assert_close(slope, lifted, rtol=1e-9, atol=1e-11)
    relation = Relation.from_labels(y)
    constant = 4.0 - relation.positives.sum(1).double().log() - relation.negatives.sum(1).double().log()
    torch.testing.assert_close(value, expected + constant.mean(), rtol=1e-9, atol=1e-11)
    # with the margin of the experiments pairs clip, and the two differ
    clipped = gradient(Robust("similarity-margin", KL(1.0), group="anchor-sign", drop_zero_losses=True), x, y)[1]
    assert (clipped - lifted).abs().max() > 1e-3


def test_the_pseudo_pair_makes_it_multi_similarity():
    scales = {"positive_scale": 2.0, "negative_scale": 50.0}
    sets = (KL(1 / 2.0), KL(1 / 50.0))
    slope = gradient(Robust(wide(), sets, group="anchor-sign", pseudo_pair=True), X, Y)[1]
    expected = gradient(make("multi-similarity", epsilon=None, **scales), X, Y)[1]
    torch.testing.assert_close(slope, expected, rtol=1e-9, atol=1e-11)


def test_hap2s_weights_are_those_of_grouped_kl():
    distance = sphere_distance(cosine(X, X))
    positives = KL(0.5).weights(distance, RELATION.positives)
    negatives = KL(0.5).weights(-distance, RELATION.negatives)
    loss = make("hap2s", sigma=0.5, margin=10.0)  # the hinge never closes
    by_distance = (positives - negatives) * RELATION.has_both()[:, None] / RELATION.has_both().sum()
    expected = by_distance * -1.0 / distance.clamp(min=1e-9)  # dd/ds = -1/d on the sphere
    off = ~torch.eye(len(X), dtype=torch.bool)
    torch.testing.assert_close(loss.pair_weights(X, Y)[off], expected[off], rtol=1e-8, atol=1e-10)


def test_top_k_counts_unordered_pairs():
    losses = matrix()
    upper = torch.triu(torch.ones_like(losses, dtype=torch.bool), diagonal=1)
    best = losses[upper].sort(descending=True).values
    for k in (1, 5, 20, 10_000):
        assert close(Robust("similarity-margin", TopK(k))(X, Y).item(), best[:k].mean().item(), 1e-9)
    twice = Robust("similarity-margin", TopK("2b"))(X, Y).item()
    assert close(twice, best[: 2 * len(X)].mean().item(), 1e-9)
    against = Robust("similarity-margin", TopK(5))(X, Y, ref_embeddings=X[:6], ref_labels=Y[:6])
    listed = make("similarity-margin", reduction="none")(X, Y, ref_embeddings=X[:6], ref_labels=Y[:6])
    assert close(against.item(), listed.flatten().sort(descending=True).values[:5].mean().item(), 1e-9)


@pytest.mark.parametrize("sizes", [(2, 1, 1, 1, 1, 1), (9, 1), (5, 5), (3, 3, 3, 3)])
def test_top_k_of_both_signs_takes_as_many_of_each(sizes):
    x, y = batch(112, sizes=sizes)
    losses, relation = make("binomial", reduction="none")(x, y), Relation.from_labels(y)
    upper = torch.triu(torch.ones_like(losses, dtype=torch.bool), diagonal=1)
    positives, negatives = (
        losses[mask & upper].sort(descending=True).values for mask in (relation.positives, relation.negatives)
    )
    for k in (2, 8, 40):
        side = min(k // 2, len(positives), len(negatives))
        expected = (positives[:side].sum() + negatives[:side].sum()) / (2 * side)
        assert close(make("dro-topk-pn", k=k, pair_loss="binomial")(x, y).item(), expected.item(), 1e-9)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_top_k_of_both_signs_without_one_of_them_is_a_differentiable_zero(labels):
    leaf = X[:4].clone().requires_grad_()
    value = make("dro-topk-pn")(leaf, torch.tensor(labels))
    value.backward()
    assert value.item() == 0
    assert bool((leaf.grad == 0).all())


@pytest.mark.parametrize("name", [n for n in kinfold.list("losses") if n.startswith("dro-")])
def test_a_batch_where_every_loss_is_zero(name):
    x = torch.eye(4, dtype=torch.float64).repeat_interleave(2, dim=0).requires_grad_()
    value = make(name)(x, torch.arange(8) // 2)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    assert bool(x.grad.isfinite().all())


def test_zero_losses_are_left_out_before_the_weights():
    losses = matrix()[RELATION.positives | RELATION.negatives]
    kept = losses[losses > 0]
    assert 0 < len(kept) < len(losses)
    assert close(make("dro-kl")(X, Y).item(), KL(0.1).value(kept).item(), 1e-9)
    assert close(make("dro-kl", drop_zero_losses=False)(X, Y).item(), KL(0.1).value(losses).item(), 1e-9)


def test_sampling_is_right_on_average_and_goes_on_after_a_resume():
    drawn = make("dro-kl", sample=400, generator=generator(0))
    slopes = torch.stack([gradient(drawn, X, Y)[1] for _ in range(200)])
    expected = gradient(make("dro-kl"), X, Y)[1]
    error = (slopes.mean(dim=0) - expected).abs() / (slopes.std(dim=0) / math.sqrt(200) + 1e-12)
    assert error.max() < 5
    twin = make("dro-kl", sample=400)
    twin.load_state_dict(drawn.state_dict())
    assert torch.equal(twin(X, Y), drawn(X, Y))


def test_anchors_without_pairs_are_nothing_to_draw_from():
    labels = torch.tensor([0, 0, 0, 1, 1])
    relation = Relation.from_labels(labels)
    nobody = torch.tensor([0, 1, 1, 1, 1], dtype=torch.bool)[:, None]
    pairs = Relation(relation.positives & nobody, relation.negatives & nobody)
    loss = Robust("binomial", TopK(3), group="anchor", sample=3)
    drawn = torch.stack([loss(X[:5], labels, tuples=pairs) for _ in range(400)])
    expected = Robust("binomial", TopK(3), group="anchor")(X[:5], labels, tuples=pairs)
    assert abs(drawn.mean() - expected) < 5 * drawn.std() / math.sqrt(400)


PRESETS = {
    "dro-max": Robust("similarity-margin", Simplex()),
    "dro-topk": Robust("similarity-margin", TopK(2 * len(X))),
    "dro-topk-pn": Robust("similarity-margin", TopK(2 * len(X)), group="sign", balanced=True),
    "dro-kl": Robust("similarity-margin", KL(0.1), drop_zero_losses=True),
    "dro-kl-grouped": Robust("similarity-margin", KL(0.1), group="anchor-sign", drop_zero_losses=True),
    "dro-kl-ball": Robust("similarity-margin", KLBall(effective=4 * len(X))),
    "dro-chi2": Robust("similarity-margin", ChiSquare(effective=4 * len(X))),
}


@pytest.mark.parametrize("name", [name for name in kinfold.list("losses") if name.startswith("dro-")])
def test_names_stand_for_the_settings_that_they_document(name):
    assert close(make(name)(X, Y).item(), PRESETS[name](X, Y).item(), 1e-12)


def test_small_gamma_in_float32():
    value, slope = gradient(make("dro-kl-grouped", gamma=0.001), X.float(), Y)
    precise, expected = gradient(make("dro-kl-grouped", gamma=0.001), X, Y)
    torch.testing.assert_close(value.double(), precise, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.double(), expected, rtol=1e-2, atol=1e-2)


def test_wrong_combinations_are_refused():
    for arguments, options in [
        (("lifted", KL(1.0)), {}),
        (("binomial", "kl"), {}),
        (("binomial", KL(1.0)), {"group": "row"}),
        (("binomial", (KL(1.0), KL(1.0))), {"group": "batch"}),
        (("binomial", KL(1.0)), {"pseudo_pair": True}),
        (("contrastive", KL(1.0)), {"group": "anchor-sign", "pseudo_pair": True}),
        (("binomial", KL(1.0)), {"group": "sign", "balanced": True}),
        (("binomial", KL(1.0)), {"sample": 0}),
    ]:
        with pytest.raises(ValueError, match=r"must be|need"):
            Robust(*arguments, **options)
    with pytest.raises(ValueError, match="labels"):
        Robust("binomial", KL(1.0), group="class")(X, relation=RELATION.positives)


def test_pair_weights_are_the_worst_case_weights():
    losses = matrix()
    entries = (RELATION.positives | RELATION.negatives).flatten()
    p = KL(0.1).weights(losses.flatten(), entries).reshape(losses.shape)
    sign = RELATION.negatives.double() - RELATION.positives.double()
    expected = p * sign * (losses > 0)
    actual = Robust("similarity-margin", KL(0.1)).pair_weights(X, Y)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
