"""A linear head that starts from principal components: against scikit-learn, and on the features of CUB."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from kinfold import metrics, models

POWERS = {"pca": 0.0, "half-whiten": 0.5, "whiten": 1.0}


def rows(count=200, width=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(count, width, generator=generator) * torch.logspace(1, -1, width)
    return mixed @ torch.randn(width, width, generator=generator) + 5.0


@pytest.mark.parametrize("how", POWERS)
@pytest.mark.parametrize("dim", [1, 5, 12])
def test_the_head_gives_what_sklearn_gives_up_to_one_scale(how, dim):
    features = rows().double()
    head = models.initialize(nn.Linear(12, dim).double(), features, how)
    reference = PCA(dim, svd_solver="full").fit(features.numpy())
    expected = torch.from_numpy(reference.transform(features.numpy()) * reference.singular_values_ ** -POWERS[how])
    outputs = head(features).detach()
    expected *= (len(features) / expected.square().sum()).sqrt()
    signs = (outputs * expected).sum(dim=0).sign()
    assert torch.allclose(outputs, expected * signs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", POWERS)
def test_outputs_are_centered_uncorrelated_and_of_norm_about_one(how):
    features = rows()
    outputs = models.initialize(nn.Linear(12, 6), features, how)(features).detach().double()
    assert outputs.mean(dim=0).abs().max() < 1e-5
    assert outputs.square().sum(dim=1).mean().item() == pytest.approx(1.0, abs=1e-4)
    covariance = outputs.T @ outputs
    assert (covariance - covariance.diag().diag()).abs().max() < 1e-3 * covariance.max()
    spread = covariance.diag()
    assert torch.equal(spread.argsort(descending=True), torch.arange(6)) or how == "whiten"
    if how == "whiten":
        assert torch.allclose(spread, spread.mean().expand(6), rtol=1e-4)


def test_signs_are_fixed_and_every_direction_is_of_unit_length():
    features = rows().double()
    first = models.initialize(nn.Linear(12, 4).double(), features, "pca").weight.detach()
    again = models.initialize(nn.Linear(12, 4).double(), features.flip(0), "pca").weight.detach()
    assert torch.allclose(first, again, rtol=1e-9)
    assert (first.gather(1, first.abs().argmax(dim=1, keepdim=True)) > 0).all()
    assert torch.allclose(first.norm(dim=1), first.norm(dim=1)[0].expand(4))


def test_features_of_any_precision_and_of_many_blocks():
    features = rows(count=20_000)
    wide = models.initialize(nn.Linear(12, 4), features, "half-whiten")
    half = models.initialize(nn.Linear(12, 4), features.half(), "half-whiten")
    assert wide.weight.dtype == torch.float32
    assert torch.allclose(wide.weight, half.weight, rtol=0.05, atol=0.01 * wide.weight.abs().max().item())
    reference = PCA(4).fit(features.double().numpy())
    cosines = (
        nn.functional.normalize(wide.weight.detach().double(), dim=1) * torch.from_numpy(reference.components_)
    ).sum(1)
    assert torch.allclose(cosines.abs(), torch.ones(4, dtype=torch.float64), atol=1e-5)


def test_invalid_initializations_are_errors():
    features = rows()
    with pytest.raises(ValueError, match=r"only linear heads can be initialized from principal components.*Sequential"):
        models.initialize(models.create("features", 4, "mlp", backbone_options={"width": 12}).head, features, "pca")
    with pytest.raises(ValueError, match="12 features have no 13 principal components; choose dim <= 12"):
        models.initialize(nn.Linear(12, 13), features, "pca")
    with pytest.raises(ValueError, match="vary in 4 directions only, too few for dim=5; choose dim <= 4"):
        models.initialize(nn.Linear(12, 5), features[:5], "whiten")
    flat = features.clone()
    flat[:, 3:] = flat[:, :1]
    with pytest.raises(ValueError, match="vary in 3 directions only"):
        models.initialize(nn.Linear(12, 4), flat, "whiten")
    with pytest.raises(ValueError, match="vary in 0 directions only"):
        models.initialize(nn.Linear(12, 1), torch.ones(4, 12), "pca")
    with pytest.raises(ValueError, match="did you mean 'whiten'"):
        models.initialize(nn.Linear(12, 4), features, "whitened")
    with pytest.raises(ValueError, match="this head has none: bias=True"):
        models.initialize(nn.Linear(12, 4, bias=False), features, "pca")
    with pytest.raises(ValueError, match=r"expected features of shape \(N, 12\)"):
        models.initialize(nn.Linear(12, 4), features[:, :11], "pca")
    features[3, 3] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        models.initialize(nn.Linear(12, 4), features, "pca")


def test_each_branch_of_a_relational_head_starts_from_its_chunk_of_the_features():
    features = rows()
    head = models.create("features", 4, "relational", backbone_options={"width": 12}, head_options={"branches": 2}).head
    assert models.initialize(head, features, "half-whiten") is head
    for number in range(2):
        chunk = features[:, 6 * number : 6 * number + 6]
        alone = models.initialize(nn.Linear(6, 2), chunk, "half-whiten")
        assert torch.equal(head.nodes.weight[number], alone.weight)
        assert torch.equal(head.nodes.bias[number], alone.bias)
    full_input = {"branches": 2, "branch_input": "full"}
    head = models.create("features", 4, "relational", backbone_options={"width": 12}, head_options=full_input).head
    with pytest.raises(ValueError, match='branch_input="chunk", or init = "random"'):
        models.initialize(head, features, "pca")


@pytest.fixture(scope="module")
def cub():
    path = Path(os.environ.get("KINFOLD_TEST_DATA", "")) / "cub200_2011_efflite0.npz"
    if not path.is_file():
        pytest.skip("KINFOLD_TEST_DATA names no folder with cub200_2011_efflite0.npz")
    with np.load(path) as file:
        features, classes, train = torch.from_numpy(file["feat"]), file["cls"], file["split"] == "train"
    return features[train], features[~train], torch.from_numpy(classes[~train].astype(np.int64))


def recall(embeddings, labels):
    return 100 * metrics.evaluate(embeddings, labels, metrics=["recall@1"])["recall@1"]


def test_on_cub_the_half_whitened_start_is_better_than_the_features_themselves(cub):
    train, test, labels = cub
    embedder = models.create("features", dim=512, backbone_options={"width": 1280}).eval()
    with torch.no_grad():
        untrained = recall(embedder.features(test), labels)
        random = recall(embedder(test), labels)
        models.initialize(embedder.head, train, "half-whiten")
        started = recall(embedder(test), labels)
    assert untrained == pytest.approx(57.73, abs=0.02)
    assert started == pytest.approx(59.05, abs=0.06)
    assert random < untrained
