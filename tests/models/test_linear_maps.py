"""Whitening, LDA and their moments, against scikit-learn and against numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import shrunk_covariance
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

from kinfold import models
from kinfold.models import moments as moments_module
from kinfold.models.linear_maps import SUPERVISED, LinearMap, count_dimensions, fit_linear_map
from kinfold.models.moments import Moments, compute_moments


def problem(classes=6, per_class=9, width=7, seed=0, offset=0.0):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    noise = generator.normal(size=(len(labels), width)) @ generator.normal(size=(width, width))
    rows = 3 * generator.normal(size=(classes, width))[labels] + noise + offset
    return torch.from_numpy(rows), torch.from_numpy(labels)


def align(outputs, expected):
    return expected * (outputs * expected).sum(dim=0).sign()


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 54), max_size=4), offset=st.sampled_from([0.0, 1e5]), seed=st.integers(0, 5))
def test_moments_do_not_depend_on_how_rows_are_divided_into_chunks(cuts, offset, seed):
    rows, labels = problem(offset=offset, seed=seed)
    streamed = Moments(7, 6)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 54], strict=True):
        if end > start:
            streamed.update(rows[start:end], labels[start:end])
    centered = rows - rows.mean(dim=0)
    means = torch.stack([rows[labels == label].mean(dim=0) for label in range(6)])
    within = rows - means[labels]
    assert torch.allclose(streamed.mean, rows.mean(dim=0), rtol=1e-12)
    assert torch.allclose(streamed.total_covariance(), centered.T @ centered / 54, rtol=1e-7, atol=1e-7)
    assert torch.allclose(streamed.within_covariance(), within.T @ within / 54, rtol=1e-7, atol=1e-7)


def test_moments_of_one_call_are_summed_in_chunks_of_bounded_size(monkeypatch):
    rows, labels = problem()
    whole = compute_moments(rows, labels)
    monkeypatch.setattr(moments_module, "_ROWS", 5)
    chunked = compute_moments(rows, labels)
    assert torch.allclose(whole.within_covariance(), chunked.within_covariance(), rtol=1e-11)


def test_a_class_without_rows_changes_nothing():
    rows, labels = problem()
    gap = compute_moments(rows, labels * 2)
    assert torch.allclose(gap.within_covariance(), compute_moments(rows, labels).within_covariance())
    assert count_dimensions(gap, "lda") == 5


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_whitening_is_that_of_sklearn(dim):
    rows, _ = problem()
    reference = PCA(dim, whiten=True, svd_solver="full").fit(rows.numpy())
    outputs = fit_linear_map(compute_moments(rows), "whiten", dim)(rows)
    # scikit-learn divides by N - 1
    expected = torch.from_numpy(reference.transform(rows.numpy())) * (54 / 53) ** 0.5
    assert torch.allclose(outputs, align(outputs, expected), rtol=1e-9, atol=1e-9)


def test_whitening_with_shrinkage_whitens_the_shrunk_covariance():
    rows, _ = problem()
    moments = compute_moments(rows)
    whiten = fit_linear_map(moments, "whiten", shrinkage=0.3).weight
    covariance = torch.from_numpy(shrunk_covariance(moments.total_covariance().numpy(), 0.3))
    assert torch.allclose(whiten @ covariance @ whiten.T, torch.eye(7, dtype=torch.float64), atol=1e-10)
    half = fit_linear_map(moments, "half-whiten", shrinkage=0.3).weight
    assert torch.allclose(half @ half.T, (half @ covariance @ half.T).diag().reciprocal().diag(), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 4, 12])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 0.7])
def test_lda_is_that_of_sklearn(classes, shrinkage):
    rows, labels = problem(classes)
    reference = LinearDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage).fit(rows.numpy(), labels.numpy())
    outputs = fit_linear_map(compute_moments(rows, labels), "lda", shrinkage=shrinkage)(rows)
    expected = torch.from_numpy(reference.transform(rows.numpy() - rows.numpy().mean(axis=0)))
    assert outputs.shape == expected.shape == (9 * classes, min(classes - 1, 7))
    assert torch.allclose(outputs, align(outputs, expected), rtol=1e-8, atol=1e-8)


def test_distances_of_within_whitening_are_those_of_the_lsqr_solver():
    rows, labels = problem(4)
    moments = compute_moments(rows, labels)
    linear_map = fit_linear_map(moments, "within-whiten", shrinkage=0.2)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2).fit(rows.numpy(), labels.numpy())
    inverse = torch.linalg.inv(torch.from_numpy(reference.covariance_))
    difference = rows[0] - rows[-1]
    distance = (linear_map(rows[:1]) - linear_map(rows[-1:])).square().sum()
    assert distance.item() == pytest.approx((difference @ inverse @ difference).item(), rel=1e-9)


def test_within_whitening_is_ordered_by_total_over_within_class_variance():
    rows, labels = problem(4)
    moments = compute_moments(rows, labels)
    linear_map = fit_linear_map(moments, "within-whiten", shrinkage=0.0)
    total = linear_map.weight @ moments.total_covariance() @ linear_map.weight.T
    assert torch.allclose(total, linear_map.values.diag(), atol=1e-9)
    assert (linear_map.values.diff() <= 1e-12).all()
    assert torch.allclose(linear_map.values[3:], torch.ones(4, dtype=torch.float64))  # no class mean differs there


@pytest.mark.parametrize("kind", ["pca", "whiten", "within-whiten", "lda"])
def test_a_map_does_not_depend_on_unit_and_origin_of_the_features(kind):
    rows, labels = problem()
    moved = 1000 * rows + 77
    options = {} if kind == "pca" else {"shrinkage": 0.4}
    first = fit_linear_map(compute_moments(rows, labels), kind, 3, **options)(rows)
    second = fit_linear_map(compute_moments(moved, labels), kind, 3, **options)(moved)
    assert torch.allclose(nn.functional.normalize(first), nn.functional.normalize(second), atol=1e-7)


@pytest.mark.parametrize("kind", SUPERVISED)
def test_fewer_rows_than_columns_need_shrinkage(kind):
    rows, labels = problem(3, 4, width=30)
    moments = compute_moments(rows, labels)
    with pytest.raises(ValueError, match=r"has rank 9.*give shrinkage > 0"):
        fit_linear_map(moments, kind, shrinkage=0.0)
    assert fit_linear_map(moments, kind, shrinkage=0.1)(rows).isfinite().all()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("ldaa", {}, "unknown linear map 'ldaa'.*did you mean 'lda'"),
        ("lda", {"dim": 6}, "6 classes have no 6 dimensions of lda; choose dim from 1 to 5"),
        ("whiten", {"dim": 8}, "choose dim from 1 to 7"),
        ("whiten", {"shrinkage": 1.5}, "from 0 to 1"),
        ("pca", {"shrinkage": 0.5}, "would be ignored"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(kind, options, message):
    with pytest.raises(ValueError, match=message):
        fit_linear_map(compute_moments(*problem()), kind, **options)


def test_supervised_maps_need_classes_with_several_rows():
    rows, labels = problem()
    with pytest.raises(ValueError, match="need labels"):
        fit_linear_map(compute_moments(rows), "lda")
    with pytest.raises(ValueError, match="every class has one row"):
        fit_linear_map(compute_moments(rows[::9], torch.arange(6)), "within-whiten")
    with pytest.raises(ValueError, match="it needs two"):
        fit_linear_map(compute_moments(rows, labels * 0), "within-whiten")
    with pytest.raises(ValueError, match="not finite"):
        compute_moments(torch.full((3, 2), torch.nan))


@pytest.mark.parametrize("head", ["linear", "residual"])
@pytest.mark.parametrize("how", ["within-whiten", "lda", "whiten"])
def test_heads_start_from_the_map_at_the_length_that_is_asked_for(head, how):
    rows, labels = problem()
    rows = rows.float()
    module = models.create("features", 4, head, backbone_options={"width": 7}).head
    outputs = models.initialize(module, rows, how, 3.0, labels=labels, shrinkage=0.2)(rows).detach()
    expected = fit_linear_map(compute_moments(rows, labels), how, 4, 0.2)(rows)
    assert outputs.square().sum(dim=1).mean().item() == pytest.approx(9.0, rel=1e-4)
    assert torch.allclose(nn.functional.normalize(outputs), nn.functional.normalize(expected), atol=1e-4)


def test_a_start_from_classes_without_labels_is_refused():
    with pytest.raises(ValueError, match="give labels="):
        models.initialize(nn.Linear(7, 3), problem()[0].float(), "lda")


def test_maps_scale_and_keep_the_precision_of_rows():
    linear_map = LinearMap(torch.eye(2).double(), torch.ones(2).double(), torch.ones(2).double())
    assert linear_map.scale(2.0)(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    assert linear_map(torch.ones(1, 2)).dtype == torch.float32


def test_plda_weights_the_directions_of_lda_by_the_share_of_between_class_variance():
    rows, labels = problem(12)
    moments = compute_moments(rows, labels)
    discriminant = fit_linear_map(moments, "lda", shrinkage=0.2)
    weighted = fit_linear_map(moments, "plda", shrinkage=0.2)
    shares = discriminant.values / (discriminant.values + 1)
    assert torch.allclose(weighted.weight, discriminant.weight * shares[:, None], rtol=1e-9, atol=1e-12)
    assert fit_linear_map(compute_moments(*problem(3)), "plda").weight.shape == (7, 7)


def test_moments_of_parts_merge_to_those_of_all_rows():
    rows, labels = problem()
    shift = rows[0].clone()
    parts = [Moments(7, 6, shift).update(rows[part], labels[part]) for part in (slice(0, 20), slice(20, 54))]
    merged, whole = parts[0].merge(parts[1]), compute_moments(rows, labels)
    assert merged.count == 54
    assert torch.allclose(merged.mean, whole.mean)
    assert torch.allclose(merged.within_covariance(), whole.within_covariance())
    with pytest.raises(ValueError, match="shift are the same"):
        parts[0].merge(whole)
