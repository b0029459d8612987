"""Agreement of clusters and classes, against scikit-learn and loops over pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from kinfold.metrics.agreement import ami, build_contingency, nmi, pairwise_f1

codes = st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 3)), min_size=1, max_size=60)


@given(codes)
@settings(deadline=None, max_examples=150)
def test_agreement_equals_scikit_learn(entries):
    classes, clusters = (np.array(part) for part in zip(*entries, strict=True))
    table = build_contingency(torch.tensor(classes), torch.tensor(clusters))
    assert nmi(table) == pytest.approx(normalized_mutual_info_score(classes, clusters), abs=1e-10)
    assert ami(table) == pytest.approx(adjusted_mutual_info_score(classes, clusters), abs=1e-8)
    same_class, same_cluster = classes[:, None] == classes, clusters[:, None] == clusters
    off = ~np.eye(len(classes), dtype=bool)
    both, either = (same_class & same_cluster & off).sum(), (same_class & off).sum() + (same_cluster & off).sum()
    assert pairwise_f1(table) == pytest.approx(2 * both / either if either else 1.0)


def test_golden_values_of_the_study():
    table = build_contingency(torch.tensor([0, 1, 0, 2, 1, 2]), torch.tensor([0, 1, 0, 2, 1, 1]))
    assert pairwise_f1(table) == pytest.approx(0.571429, abs=1e-6)
    assert nmi(table) == pytest.approx(0.739667, abs=1e-6)


def test_ami_of_many_classes():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 900, 4000), rng.integers(0, 900, 4000)
    clusters[:2000] = classes[:2000]
    table = build_contingency(torch.tensor(classes), torch.tensor(clusters))
    assert ami(table) == pytest.approx(adjusted_mutual_info_score(classes, clusters), abs=1e-9)


@pytest.mark.parametrize("size", [7, 11, 100, 997])
def test_one_cluster_has_no_information(size):
    codes, one = torch.arange(size) % 3, torch.zeros(size, dtype=torch.int64)
    for table in (build_contingency(codes, one), build_contingency(one, codes)):
        assert nmi(table) == 0.0
        assert ami(table) == pytest.approx(0.0, abs=1e-12)
        assert 0.0 < pairwise_f1(table) < 1.0


def test_tables_of_counts_need_items():
    with pytest.raises(ValueError, match="no items"):
        build_contingency(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="one shape"):
        build_contingency(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="one shape"):
        build_contingency(torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
