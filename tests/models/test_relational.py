"""The head of DRML against loops over its equations, and as a head among others."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold import models
from kinfold.models.ensemble import ParallelLinear
from kinfold.models.export import DeployedModel, export
from kinfold.models.relational import RelationalHead
from tests.models.relational import CHUNK, FULL, by_loops, head, source, values


@pytest.mark.parametrize("branch_input", [CHUNK, FULL])
@pytest.mark.parametrize(("width", "dim", "branches"), [(12, 6, 3), (8, 8, 4), (10, 4, 2), (5, 3, 1), (14, 7, 7)])
def test_the_forward_pass_is_that_of_the_equations(width, dim, branches, branch_input):
    relational_head = head(width, dim, branches, branch_input)
    features = values(9, width)
    expected = by_loops(relational_head, features)
    output = relational_head(features)
    torch.testing.assert_close(output.embeddings, expected["z"])
    torch.testing.assert_close(output.parts, expected["v"])
    torch.testing.assert_close(output.errors, expected["e"])
    torch.testing.assert_close(
        relational_head.compute_edge_weights(relational_head.split_features(features)), expected["r"]
    )
    # the example would show nothing if no score, or every score, were cut off
    assert branches == 1 or 0 < float((expected["r"] == 0).double().mean()) < 1
    term = relational_head.terms(output)["reconstruction"]
    torch.testing.assert_close(term.value, expected["e"].mean())
    best = [min(range(branches), key=row.__getitem__) for row in expected["e"].tolist()]
    assert relational_head.assignment(output).tolist() == [[k == b for k in range(branches)] for b in best]
    torch.testing.assert_close(relational_head.eval()(features), expected["z"])


def test_branches_of_full_input_may_be_any_number_that_shares_the_dimension():
    """A width that nothing divides is no matter where all branches read all of it."""
    for branches in (1, 2, 3, 4, 6, 12):
        output = RelationalHead(width=11, dim=12, branches=branches, branch_input=FULL)(torch.randn(4, 11))
        assert output.parts.shape == (4, branches, 12 // branches)
        assert output.errors.shape == (4, branches)
        assert output.embeddings.shape == (4, 12)


@pytest.mark.parametrize("branch_input", [CHUNK, FULL])
def test_the_embedding_starts_as_the_nodes_side_by_side(branch_input):
    network = models.create(
        "features", 8, "relational", backbone_options={"width": 16}, head_options={"branch_input": branch_input}
    )
    output = network(torch.randn(5, 16))
    assert torch.equal(output.embeddings, output.parts.flatten(1))
    torch.testing.assert_close(output.parts.norm(dim=2), torch.ones(5, 4))


def test_weights_start_with_the_variance_of_fan_out_and_without_bias():
    relational_head = RelationalHead(width=2000, dim=400, branches=2)
    for part, size in (
        (relational_head.nodes, 200),
        (relational_head.decoders, 1000),
        (relational_head.sources, 200),
        (relational_head.targets, 200),
    ):
        for matrix in part.weight:
            assert float(matrix.detach().std()) == pytest.approx(math.sqrt(2 / size), rel=0.02)
        assert not part.bias.any()
    assert float(relational_head.score.weight.detach().std()) == pytest.approx(math.sqrt(2), rel=0.2)
    assert not relational_head.score.bias.any()


# -- as a head among others ---------------------------------------------------------------------------------------


def test_weights_survive_a_round_trip_and_the_seed_alone_decides_them():
    embedders = [models.create("conv4", 8, "relational", seed=seed) for seed in (3, 3, 4)]
    images = torch.randn(3, 1, 28, 28)
    first, same, other = (network.eval()(images) for network in embedders)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
    embedders[2].load_state_dict(embedders[0].state_dict())
    assert torch.equal(embedders[2](images), first)


def test_training_gives_everything_and_evaluation_the_embedding_alone():
    network = models.create("conv4", 8, "relational")
    images = torch.randn(3, 1, 28, 28)
    output = network(images)
    assert output._fields[0] == "embeddings"
    assert [tuple(field.shape) for field in output] == [(3, 8), (3, 4, 2), (3, 4)]
    assert isinstance(network.eval()(images), torch.Tensor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 9}, r"dim=9 cannot be divided evenly by 4 branches; .* multiple of 4 \(8 or 12\), or branches=3"),
        ({"width": 18}, r"width of the features=18 cannot be divided evenly by 4 branches.*branches=3"),
        ({"dim": 3}, r"multiple of 4 \(4\), or branches=3"),
        ({"branches": 0}, "at least 1 branch"),
        ({"branch_input": "chunks"}, "did you mean 'chunk'"),
        ({"representation_weight": -1.0}, "representation_weight must be a number of at least 0"),
        ({"reconstruction_weight": float("nan")}, "reconstruction_weight must be a number of at least 0"),
        ({"brances": 4}, "did you mean 'branches'"),
    ],
)
def test_mismatched_sizes_are_errors_with_a_fix(options, message):
    arguments = {"width": 16, "dim": 8, **options}
    with pytest.raises(ValueError, match=message):
        kinfold.registry.create("heads", "relational", **arguments)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
@pytest.mark.parametrize("kind", ["relational", "independent", "full"])
def test_an_exported_file_gives_the_same_embeddings(name, kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    options = {"branch_input": FULL} if kind == "full" else {}
    network = models.create(
        "features",
        8,
        "relational" if kind == "full" else kind,
        backbone_options={"width": 12},
        head_options=options,
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source(2)), alpha=0.3)
    rows = torch.randn(5, 12, generator=source(3))
    path = export(DeployedModel(network, None, unit=False), tmp_path / name, rows).path
    for inputs in (rows, rows[:1]):
        if path.suffix == ".onnx":
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            exported = session.run(None, {"features": inputs.numpy()})[0]
        else:
            exported = torch.export.load(path).module()(inputs).detach().numpy()
        np.testing.assert_allclose(exported, network.eval()(inputs).detach().numpy(), atol=1e-5)


def test_maps_are_linear_layers_side_by_side():
    maps = ParallelLinear(3, 4, 2).double()
    with torch.no_grad():
        maps.bias.copy_(values(3, 2))
    separate, common = values(5, 3, 4), values(5, 1, 4)
    for k in range(3):
        layer = nn.Linear(4, 2).double()
        layer.weight.data, layer.bias.data = maps.weight.data[k], maps.bias.data[k]
        torch.testing.assert_close(maps(separate)[:, k], layer(separate[:, k]))
        torch.testing.assert_close(maps(common)[:, k], layer(common[:, 0]))
