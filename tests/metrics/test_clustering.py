"""k-means equals the plain algorithm."""

import numpy as np
import pytest
import torch

from kinfold.metrics import evaluate, k_means
from tests.metrics.embedding_sets import make_embeddings


def lloyd(rows, clusters, steps, seed):
    """The same algorithm without any shortcut."""
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:clusters]
    centers, label = rows[drawn].clone(), None
    for _ in range(steps):
        distance = torch.cdist(rows, centers).square()
        nearest = distance.argmin(dim=1)
        if label is not None and torch.equal(nearest, label):
            break
        label = nearest
        empty = []
        for k in range(clusters):
            if (label == k).any():
                centers[k] = rows[label == k].mean(dim=0)
            else:
                empty.append(k)
        if empty:
            centers[empty] = rows[distance.gather(1, label[:, None]).squeeze(1).topk(len(empty)).indices]
    return label


@pytest.mark.parametrize("kind", ["random", "clustered"])
@pytest.mark.parametrize("clusters", [1, 5, 60, 260])
def test_comparing_only_what_moved_changes_nothing(kind, clusters):
    x = make_embeddings(kind)[0].double()
    result = k_means(x, clusters, max_steps=20, seed=3)
    assert torch.equal(result.clusters, lloyd(x, clusters, 20, 3))


def test_duplicates_and_empty_clusters():
    x = torch.cat([torch.zeros(50, 3), torch.ones(1, 3), 2 * torch.ones(1, 3)]).double()
    result = k_means(x, 3)
    assert len(torch.unique(result.clusters)) == 3
    assert result.converged


def test_separate_groups_are_found_and_a_seed_repeats_the_result():
    labels = np.repeat(np.arange(6), 30)
    x = torch.eye(6)[labels] + 0.05 * torch.randn(180, 6, generator=torch.Generator().manual_seed(0))
    first, again = (evaluate(x, labels, metrics=["nmi", "ami", "f1"], seed=1) for _ in range(2))
    assert first == again
    assert max(evaluate(x, labels, metrics=["nmi"], seed=s)["nmi"] for s in range(8)) == pytest.approx(1.0)


def test_coarse_labels_have_their_own_number_of_clusters():
    coarse = np.repeat(np.arange(2), 60)
    fine = np.arange(120) // 10
    x = torch.eye(2)[coarse] * 10 + torch.randn(120, 2, generator=torch.Generator().manual_seed(0)) * 0.1
    result = evaluate(x, fine, metrics=["nmi", "nmi-coarse", "f1-coarse", "ami-coarse"], coarse_labels=coarse)
    assert result["nmi-coarse"] == result["f1-coarse"] == 1.0
    assert result["nmi"] < 0.8


def test_a_number_of_clusters_out_of_range_is_refused():
    for clusters in (0, 4):
        with pytest.raises(ValueError, match="between 1 and the number of rows"):
            k_means(torch.eye(3), clusters)


def test_k_means_stops_after_the_largest_number_of_steps_and_counts_them():
    x = make_embeddings("random", n=200)[0].double()
    results = [k_means(x, 9, max_steps=steps, seed=2) for steps in range(1, 60)]
    converged_at = next(index for index, result in enumerate(results) if result.converged)
    assert converged_at > 3
    assert [result.steps for result in results[: converged_at + 1]] == [*range(1, converged_at + 2)]
    assert {result.steps for result in results[converged_at:]} == {converged_at + 1}
    assert torch.equal(results[0].clusters, torch.cdist(x, x[first_rows(200, 9, seed=2)]).argmin(dim=1))
    assert not torch.equal(results[0].clusters, results[1].clusters)


def first_rows(rows, clusters, seed):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:clusters]
