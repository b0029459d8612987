"""Real-valued relations in losses of kind "anchor": degrees of positives against naive loops."""

import math

import pytest
import torch

import kinfold
from kinfold.losses import tiles
from kinfold.losses.recall_at_k import similarity_mixup
from kinfold.pairs import tree_relation
from tests.losses.references.rankings import hierarchical_value
from tests.problems import batch, close, generator, gradient, make

GRADED = [name for name in kinfold.list("losses") if make(name).graded]
X, _ = batch(71, dim=4, sizes=(5, 4, 3))
N = len(X)
UNIT = torch.nn.functional.normalize(X)
LEVELS = torch.stack([torch.arange(N) // 6, torch.arange(N) // 3, torch.arange(N) // 2 + 7], dim=1)
TREE = tree_relation(LEVELS)
REAL = torch.rand(N, N, generator=generator(1), dtype=torch.float64)
REAL[REAL < 0.3] = 0


def others(a):
    return [j for j in range(N) if j != a]


def test_the_tree_counts_equal_levels_from_the_root():
    for i in range(N):
        for j in range(N):
            depth = 0
            while depth < 3 and LEVELS[i, depth] == LEVELS[j, depth]:
                depth += 1
            assert TREE[i, j] == pytest.approx(depth / 3)
            assert tree_relation(LEVELS, LEVELS[j : j + 1], alpha=2.0)[i, 0] == pytest.approx((depth / 3) ** 2)
    for wrong in (LEVELS[:, 0], LEVELS.float(), LEVELS[:, :2]):
        with pytest.raises(ValueError, match="tree"):
            tree_relation(LEVELS, wrong)


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("relation", [TREE.double(), REAL], ids=["tree", "real"])
def test_happier_of_degrees(balance, relation):
    similarity = UNIT @ UNIT.T
    values = []
    for a in range(N):
        levels = [float(relation[a, j]) for j in others(a)]
        if max(levels) == 0:
            continue
        if balance:
            levels = [level / levels.count(level) for level in levels]
        values.append(hierarchical_value([float(similarity[a, j]) for j in others(a)], levels, 0.1))
    loss = make("happier", temperature=0.1, balance=balance)
    assert close(loss(X, relation=relation).item(), sum(values) / len(values))


def test_log_ratio_of_degrees():
    values = []
    for a in range(N):
        logs = [
            math.log(float((X[a] - X[j]).square().sum()) + 1e-3) - math.log(1 - float(REAL[a, j]) + 1e-3)
            for j in others(a)
        ]
        pairs = [(logs[i] - logs[j]) ** 2 for j in range(len(logs)) for i in range(j)]
        values.append(sum(pairs) / len(pairs))
    assert close(make("log-ratio", epsilon=1e-3)(X, relation=REAL).item(), sum(values) / len(values))


def test_log_ratio_is_zero_for_the_distances_of_the_embeddings_themselves():
    distance = torch.cdist(X, X).square()
    assert make("log-ratio", epsilon=1e-12)(X, relation=1 - distance / distance.max()).item() < 1e-12


def test_supcon_of_degrees_is_a_cross_entropy_with_soft_targets():
    logits = (UNIT @ UNIT.T / 0.2).masked_fill(torch.eye(N, dtype=torch.bool), -torch.inf)
    values = []
    for a in range(N):
        targets = torch.tensor([float(REAL[a, j]) if j != a else 0.0 for j in range(N)], dtype=torch.float64)
        log_shares = logits[a] - torch.logsumexp(logits[a], dim=0)
        values.append(-sum(float(targets[j] * log_shares[j]) for j in others(a)) / float(targets.sum()))
    assert close(make("supcon", temperature=0.2)(X, relation=REAL).item(), sum(values) / len(values))


@pytest.mark.parametrize("name", GRADED)
def test_degrees_of_zero_and_one_are_a_boolean_relation(name):
    same = LEVELS[:, 1:2] == LEVELS[:, 1]
    expected, slope = gradient(make(name), X, relation=same)
    value, actual = gradient(make(name), X, relation=same.double())
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(actual, slope, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", GRADED)
def test_gradients_of_degrees(name):
    options = {"epsilon": 0.1} if name == "log-ratio" else {"temperature": 0.2}
    loss = make(name, **options)
    inputs = (X.clone().requires_grad_(),)
    assert torch.autograd.gradcheck(lambda x: loss(x, relation=REAL), inputs, eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", GRADED)
def test_degrees_in_tiles(name, monkeypatch):
    expected, slope = gradient(make(name), X, relation=REAL)
    for limit in ("MIN_ROWS", "TILE_PAIRS", "WHOLE_PAIRS"):
        monkeypatch.setattr(tiles, limit, 1)
    value, actual = gradient(make(name), X, relation=REAL)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(actual, slope, rtol=1e-8, atol=1e-10)


def test_similarity_mixup_adds_an_item_between_any_two_of_a_class():
    y = torch.tensor([0, 1, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5])
    mixed, labels = similarity_mixup(X, y, generator(3))
    pairs = [(i, j) for i in range(N) for j in range(i + 1, N) if y[i] == y[j]]
    assert len(mixed) == len(labels) == N + len(pairs)
    torch.testing.assert_close(mixed[:N], UNIT)
    for row, (i, j) in enumerate(pairs, start=N):
        assert labels[row] == y[i]
        share = float((mixed[row] - UNIT[j]) @ (UNIT[i] - UNIT[j]) / (UNIT[i] - UNIT[j]).square().sum())
        assert 0 <= share <= 1
        torch.testing.assert_close(mixed[row], share * UNIT[i] + (1 - share) * UNIT[j])
    loss = make("recall-at-k", normalize=False)
    assert close(loss(mixed[:N], y).item(), make("recall-at-k")(X, y).item())
    assert loss(mixed, labels).isfinite()
    assert loss(mixed, labels).item() != make("recall-at-k")(mixed, labels).item()


def test_happier_leaves_out_anchors_without_negatives():
    positives = torch.zeros(2, N, dtype=torch.bool)
    positives[0, 2:5] = True
    positives[1] = True
    first = make("happier")(X[:1], ref_embeddings=X, relation=positives[:1])
    assert first > 0
    close(make("happier")(X[:2], ref_embeddings=X, relation=positives), first)
