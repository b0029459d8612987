"""The head of DRML: every edge along which a gradient may or may not pass, and inputs at which all must stay finite."""

import copy

import pytest
import torch

from kinfold.models.ensemble import normalize_parts
from kinfold.models.relational import RelationalHead
from tests.models.relational import CHUNK, FULL, by_loops, head, values

# -- one test per edge of the picture -----------------------------------------------------------------------------


def reached(relational_head, value, features):
    """The modules of the head, and "trunk", that the gradient of a value reaches."""
    relational_head.zero_grad()
    features.grad = None
    value.backward()
    parts = {name: [*module.parameters()] for name, module in relational_head.named_children()}
    modules = {name for name, owned in parts.items() if any(p.grad is not None and p.grad.any() for p in owned)}
    return modules | ({"trunk"} if features.grad is not None and bool(features.grad.any()) else set())


@pytest.fixture(params=[CHUNK, FULL])
def relational_head(request):
    return head(branch_input=request.param)


@pytest.fixture
def features():
    return values(7, 12).requires_grad_()


def weighted(rows, seed=3):
    """Some scalar of rows to which every entry matters."""
    return (rows.sin() * values(*rows.shape, seed=seed)).sum()


def test_a_loss_of_the_nodes_reaches_the_node_maps_and_the_trunk_and_nothing_else(relational_head, features):
    assert reached(relational_head, weighted(relational_head(features).parts), features) == {"nodes", "trunk"}


def test_a_loss_of_one_node_reaches_its_own_map_its_own_features_and_its_own_items(relational_head, features):
    value = weighted(relational_head(features).parts[2:4, 1])
    reached(relational_head, value, features)
    assert relational_head.nodes.weight.grad[1].any()
    assert not relational_head.nodes.weight.grad[[0, 2]].any()
    items = features.grad.abs().sum(dim=1)
    assert items[2:4].all()
    assert not items[[0, 1, 4, 5, 6]].any()
    columns = features.grad.abs().sum(dim=0) > 0
    expected = torch.ones(12) if relational_head.branch_input == FULL else torch.tensor([0] * 4 + [1] * 4 + [0] * 4)
    assert torch.equal(columns, expected.bool())


def test_the_reconstruction_reaches_the_decoders_and_nothing_else(relational_head, features):
    assert reached(
        relational_head, relational_head.terms(relational_head(features))["reconstruction"].value, features
    ) == {"decoders"}


def test_the_reconstruction_of_every_branch_counts_and_not_the_best_alone(relational_head, features):
    output = relational_head(features)
    lost = (~relational_head.assignment(output)).any(dim=0)
    assert lost.all()
    relational_head.terms(output)["reconstruction"].value.backward()
    torch.testing.assert_close(output.errors.mean(), by_loops(relational_head, features.detach())["e"].mean())
    assert all(matrix.any() for matrix in relational_head.decoders.weight.grad)


def test_the_assignment_has_no_gradient(relational_head, features):
    assigned = relational_head.assignment(relational_head(features))
    assert assigned.dtype == torch.bool
    assert not assigned.requires_grad
    assert torch.equal(assigned.sum(dim=1), torch.ones(7, dtype=torch.int64))


def test_a_loss_of_the_embedding_reaches_everything_but_the_decoders(relational_head, features):
    everything = {"nodes", "sources", "targets", "score", "relation", "trunk"}
    assert reached(relational_head, weighted(relational_head(features).embeddings), features) == everything


def test_a_loss_of_the_embedding_does_not_reach_the_trunk_through_the_scores(relational_head, features):
    """Its gradient is that of shares which are constants."""
    reached(relational_head, weighted(relational_head(features).embeddings), features)
    node_gradient, trunk_gradient = relational_head.nodes.weight.grad.clone(), features.grad.clone()
    shares = by_loops(relational_head, features.detach())["r"]  # plain numbers
    relational_head.zero_grad()
    features.grad = None
    nodes = normalize_parts(relational_head.nodes(relational_head.split_features(features)))
    heard = torch.stack([sum(shares[:, i, j, None] * nodes[:, i] for i in range(3)) for j in range(3)], dim=1)
    weighted(relational_head.relation(torch.cat([nodes, heard], dim=2)).flatten(1)).backward()
    torch.testing.assert_close(trunk_gradient, features.grad)
    torch.testing.assert_close(node_gradient, relational_head.nodes.weight.grad)


def test_scores_that_reached_the_trunk_would_be_noticed(relational_head, features, monkeypatch):
    """The same with the features let through to the scores gives another gradient."""
    reached(relational_head, weighted(relational_head(features).embeddings), features)
    trunk_gradient = features.grad.clone()
    monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: tensor)
    reached(relational_head, weighted(relational_head(features).embeddings), features)
    assert (features.grad - trunk_gradient).abs().max() > 1e-3


def test_the_embedding_of_a_branch_reaches_its_own_node_directly(relational_head, features):
    """Also where it hears nobody."""
    with torch.no_grad():
        relational_head.score.bias.fill_(-1e6)
    assert not relational_head.compute_edge_weights(relational_head.split_features(features)).any()
    reached(relational_head, weighted(relational_head(features).embeddings[:, 2:4]), features)
    assert relational_head.nodes.weight.grad[1].any()
    assert not relational_head.nodes.weight.grad[[0, 2]].any()


def test_the_embedding_of_a_branch_reaches_the_nodes_with_an_edge_to_it(relational_head, features):
    with torch.no_grad():
        relational_head.score.bias.fill_(50.0)  # all edges
    assert relational_head.compute_edge_weights(relational_head.split_features(features)).all()
    reached(relational_head, weighted(relational_head(features).embeddings[:, 2:4]), features)
    assert all(matrix.any() for matrix in relational_head.nodes.weight.grad)


def test_an_edge_without_a_score_passes_nothing_to_sources_and_targets(relational_head, features):
    with torch.no_grad():
        relational_head.score.bias.fill_(-1e6)
    modules = reached(relational_head, weighted(relational_head(features).embeddings), features)
    assert modules == {"nodes", "relation", "trunk"}


def test_at_the_start_scores_wait_until_the_relation_has_moved(features):
    """T = [1, 0] takes no notice of what the others say, but learns to."""
    fresh = RelationalHead(12, 6, 3).double()
    reached(fresh, weighted(fresh(features).embeddings), features)
    assert fresh.relation.weight.grad[:, 2:].any()
    assert not fresh.sources.weight.grad.any()


def test_gradients_are_those_of_finite_differences(relational_head):
    inputs = values(2, 12, seed=8).requires_grad_()
    frozen = copy.deepcopy(relational_head)
    with torch.no_grad():  # of nodes and relation alone: what is behind a stop is no derivative
        frozen.score.bias.fill_(-1e6)
    assert torch.autograd.gradcheck(lambda x: frozen(x).embeddings, inputs)
    weight = relational_head.decoders.weight
    assert torch.autograd.gradcheck(lambda w: relational_head(inputs.detach()).errors, weight)


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
def test_odd_inputs_give_finite_values_and_gradients(case, bias, fresh, relational_head):
    if fresh:
        relational_head = RelationalHead(12, 6, 3, relational_head.branch_input).double()
    with torch.no_grad():
        relational_head.score.bias.fill_(bias)
    leaf = ODD[case].clone().requires_grad_()
    output = relational_head(leaf)
    assert all(bool(field.isfinite().all()) for field in output)
    (weighted(output.embeddings) + weighted(output.parts)).backward()
    assert leaf.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in relational_head.parameters() if p.grad is not None)
    assert relational_head.eval()(leaf).shape == (len(leaf), 6)


def test_features_that_are_all_zero_do_not_give_a_gradient_of_astronomic_size():
    """As behind a ReLU, at the start where biases are zero."""
    fresh = RelationalHead(12, 6, 3)
    leaf = torch.zeros(2, 12, requires_grad=True)
    (fresh(leaf).embeddings * 2).sum().backward()
    assert leaf.grad.abs().max() < 1


def test_a_batch_of_one_is_that_row_of_a_larger_batch(relational_head):
    rows = values(5, 12)
    together = relational_head(rows)
    for number in range(5):
        alone = relational_head(rows[number : number + 1])
        for field, all_rows in zip(alone, together, strict=True):
            torch.testing.assert_close(field[0], all_rows[number])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("branch_input", [CHUNK, FULL])
def test_autocast_is_finite_and_near(half, branch_input):
    relational_head = head(branch_input=branch_input).float()
    rows = values(6, 12).float().requires_grad_()
    with torch.autocast("cpu", dtype=half):
        output = relational_head(rows)
    expected = relational_head(rows)
    assert output.errors.dtype == output.parts.dtype == torch.float32
    for field, exact in zip(output, expected, strict=True):
        assert field.isfinite().all()
        assert (field.float() - exact).abs().max() < 0.05 * max(1.0, float(exact.detach().abs().max()))
    (output.embeddings.float().sum() + output.errors.mean()).backward()
    assert rows.grad.isfinite().all()
    with torch.autocast("cpu", dtype=half), torch.no_grad():
        relational_head.score.bias.fill_(-1e4)
        assert relational_head(rows).embeddings.isfinite().all()  # 1e-12 is zero in float16
