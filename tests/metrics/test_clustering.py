"""k-means and the agreement of its clusters with classes, against scikit-learn and a naive loop."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from kinfold.metrics import evaluate, k_means
from kinfold.metrics.agreement import ami, contingency, nmi, pairwise_f1
from tests.metrics.spaces import make

codes = st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 3)), min_size=1, max_size=60)


@given(codes)
@settings(deadline=None, max_examples=150)
def test_agreement_equals_scikit_learn(entries):
    classes, clusters = (np.array(part) for part in zip(*entries, strict=True))
    table = contingency(torch.tensor(classes), torch.tensor(clusters))
    assert nmi(table) == pytest.approx(normalized_mutual_info_score(classes, clusters), abs=1e-10)
    assert ami(table) == pytest.approx(adjusted_mutual_info_score(classes, clusters), abs=1e-8)
    same_class, same_cluster = classes[:, None] == classes, clusters[:, None] == clusters
    off = ~np.eye(len(classes), dtype=bool)
    both, either = (same_class & same_cluster & off).sum(), (same_class & off).sum() + (same_cluster & off).sum()
    assert pairwise_f1(table) == pytest.approx(2 * both / either if either else 1.0)


def test_golden_values_of_the_study():
    table = contingency(torch.tensor([0, 1, 0, 2, 1, 2]), torch.tensor([0, 1, 0, 2, 1, 1]))
    assert pairwise_f1(table) == pytest.approx(0.571429, abs=1e-6)
    assert nmi(table) == pytest.approx(0.739667, abs=1e-6)


def test_ami_of_many_classes():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 900, 4000), rng.integers(0, 900, 4000)
    clusters[:2000] = classes[:2000]
    table = contingency(torch.tensor(classes), torch.tensor(clusters))
    assert ami(table) == pytest.approx(adjusted_mutual_info_score(classes, clusters), abs=1e-9)


def lloyd(rows, clusters, steps, seed):
    """The same algorithm without any shortcut."""
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres, label = rows[drawn].clone(), None
    for _ in range(steps):
        distance = torch.cdist(rows, centres).square()
        nearest = distance.argmin(dim=1)
        if label is not None and torch.equal(nearest, label):
            break
        label = nearest
        empty = []
        for k in range(clusters):
            if (label == k).any():
                centres[k] = rows[label == k].mean(dim=0)
            else:
                empty.append(k)
        if empty:
            centres[empty] = rows[distance.gather(1, label[:, None]).squeeze(1).topk(len(empty)).indices]
    return label


@pytest.mark.parametrize("kind", ["random", "clustered"])
@pytest.mark.parametrize("clusters", [1, 5, 60, 260])
def test_only_comparing_what_moved_changes_nothing(kind, clusters):
    x = make(kind)[0].double()
    found = k_means(x, clusters, steps=20, seed=3)
    assert torch.equal(found.clusters, lloyd(x, clusters, 20, 3))


def test_duplicates_and_empty_clusters():
    x = torch.cat([torch.zeros(50, 3), torch.ones(1, 3), 2 * torch.ones(1, 3)]).double()
    found = k_means(x, 3)
    assert len(torch.unique(found.clusters)) == 3
    assert found.settled


def test_found_groups_and_seeds():
    labels = np.repeat(np.arange(6), 30)
    x = torch.eye(6)[labels] + 0.05 * torch.randn(180, 6, generator=torch.Generator().manual_seed(0))
    first, again = (evaluate(x, labels, metrics=["nmi", "ami", "f1"], seed=1) for _ in range(2))
    assert first == again
    assert max(evaluate(x, labels, metrics=["nmi"], seed=s)["nmi"] for s in range(8)) == pytest.approx(1.0)


def test_coarse_labels_have_their_own_number_of_clusters():
    coarse = np.repeat(np.arange(2), 60)
    fine = np.arange(120) // 10
    x = torch.eye(2)[coarse] * 10 + torch.randn(120, 2, generator=torch.Generator().manual_seed(0)) * 0.1
    found = evaluate(x, fine, metrics=["nmi", "nmi-coarse", "f1-coarse", "ami-coarse"], coarse_labels=coarse)
    assert found["nmi-coarse"] == found["f1-coarse"] == 1.0
    assert found["nmi"] < 0.8


def test_wrong_numbers_of_clusters():
    for clusters in (0, 4):
        with pytest.raises(ValueError, match="between 1 and the number of rows"):
            k_means(torch.eye(3), clusters)
    with pytest.raises(ValueError, match="one shape"):
        contingency(torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
