"""Independent heads and their decorrelation; an ensemble of one's own in one class."""

from typing import NamedTuple

import pytest
import torch

from kinfold import models, registry
from kinfold.models.ensemble import Ensemble, ObjectiveTerm
from kinfold.models.independent import IndependentHeads, compute_cross_covariance


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_parts_are_unit_vectors_of_all_features_and_the_embedding_holds_them_side_by_side():
    heads = IndependentHeads(width=7, dim=6, branches=3).double()
    rows = values(5, 7)
    output = heads(rows)
    for k in range(3):
        raw = rows @ heads.nodes.weight[k].T + heads.nodes.bias[k]
        torch.testing.assert_close(output.parts[:, k], raw / raw.norm(dim=1, keepdim=True))
    assert torch.equal(output.embeddings, torch.cat([output.parts[:, k] for k in range(3)], dim=1))
    assert torch.equal(heads.eval()(rows), output.embeddings)
    assert heads.assignment(output) is None


def test_decorrelation_is_the_mean_square_of_the_covariance_between_parts():
    parts = values(6, 3, 2)
    total, pairs = 0.0, 0
    for k in range(3):
        for m in range(k + 1, 3):
            pairs += 1
            for a in range(2):
                for b in range(2):
                    left = [float(row[k, a]) for row in parts]
                    right = [float(row[m, b]) for row in parts]
                    means = sum(left) / 6, sum(right) / 6
                    total += (sum((x - means[0]) * (y - means[1]) for x, y in zip(left, right, strict=True)) / 6) ** 2
    assert compute_cross_covariance(parts).item() == pytest.approx(total / pairs, rel=1e-12)
    assert torch.autograd.gradcheck(compute_cross_covariance, parts.requires_grad_())


def test_decorrelation_ignores_rotations_of_a_part_and_is_zero_for_uncorrelated_parts():
    parts = values(40, 2, 3)
    turned = parts.clone()
    turned[:, 1] = parts[:, 1] @ torch.linalg.qr(values(3, 3, seed=1)).Q
    torch.testing.assert_close(compute_cross_covariance(turned), compute_cross_covariance(parts))
    orthogonal = torch.linalg.qr(parts.flatten(1) - parts.flatten(1).mean(dim=0)).Q.reshape(40, 2, 3)
    assert compute_cross_covariance(orthogonal) < 1e-30
    assert compute_cross_covariance(parts[:, [0, 0]]) > 0.1


@pytest.mark.parametrize("shape", [(1, 3, 2), (0, 3, 2), (5, 1, 4)])
def test_decorrelation_without_pairs_is_a_differentiable_zero(shape):
    parts = values(*shape).requires_grad_()
    covariance = compute_cross_covariance(parts)
    assert covariance.item() == 0
    covariance.backward()
    assert not parts.grad.any()


def test_invalid_options_are_errors():
    with pytest.raises(ValueError, match="cannot be divided evenly by 4 branches"):
        models.create("conv4", 10, "independent")
    with pytest.raises(ValueError, match="decorrelation_weight must be a number of at least 0"):
        IndependentHeads(4, 4, 2, decorrelation_weight=-1.0)


class Halves(NamedTuple):
    embeddings: torch.Tensor
    parts: torch.Tensor


class Split(Ensemble):
    """The features themselves, in two halves; the first learns from items whose first feature is positive."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__(2, dim // 2, representation_weight=1.0)

    def output(self, features: torch.Tensor) -> Halves:
        return Halves(features, features.reshape(len(features), 2, -1))

    def assignment(self, output: Halves) -> torch.Tensor:
        first = output.parts[:, 0, 0] > 0
        return torch.stack([first, torch.ones_like(first)], dim=1)

    def terms(self, output: Halves) -> dict[str, ObjectiveTerm]:
        return {"size": ObjectiveTerm(0.5, output.parts.square().mean())}


def test_another_ensemble_is_one_class(own_names):
    registry.register("heads", "split", f"{__name__}:Split")
    network = models.create("features", 4, "split", backbone_options={"width": 4})
    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.0, 1.0]])
    assert network.head.assignment(network(rows)).tolist() == [[True, True], [False, True]]
    assert torch.equal(network.eval()(rows), rows)
    with pytest.raises(NotImplementedError, match="Ensemble has no method output"):
        Ensemble(2, 2, 1.0)(rows)
