"""Heads of methods that papers compare with: values against naive loops, and who learns from what."""

import math

import pytest
import torch

from kinfold import models, registry
from kinfold.losses import create
from kinfold.models.attention_ensemble import AttentionEnsemble, compute_divergence
from kinfold.models.boosted import BoostedHeads, compute_shares
from kinfold.models.cascaded import CascadedHeads, keep_hardest
from kinfold.models.divided import DividedHead
from kinfold.models.ensemble import Ensemble, ItemGrouping
from kinfold.models.gradient_reversal import reverse_gradient
from kinfold.models.interclass import InterclassHead
from kinfold.models.variational import VariationalHead
from kinfold.pairs import Relation
from kinfold.training.components import build_objective
from kinfold.training.config.parsing import configure
from kinfold.training.loop.ensemble_objective import EnsembleObjective
from kinfold.training.loop.item_groups import ItemGroups, standardize_within_classes

LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
HEADS = {
    "attention-ensemble": AttentionEnsemble,
    "boosted": BoostedHeads,
    "cascaded": CascadedHeads,
    "divided": DividedHead,
    "interclass": InterclassHead,
    "variational": VariationalHead,
}


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective_of(head: Ensemble, name="contrastive") -> EnsembleObjective:
    return EnsembleObjective(head, create(name), [create(name) for _ in range(head.parts)])


@pytest.mark.parametrize("name", HEADS)
def test_every_method_trains_all_its_parameters_and_embeds_without_labels(name):
    head = models.create("features", 24, name, backbone_options={"width": 10}, seed=0).head.double()
    assert type(head) is HEADS[name] is registry.resolve("heads", name)
    objective = objective_of(head)
    features = values(8, 10).requires_grad_()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        objective(head.train()(features), LABELS, torch.arange(8), 0).backward()
    untrained = [key for key, each in head.named_parameters() if each.grad is None or not each.grad.isfinite().all()]
    assert untrained == []
    assert features.grad is not None
    rows = head.eval()(features)
    assert rows.shape == (8, 24)
    torch.testing.assert_close(rows[:3], head(features[:3]))  # no row depends on another


def test_learners_attend_to_their_own_channels_and_share_one_map():
    head = AttentionEnsemble(width=5, dim=4, branches=2, hidden=3).double()
    features = values(3, 5)
    for k in range(2):
        hidden = torch.relu(features @ head.squeeze.weight[k].T + head.squeeze.bias[k])
        mask = 1 / (1 + torch.exp(-(hidden @ head.expand.weight[k].T + head.expand.bias[k])))
        raw = (mask * features) @ head.embed.weight.T + head.embed.bias
        torch.testing.assert_close(head.output(features).parts[:, k], raw / raw.norm(dim=1, keepdim=True))


def test_divergence_is_the_mean_hinge_of_squared_distances():
    parts = torch.nn.functional.normalize(values(4, 3, 2), dim=2)
    total = [
        max(0.0, 1.5 - float((parts[i, k] - parts[i, m]).square().sum()))
        for i in range(4)
        for k in range(3)
        for m in range(k + 1, 3)
    ]
    assert compute_divergence(parts, 1.5).item() == pytest.approx(sum(total) / 12, rel=1e-12)
    assert torch.autograd.gradcheck(lambda rows: compute_divergence(rows, 1.5), parts.requires_grad_())


def test_a_boosted_learner_weights_pairs_by_the_slope_at_the_scores_before_it():
    head = BoostedHeads(width=5, dim=6, branches=3, diversity_weight=0.0).double()
    output, relation = head.output(values(8, 5)), Relation.from_labels(LABELS)
    terms = head.labeled_terms(output, relation)
    score = torch.zeros(8, 8, dtype=torch.float64)
    for k in range(3):
        similarity = (output.parts[:, k] @ output.parts[:, k].T).detach()
        slopes, losses = {}, {}
        for i in range(8):
            for j in range(8):
                if i == j:
                    continue
                sign, cost = (1.0, 1.0) if LABELS[i] == LABELS[j] else (-1.0, 25.0)
                at = float(score[i, j]) - 0.5
                slopes[i, j] = 2.0 * cost / (1 + math.exp(2.0 * cost * sign * at))
                losses[i, j] = math.log1p(math.exp(-2.0 * cost * sign * (float(similarity[i, j]) - 0.5)))
        largest = max(slopes.values())
        weighted = {pair: losses[pair] * (slopes[pair] / largest if k else 1.0) for pair in losses}
        means = []
        for same in (True, False):
            chosen = [weighted[i, j] for i, j in weighted if (LABELS[i] == LABELS[j]) == same]
            means.append(sum(chosen) / len(chosen))
        term = terms[f"boosted-{k + 1}"]
        assert term.weight * term.value.item() == pytest.approx(sum(means) / 2, rel=1e-9)
        share = 2.0 / (k + 2)
        score = (1 - share) * score + share * similarity
    embeddings = head.eval()(values(8, 5))
    torch.testing.assert_close(embeddings @ embeddings.T, score)
    assert compute_shares(3).sum() == 1


def test_learners_and_regressors_pull_in_opposite_directions():
    head = BoostedHeads(width=5, dim=4, branches=2).double()
    parts = torch.nn.functional.normalize(values(6, 2, 2), dim=2).requires_grad_()
    head.compute_diversity(parts).backward()
    reversed_gradient = parts.grad.clone()
    predicted = torch.nn.functional.normalize(head.regressors[0](parts[:, 1]), dim=1)
    plain = -(parts[:, 0] * predicted).sum(dim=1).square().mean()
    (gradient,) = torch.autograd.grad(plain, parts)
    torch.testing.assert_close(reversed_gradient, -gradient)


def test_deeper_learners_get_the_hardest_pairs_of_the_learner_before():
    head = CascadedHeads(width=5, dim=6, shares=(1.0, 0.5, 0.25)).double()
    output, relation = head.output(values(8, 5)), Relation.from_labels(LABELS)
    first, second, third = head.select_pairs(output, relation)
    assert torch.equal(first.positives, relation.positives)
    counts = [(int(each.positives.sum()), int(each.negatives.sum())) for each in (first, second, third)]
    assert counts == [(14, 42), (7, 21), (4, 10)]  # a quarter of 14 and of 42, rounded to even
    similarity = (output.parts[:, 0] @ output.parts[:, 0].T).detach()
    ranked = sorted((float(similarity[i, j]), i, j) for i, j in relation.positives.nonzero().tolist())
    # (i, j) and (j, i) are equally similar, and either may be the last one: similarities are compared, not pairs
    assert sorted(similarity[second.positives].tolist()) == pytest.approx(
        [value for value, _, _ in ranked[:7]], abs=1e-12
    )
    assert (third.negatives & ~second.negatives).sum() == 0


def test_nothing_is_kept_of_no_pairs():
    relation = Relation.from_labels(torch.tensor([0, 1]))
    kept = keep_hardest(relation, torch.eye(2), 0.5, relation)
    assert (int(kept.positives.sum()), int(kept.negatives.sum())) == (0, 1)


def test_a_divided_part_learns_from_its_group_alone():
    head = DividedHead(width=5, dim=6, branches=3).double()
    objective = objective_of(head)
    objective.groups.set_extra_state(torch.tensor([0, 0, 1, 1, 1, 2, 2, 2]))
    output = head(values(8, 5))
    value = objective(output, LABELS, torch.arange(8), 0)
    expected = 0.0
    for group, items in enumerate(([0, 1], [2, 3, 4], [5, 6, 7])):
        expected += create("contrastive")(output.parts[items, group], LABELS[items]).item()
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert float(objective.logged["occupancy-1"]) == 0.25


def test_an_auxiliary_embedding_learns_from_groups_instead_of_classes():
    head = InterclassHead(width=5, dim=6, groups=2, auxiliary_weight=0.5, adversary_weight=0.0).double()
    objective, groups = objective_of(head), torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])
    objective.groups.set_extra_state(groups)
    output = head(values(8, 5))
    expected = create("contrastive")(output.embeddings, LABELS)
    expected = expected + 0.5 * create("contrastive")(output.parts[:, 0], groups)
    torch.testing.assert_close(objective(output, LABELS, torch.arange(8), 0), expected)


def test_proxies_of_an_auxiliary_embedding_are_those_of_its_groups():
    tables = {
        "model": {"backbone": "features", "dim": 4, "head": "interclass", "head_options": {"groups": 7}},
        "loss": {"name": "proxy-anchor"},
    }
    config = configure(tables)
    embedder = models.create("features", 4, "interclass", backbone_options={"width": 5}, head_options={"groups": 7})
    objective = build_objective(config, num_classes=3, embedder=embedder)
    assert objective.loss.proxies.shape == (3, 4)
    assert objective.parts[0].proxies.shape == (7, 4)


def test_the_variance_of_a_class_is_that_of_the_normal_distribution():
    head = VariationalHead(width=4, dim=3).double()
    features = values(5, 4)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        output = head(features)
        torch.manual_seed(3)
        noise = torch.randn(5, 3, dtype=torch.float64)
    mean, variance = head.mean(features), head.log_variance(features).exp()
    torch.testing.assert_close(output.parts[:, 0], head.embed(features) + mean + variance.sqrt() * noise)
    normal = torch.distributions.Normal(mean, variance.sqrt())
    kl = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(output.divergences, kl.mean(dim=1))
    torch.testing.assert_close(output.errors, (head.decoder(output.parts[:, 0]) - features).square().mean(dim=1))


def test_a_reversed_gradient_has_the_other_sign_and_the_same_values():
    rows = values(3, 2).requires_grad_()
    assert torch.equal(reverse_gradient(rows), rows)
    (gradient,) = torch.autograd.grad(reverse_gradient(rows).square().sum(), rows)
    torch.testing.assert_close(gradient, -2 * rows.detach())


def test_items_are_grouped_by_their_embeddings_when_it_is_due_and_kept_in_the_state():
    groups = ItemGroups(ItemGrouping(count=2, every=3))
    assert [groups.is_due(epoch) for epoch in (0, 1, 3)] == [True, True, True]  # nothing is grouped yet
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    groups.update(rows, torch.arange(4), seed=0)
    assert [groups.is_due(epoch) for epoch in (0, 1, 2, 3)] == [True, False, False, True]
    first = groups.get(torch.tensor([0, 1, 2, 3]), torch.arange(4))
    assert first[0] == first[1] != first[2] == first[3]
    other = ItemGroups(ItemGrouping(count=2))
    other.load_state_dict(groups.state_dict())
    assert torch.equal(other.get(torch.arange(4), torch.arange(4)), first)


def test_standardizing_removes_what_tells_classes_apart():
    rows, labels = values(40, 3) + 50 * values(4, 3, seed=1).repeat_interleave(10, dim=0), torch.arange(40) // 10
    standard = standardize_within_classes(rows, labels)
    for label in range(4):
        torch.testing.assert_close(standard[labels == label].mean(dim=0), torch.zeros(3, dtype=torch.float64))
        deviation = standard[labels == label].std(dim=0, correction=0)
        torch.testing.assert_close(deviation, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("head", "options", "message"),
    [
        (CascadedHeads, {"shares": (0.5, 1.0)}, "not grow"),
        (CascadedHeads, {"shares": ()}, "must be in"),
        (DividedHead, {"every": 0}, "at least 1"),
        (BoostedHeads, {"diversity_weight": -1.0}, "diversity_weight must be a number of at least 0"),
        (AttentionEnsemble, {"branches": 5}, "cannot be divided evenly"),
    ],
)
def test_options_out_of_their_range_are_refused(head, options, message):
    with pytest.raises(ValueError, match=message):
        head(width=8, dim=24, **options)
