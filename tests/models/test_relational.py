"""The head of DRML against loops over its equations, and every edge along which a gradient may or may not pass."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold import models
from kinfold.models.ensemble import Maps, unit
from kinfold.models.export import Deployed, export
from kinfold.models.relational import Relational

CHUNK, FULL = "chunk", "full"


def source(seed):
    return torch.Generator().manual_seed(seed)


def values(*shape, seed=0):
    return torch.randn(shape, generator=source(seed), dtype=torch.float64)


def head(width=12, dim=6, branches=3, branch_input=CHUNK, seed=1, **options):
    """In the middle of training: no weight or bias is where it started; scores of about half of the edges are zero."""
    made = Relational(width, dim, branches, branch_input, **options).double()
    g = source(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64) * 0.7)
        made.score.weight.copy_(torch.linspace(0.8, -1.6, made.part_dim))
        made.score.bias.fill_(0.1)
    return made


def by_loops(made, features):
    """z, v, e and r of one item at a time, from the equations: lists of Python numbers."""
    parts, dim = made.parts, made.part_dim
    weights = {name: tensor.tolist() for name, tensor in made.named_parameters()}

    def affine(name, k, x):
        rows, bias = weights[f"{name}.weight"][k], weights[f"{name}.bias"][k]
        return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]

    found = {"z": [], "v": [], "e": [], "r": []}
    for y in features.tolist():
        size = len(y) // parts
        seen = [y if made.branch_input == FULL else y[k * size : (k + 1) * size] for k in range(parts)]
        v, e = [], []
        for k in range(parts):
            raw = affine("nodes", k, seen[k])
            length = math.sqrt(sum(value * value for value in raw))
            v.append([value / length for value in raw])
            decoded = affine("decoders", k, v[k])
            e.append(sum((a - b) ** 2 for a, b in zip(seen[k], decoded, strict=True)) / len(decoded))
        scores = [[0.0] * parts for _ in range(parts)]
        for i in range(parts):
            for j in range(parts):
                difference = zip(affine("sources", i, seen[i]), affine("targets", j, seen[j]), strict=True)
                weighted = zip(weights["score.weight"][0], difference, strict=True)
                scores[i][j] = max(0.0, sum(w * (a - b) for w, (a, b) in weighted) + weights["score.bias"][0])
        r = [[0.0] * parts for _ in range(parts)]
        z = []
        for j in range(parts):
            total = sum(scores[i][j] for i in range(parts))
            for i in range(parts):
                r[i][j] = scores[i][j] / total if total else 0.0
            u = [sum(r[i][j] * v[i][place] for i in range(parts)) for place in range(dim)]
            for row, bias in zip(weights["relation.weight"], weights["relation.bias"], strict=True):
                z.append(sum(w * value for w, value in zip(row, [*v[j], *u], strict=True)) + bias)
        for name, value in (("z", z), ("v", v), ("e", e), ("r", r)):
            found[name].append(value)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}


@pytest.mark.parametrize("branch_input", [CHUNK, FULL])
@pytest.mark.parametrize(("width", "dim", "branches"), [(12, 6, 3), (8, 8, 4), (10, 4, 2), (5, 3, 1), (14, 7, 7)])
def test_the_forward_pass_is_that_of_the_equations(width, dim, branches, branch_input):
    made = head(width, dim, branches, branch_input)
    features = values(9, width)
    expected = by_loops(made, features)
    output = made(features)
    torch.testing.assert_close(output.embeddings, expected["z"])
    torch.testing.assert_close(output.parts, expected["v"])
    torch.testing.assert_close(output.errors, expected["e"])
    torch.testing.assert_close(made.shares(made.seen(features)), expected["r"])
    # the example would show nothing if no score, or every score, were cut off
    assert branches == 1 or 0 < float((expected["r"] == 0).double().mean()) < 1
    term = made.terms(output)["reconstruction"]
    torch.testing.assert_close(term.value, expected["e"].mean())
    best = [min(range(branches), key=lambda k, row=row: row[k]) for row in expected["e"].tolist()]
    assert made.assignment(output).tolist() == [[k == b for k in range(branches)] for b in best]
    torch.testing.assert_close(made.eval()(features), expected["z"])


def test_branches_of_full_input_may_be_any_number_that_shares_the_dimension():
    """A width that nothing divides is no matter where all branches read all of it."""
    for branches in (1, 2, 3, 4, 6, 12):
        output = Relational(width=11, dim=12, branches=branches, branch_input=FULL)(torch.randn(4, 11))
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
    made = Relational(width=2000, dim=400, branches=2)
    for part, size in ((made.nodes, 200), (made.decoders, 1000), (made.sources, 200), (made.targets, 200)):
        for matrix in part.weight:
            assert float(matrix.detach().std()) == pytest.approx(math.sqrt(2 / size), rel=0.02)
        assert not part.bias.any()
    assert float(made.score.weight.detach().std()) == pytest.approx(math.sqrt(2), rel=0.2)
    assert not made.score.bias.any()


# -- one test per edge of the picture -----------------------------------------------------------------------------


def reached(made, value, features):
    """The modules of the head, and "trunk", that the gradient of a value reaches."""
    made.zero_grad()
    features.grad = None
    value.backward()
    parts = {name: [*module.parameters()] for name, module in made.named_children()}
    found = {name for name, owned in parts.items() if any(p.grad is not None and p.grad.any() for p in owned)}
    return found | ({"trunk"} if features.grad is not None and bool(features.grad.any()) else set())


@pytest.fixture(params=[CHUNK, FULL])
def made(request):
    return head(branch_input=request.param)


@pytest.fixture
def features():
    return values(7, 12).requires_grad_()


def weighted(rows, seed=3):
    """Some scalar of rows to which every entry matters."""
    return (rows.sin() * values(*rows.shape, seed=seed)).sum()


def test_a_loss_of_the_nodes_reaches_the_node_maps_and_the_trunk_and_nothing_else(made, features):
    assert reached(made, weighted(made(features).parts), features) == {"nodes", "trunk"}


def test_a_loss_of_one_node_reaches_its_own_map_its_own_features_and_its_own_items(made, features):
    value = weighted(made(features).parts[2:4, 1])
    reached(made, value, features)
    assert made.nodes.weight.grad[1].any()
    assert not made.nodes.weight.grad[[0, 2]].any()
    items = features.grad.abs().sum(dim=1)
    assert items[2:4].all()
    assert not items[[0, 1, 4, 5, 6]].any()
    columns = features.grad.abs().sum(dim=0) > 0
    own = torch.ones(12) if made.branch_input == FULL else torch.tensor([0] * 4 + [1] * 4 + [0] * 4)
    assert torch.equal(columns, own.bool())


def test_the_reconstruction_reaches_the_decoders_and_nothing_else(made, features):
    assert reached(made, made.terms(made(features))["reconstruction"].value, features) == {"decoders"}


def test_the_reconstruction_of_every_branch_counts_and_not_the_best_alone(made, features):
    output = made(features)
    lost = (~made.assignment(output)).any(dim=0)
    assert lost.all()
    made.terms(output)["reconstruction"].value.backward()
    torch.testing.assert_close(output.errors.mean(), by_loops(made, features.detach())["e"].mean())
    assert all(matrix.any() for matrix in made.decoders.weight.grad)


def test_the_assignment_has_no_gradient(made, features):
    assigned = made.assignment(made(features))
    assert assigned.dtype == torch.bool
    assert not assigned.requires_grad
    assert torch.equal(assigned.sum(dim=1), torch.ones(7, dtype=torch.int64))


def test_a_loss_of_the_embedding_reaches_everything_but_the_decoders(made, features):
    everything = {"nodes", "sources", "targets", "score", "relation", "trunk"}
    assert reached(made, weighted(made(features).embeddings), features) == everything


def test_a_loss_of_the_embedding_does_not_reach_the_trunk_through_the_scores(made, features):
    """Its gradient is that of shares which are constants."""
    reached(made, weighted(made(features).embeddings), features)
    nodes_found, found = made.nodes.weight.grad.clone(), features.grad.clone()
    shares = by_loops(made, features.detach())["r"]  # plain numbers
    made.zero_grad()
    features.grad = None
    nodes = unit(made.nodes(made.seen(features)))
    heard = torch.stack([sum(shares[:, i, j, None] * nodes[:, i] for i in range(3)) for j in range(3)], dim=1)
    weighted(made.relation(torch.cat([nodes, heard], dim=2)).flatten(1)).backward()
    torch.testing.assert_close(found, features.grad)
    torch.testing.assert_close(nodes_found, made.nodes.weight.grad)


def test_scores_that_reached_the_trunk_would_be_noticed(made, features, monkeypatch):
    """The same with the features let through to the scores gives another gradient."""
    reached(made, weighted(made(features).embeddings), features)
    found = features.grad.clone()
    monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: tensor)
    reached(made, weighted(made(features).embeddings), features)
    assert (features.grad - found).abs().max() > 1e-3


def test_the_embedding_of_a_branch_reaches_its_own_node_directly(made, features):
    """Also where it hears nobody."""
    with torch.no_grad():
        made.score.bias.fill_(-1e6)
    assert not made.shares(made.seen(features)).any()
    reached(made, weighted(made(features).embeddings[:, 2:4]), features)
    assert made.nodes.weight.grad[1].any()
    assert not made.nodes.weight.grad[[0, 2]].any()


def test_the_embedding_of_a_branch_reaches_the_nodes_that_it_hears(made, features):
    with torch.no_grad():
        made.score.bias.fill_(50.0)  # all edges
    assert made.shares(made.seen(features)).all()
    reached(made, weighted(made(features).embeddings[:, 2:4]), features)
    assert all(matrix.any() for matrix in made.nodes.weight.grad)


def test_an_edge_without_a_score_passes_nothing_to_sources_and_targets(made, features):
    with torch.no_grad():
        made.score.bias.fill_(-1e6)
    found = reached(made, weighted(made(features).embeddings), features)
    assert found == {"nodes", "relation", "trunk"}


def test_at_the_start_scores_wait_until_the_relation_has_moved(features):
    """T = [1, 0] takes no notice of what the others say, but learns to."""
    fresh = Relational(12, 6, 3).double()
    reached(fresh, weighted(fresh(features).embeddings), features)
    assert fresh.relation.weight.grad[:, 2:].any()
    assert not fresh.sources.weight.grad.any()


def test_gradients_are_those_of_finite_differences(made):
    inputs = values(2, 12, seed=8).requires_grad_()
    frozen = copy.deepcopy(made)
    with torch.no_grad():  # of nodes and relation alone: what is behind a stop is no derivative
        frozen.score.bias.fill_(-1e6)
    assert torch.autograd.gradcheck(lambda x: frozen(x).embeddings, inputs)
    weight = made.decoders.weight
    assert torch.autograd.gradcheck(lambda w: made(inputs.detach()).errors, weight)


# -- odd inputs ---------------------------------------------------------------------------------------------------


ODD = {
    "one item": values(1, 12),
    "no item": values(0, 12),
    "equal items": values(1, 12).expand(4, 12),
    "zeros": torch.zeros(3, 12, dtype=torch.float64),
    "huge": values(3, 12) * 1e30,
    "tiny": values(3, 12) * 1e-30,
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("bias", [0.0, -1e6, 1e6])
@pytest.mark.parametrize("fresh", [True, False])
def test_odd_inputs_give_finite_values_and_gradients(case, bias, fresh, made):
    if fresh:
        made = Relational(12, 6, 3, made.branch_input).double()
    with torch.no_grad():
        made.score.bias.fill_(bias)
    leaf = ODD[case].clone().requires_grad_()
    output = made(leaf)
    assert all(bool(field.isfinite().all()) for field in output)
    (weighted(output.embeddings) + weighted(output.parts)).backward()
    assert leaf.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in made.parameters() if p.grad is not None)
    assert made.eval()(leaf).shape == (len(leaf), 6)


def test_features_that_are_all_zero_do_not_give_a_gradient_of_astronomic_size():
    """As behind a ReLU, at the start where biases are zero."""
    fresh = Relational(12, 6, 3)
    leaf = torch.zeros(2, 12, requires_grad=True)
    (fresh(leaf).embeddings * 2).sum().backward()
    assert leaf.grad.abs().max() < 1


def test_a_batch_of_one_is_that_row_of_a_larger_batch(made):
    rows = values(5, 12)
    together = made(rows)
    for number in range(5):
        alone = made(rows[number : number + 1])
        for field, whole in zip(alone, together, strict=True):
            torch.testing.assert_close(field[0], whole[number])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("branch_input", [CHUNK, FULL])
def test_autocast_is_finite_and_near(half, branch_input):
    made = head(branch_input=branch_input).float()
    rows = values(6, 12).float().requires_grad_()
    with torch.autocast("cpu", dtype=half):
        output = made(rows)
    expected = made(rows)
    assert output.errors.dtype == output.parts.dtype == torch.float32
    for field, exact in zip(output, expected, strict=True):
        assert field.isfinite().all()
        assert (field.float() - exact).abs().max() < 0.05 * max(1.0, float(exact.detach().abs().max()))
    (output.embeddings.float().sum() + output.errors.mean()).backward()
    assert rows.grad.isfinite().all()
    with torch.autocast("cpu", dtype=half), torch.no_grad():
        made.score.bias.fill_(-1e4)
        assert made(rows).embeddings.isfinite().all()  # 1e-12 is zero in float16


# -- as a head among others ---------------------------------------------------------------------------------------


def test_weights_survive_a_round_trip_and_the_seed_alone_decides_them():
    made = [models.create("conv4", 8, "relational", seed=seed) for seed in (3, 3, 4)]
    images = torch.randn(3, 1, 28, 28)
    first, same, other = (network.eval()(images) for network in made)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
    made[2].load_state_dict(made[0].state_dict())
    assert torch.equal(made[2](images), first)


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
        ({"dim": 9}, r"dim=9 cannot be shared by 4 branches alike; .* multiple of 4 \(8 or 12\), or branches=3"),
        ({"width": 18}, r"width of the features=18 cannot be shared by 4 branches.*branches=3"),
        ({"dim": 3}, r"multiple of 4 \(4\), or branches=3"),
        ({"branches": 0}, "at least 1 branch"),
        ({"branch_input": "chunks"}, "did you mean 'chunk'"),
        ({"representation_weight": -1.0}, "representation_weight must be a number from 0 up"),
        ({"reconstruction_weight": float("nan")}, "reconstruction_weight must be a number from 0 up"),
        ({"brances": 4}, "did you mean 'branches'"),
    ],
)
def test_what_does_not_fit_is_named_with_a_way_out(options, message):
    given = {"width": 16, "dim": 8, **options}
    with pytest.raises(ValueError, match=message):
        kinfold.registry.create("heads", "relational", **given)


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
    path = export(Deployed(network, None, unit=False), tmp_path / name, rows).path
    for inputs in (rows, rows[:1]):
        if path.suffix == ".onnx":
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            found = session.run(None, {"features": inputs.numpy()})[0]
        else:
            found = torch.export.load(path).module()(inputs).detach().numpy()
        np.testing.assert_allclose(found, network.eval()(inputs).detach().numpy(), atol=1e-5)


def test_maps_are_linear_layers_side_by_side():
    maps = Maps(3, 4, 2).double()
    with torch.no_grad():
        maps.bias.copy_(values(3, 2))
    own, common = values(5, 3, 4), values(5, 1, 4)
    for k in range(3):
        layer = nn.Linear(4, 2).double()
        layer.weight.data, layer.bias.data = maps.weight.data[k], maps.bias.data[k]
        torch.testing.assert_close(maps(own)[:, k], layer(own[:, k]))
        torch.testing.assert_close(maps(common)[:, k], layer(common[:, 0]))
