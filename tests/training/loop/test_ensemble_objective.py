"""The objective of an ensemble term by term, parts that have nothing to learn from, and one step of training."""

import copy
import warnings

import pytest
import torch

import kinfold
from kinfold.data import Batch
from kinfold.losses import Mined
from kinfold.models.relational import RelationalHead, RelationalOutput
from kinfold.training import Step, components, configure
from kinfold.training.config.settings import MixupConfig
from kinfold.training.loop.ensemble_objective import EnsembleObjective
from tests.problems import LOSSES, make
from tests.training import ensembles, tiny
from tests.training.rank_run import whole_batch

PAIRED = [
    ("proxy-anchor", None),
    ("cosface", None),
    ("contrastive", None),
    ("triplet", "drml-hard"),
    ("margin", "distance-weighted"),
    ("quadruplet", None),
]


def outputs(head, size=24, seed=0):
    """A network with its output for a batch, and the labels."""
    network = ensembles.Network(head).double()
    batch = whole_batch(seed, size=size)
    return network, network(batch.images), batch.labels


# -- the objective ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relational", "full"])
@pytest.mark.parametrize(("loss", "miner"), PAIRED)
def test_the_objective_of_drml_is_the_sum_of_its_terms(name, loss, miner):
    network, output, labels = outputs(name)
    objective = ensembles.objective(network.head, loss, miner).double()
    alone = copy.deepcopy(objective)  # its miners go on with the same numbers
    value = objective.compute_batch_loss(output, labels)
    best = [min(range(len(row)), key=row.__getitem__) for row in output.errors.tolist()]
    expected, empty = torch.tensor(0.0, dtype=torch.float64), 0
    for k in range(network.head.parts):
        items = [i for i, b in enumerate(best) if b == k]
        if items:
            part = alone.parts[k](torch.stack([output.parts[i, k] for i in items]), labels[items])
            expected = expected + part
            torch.testing.assert_close(objective.logged[f"loss-part-{k + 1}"], part.detach())
        empty += not items
        assert float(objective.logged[f"occupancy-{k + 1}"]) == pytest.approx(len(items) / len(best))
    assert empty < network.head.parts - 1  # several parts learn in this example
    whole = alone.loss(output.embeddings, labels)
    weights = {"relational": (2.0, 0.5), "full": (1.0, 1.0)}[name]
    expected = (
        expected + weights[0] * whole + weights[1] * sum(map(sum, output.errors.tolist())) / output.errors.numel()
    )
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(objective.logged["loss-whole"], whole.detach())
    torch.testing.assert_close(objective.logged["reconstruction"], output.errors.mean().detach())


@pytest.mark.parametrize(("loss", "miner"), PAIRED)
def test_independent_parts_learn_from_every_item(loss, miner):
    network, output, labels = outputs("independent")
    objective = ensembles.objective(network.head, loss, miner).double()
    alone = copy.deepcopy(objective)
    value = objective.compute_batch_loss(output, labels)
    expected = sum(alone.parts[k](output.parts[:, k], labels) for k in range(3))
    expected = expected + 0.5 * alone.loss(output.embeddings, labels)
    term = network.head.terms(output)["decorrelation"].value
    torch.testing.assert_close(value, expected + 3.0 * term)
    assert not any(name.startswith("occupancy") for name in objective.logged)
    torch.testing.assert_close(objective.logged["decorrelation"], term.detach())


def relations(nodes, owners):
    """An output in which item i belongs to the branch owners[i]."""
    owners = torch.tensor(owners)
    errors = torch.nn.functional.one_hot(owners, nodes.shape[1]).to(nodes) * -1.0 + 2.0
    return RelationalOutput(nodes.flatten(1), nodes, errors)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("owners", "labels"),
    [
        ([1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2]),  # two branches are empty
        ([0, 1, 1, 1, 2, 2], [0, 0, 1, 1, 2, 3]),  # one item, and no two of one class
        ([0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]),  # one class in each
        ([2], [3]),
    ],
)
def test_parts_without_items_or_positives_return_a_differentiable_zero_without_a_warning(name, owners, labels):
    head = RelationalHead(12, 6, 3)
    nodes = torch.randn(len(owners), 3, 2, generator=torch.Generator().manual_seed(1)).requires_grad_()
    objective = ensembles.objective(head, name)
    labels = torch.tensor(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if len(owners) == 1:  # the whole batch still warns
            warnings.filterwarnings("ignore", message=".*got a batch with no two items.*")
        value = objective.compute_batch_loss(relations(nodes, owners), labels)
    assert value.isfinite()
    value.backward()
    assert nodes.grad.isfinite().all()
    for k in range(3):
        items = torch.tensor(owners) == k
        has_positives = len(set(labels[items].tolist())) < int(items.sum())
        part_loss = objective.logged[f"loss-part-{k + 1}"]
        if not items.any() or (not has_positives and objective.loss.proxies is None):
            assert part_loss == 0


def test_an_objective_without_terms_is_a_differentiable_zero():
    head = RelationalHead(12, 6, 3, representation_weight=0.0, reconstruction_weight=0.0)
    nodes = torch.randn(3, 3, 2).requires_grad_()
    objective = ensembles.objective(head, "contrastive")
    value = objective.compute_batch_loss(relations(nodes, [0, 1, 2]), torch.tensor([0, 0, 0]))
    assert value == 0
    value.backward()
    assert not nodes.grad.any()
    assert "loss-whole" not in objective.logged


def test_a_part_with_items_of_one_class_has_a_loss():
    """Only a part without positives has no loss."""
    objective = ensembles.objective(RelationalHead(12, 6, 3), "contrastive")
    nodes = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
    objective.compute_batch_loss(relations(nodes, [0, 0, 1, 2]), torch.tensor([0, 0, 1, 1]))
    assert objective.logged["loss-part-1"] > 0
    assert objective.logged["loss-part-2"] == objective.logged["loss-part-3"] == 0


def test_proxies_of_an_empty_branch_do_not_change():
    """Even if the optimizer has momentum from earlier steps; there is no warning about unused proxies."""
    objective = ensembles.objective(RelationalHead(12, 6, 3), "proxy-anchor")
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.1)
    nodes, labels = torch.randn(4, 3, 2).requires_grad_(), torch.tensor([0, 0, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(60):
            optimizer.zero_grad()
            objective.compute_batch_loss(
                relations(nodes, [0, 1, 2, 2] if step == 0 else [0, 1, 0, 1]), labels
            ).backward()
            optimizer.step()
            if step == 0:
                before = [part.proxies.detach().clone() for part in objective.parts]
    moved = [not torch.equal(part.proxies, start) for part, start in zip(objective.parts, before, strict=True)]
    assert moved == [True, True, False]


def test_an_ensemble_objective_has_no_weights_of_the_model():
    network = ensembles.Network("relational")
    objective = ensembles.objective(network.head, "proxy-anchor")
    owned = {id(parameter) for parameter in network.parameters()}
    assert not owned & {id(parameter) for parameter in objective.parameters()}
    assert [*objective.state_dict()] == ["loss.proxies", *(f"parts.{k}.proxies" for k in range(3))]


def test_proxies_have_the_width_of_their_part_for_all_classes():
    config = configure(tiny.recipe(**ensembles.RELATIONAL, loss={"name": "proxy-anchor"}, miner=None))
    embedder = kinfold.models.create(
        "features", 6, "relational", backbone_options={"width": 10}, head_options={"branches": 2}
    )
    objective = components.build_objective(config, 12, embedder)
    assert isinstance(objective, EnsembleObjective)
    assert objective.loss.proxies.shape == (12, 6)
    assert [part.proxies.shape for part in objective.parts] == [(12, 3), (12, 3)]
    assert not torch.equal(objective.parts[0].proxies, objective.parts[1].proxies)
    # the whole starts as it would without parts
    assert torch.equal(objective.loss.proxies, components.build_objective(config, 12).loss.proxies)


def test_draws_depend_on_seed_and_step_alone_and_differ_between_parts():
    network, output, labels = outputs("independent")
    objective = ensembles.objective(network.head, "margin", "random").double()
    plain = Mined(make("margin", dim=6), kinfold.miners.create("random")).double()

    def drawn():
        objective.seed(7, 1)
        objective.compute_batch_loss(output, labels)
        return {key: float(value) for key, value in objective.logged.items()}

    first = drawn()
    objective.compute_batch_loss(output, labels)
    assert drawn() == first
    states = [part.miner.generator.initial_seed() for part in objective.parts]
    assert len({*states, objective.loss.miner.generator.initial_seed()}) == 4
    alone = kinfold.training.Objective(plain)
    alone.seed(7, 1)
    assert float(alone.compute_batch_loss(output.embeddings, labels).detach()) == first["loss-whole"]


def test_invalid_ensembles_are_refused():
    head = RelationalHead(12, 6, 3)
    with pytest.raises(ValueError, match="3 parts needs as many losses, got 2"):
        EnsembleObjective(head, make("triplet"), [make("triplet"), make("triplet")])
    with pytest.raises(ValueError, match="must be 'mean' or 'sum'"):
        ensembles.objective(head, "triplet", reduction="none")


# -- a step -------------------------------------------------------------------------------------------------------


def gradients(kind, loss, miner, **options):
    network = ensembles.Network(kind).double()
    objective = ensembles.objective(network.head, loss, miner).double()
    output = Step(network, objective, seed=5, precision="float64", **options)(whole_batch(size=12), 3)
    named = [*network.named_parameters(), *objective.named_parameters()]
    return output, {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("kind", ensembles.HEADS)
@pytest.mark.parametrize(("loss", "miner"), PAIRED)
def test_micro_batches_have_the_gradient_of_the_whole_batch(kind, loss, miner):
    expected_output, expected = gradients(kind, loss, miner)
    for size in (1, 5):
        output, computed = gradients(kind, loss, miner, micro_batch=size)
        assert output.loss == pytest.approx(expected_output.loss, rel=1e-12)
        assert output.logged == pytest.approx(expected_output.logged, rel=1e-12)
        for name, gradient in expected.items():
            torch.testing.assert_close(computed[name], gradient, atol=1e-12, rtol=1e-10, msg=name)


def test_mixed_items_have_both_labels_in_every_term():
    network = ensembles.Network("relational").double()
    objective = ensembles.objective(network.head, "proxy-anchor").double()
    batch = whole_batch(size=12)
    mixed_loss = Step(network, objective, seed=5, precision="float64", mixing=MixupConfig())(batch, 0).loss
    draw = kinfold.training.loop.mixup.draw_mix(MixupConfig(), 12, kinfold.seeding.derive_generator(5, 0, 2))
    output = network(draw.apply(batch.images))
    first, second = (
        objective.compute_batch_loss(output, batch.labels),
        objective.compute_batch_loss(output, batch.labels[draw.partner]),
    )
    assert mixed_loss == pytest.approx(float((draw.share * first + (1 - draw.share) * second).detach()), rel=1e-12)


@pytest.mark.parametrize("kind", ensembles.HEADS)
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_finite_and_close_to_float32(kind, precision):
    def step(precision):
        network = ensembles.Network(kind)
        objective = ensembles.objective(network.head, "multi-similarity")
        batch = whole_batch(dtype=torch.float32, size=24)
        loss = Step(network, objective, precision=precision)(Batch(*batch), 0).loss
        return loss, [p.grad for p in network.parameters() if p.grad is not None]

    loss, gradients = step(precision)
    assert loss == pytest.approx(step("float32")[0], rel=0.1)
    assert all(gradient.isfinite().all() for gradient in gradients)
