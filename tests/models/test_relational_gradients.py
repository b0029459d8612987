"""The head of DRML: every edge along which a gradient may or may not pass, and inputs at which all must stay finite."""

import copy

import pytest
import torch

from kinfold.models.ensemble import normalize_parts
from kinfold.models.relational import RelationalHead
from tests.models.relational import CHUNK, FULL, by_loops, head, values

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
    nodes = normalize_parts(made.nodes(made.split_features(features)))
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
    assert not made.compute_edge_weights(made.split_features(features)).any()
    reached(made, weighted(made(features).embeddings[:, 2:4]), features)
    assert made.nodes.weight.grad[1].any()
    assert not made.nodes.weight.grad[[0, 2]].any()


def test_the_embedding_of_a_branch_reaches_the_nodes_that_it_hears(made, features):
    with torch.no_grad():
        made.score.bias.fill_(50.0)  # all edges
    assert made.compute_edge_weights(made.split_features(features)).all()
    reached(made, weighted(made(features).embeddings[:, 2:4]), features)
    assert all(matrix.any() for matrix in made.nodes.weight.grad)


def test_an_edge_without_a_score_passes_nothing_to_sources_and_targets(made, features):
    with torch.no_grad():
        made.score.bias.fill_(-1e6)
    found = reached(made, weighted(made(features).embeddings), features)
    assert found == {"nodes", "relation", "trunk"}


def test_at_the_start_scores_wait_until_the_relation_has_moved(features):
    """T = [1, 0] takes no notice of what the others say, but learns to."""
    fresh = RelationalHead(12, 6, 3).double()
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
        made = RelationalHead(12, 6, 3, made.branch_input).double()
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
    fresh = RelationalHead(12, 6, 3)
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
