"""Ensembles in training: the objective term by term, parts that have nothing to learn from, runs from end to end."""

import copy
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import kinfold
from kinfold import recipes
from kinfold.data import Batch
from kinfold.losses import Mined
from kinfold.models.export import Deployed, export
from kinfold.models.relational import Relational, Relations
from kinfold.training import Run, Step, configure, parts, train
from kinfold.training.configuration import Mixup
from kinfold.training.ensemble_objective import EnsembleObjective
from kinfold.training.files import read_state
from kinfold.training.parsing import read
from tests.problems import LOSSES, make
from tests.training import ensembles, tiny
from tests.training.rank_run import whole_batch
from tests.training.test_resume import BrokenOffError, raising

ROOT = Path(__file__).parent.parent.parent
RELATIONAL = {"model": {"head": "relational", "head_options": {"branches": 2, "representation_weight": 2.0}}}
INDEPENDENT = {"model": {"head": "independent", "head_options": {"branches": 3}}}
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
    value = objective.plain(output, labels)
    best = [min(range(len(row)), key=lambda k, row=row: row[k]) for row in output.errors.tolist()]
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
    value = objective.plain(output, labels)
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
    return Relations(nodes.flatten(1), nodes, errors)


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
def test_parts_without_items_or_kin_are_a_zero_with_a_graph_and_no_reason_to_warn(name, owners, labels):
    head = Relational(12, 6, 3)
    nodes = torch.randn(len(owners), 3, 2, generator=torch.Generator().manual_seed(1)).requires_grad_()
    objective = ensembles.objective(head, name)
    labels = torch.tensor(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if len(owners) == 1:  # the whole batch says so, as ever
            warnings.filterwarnings("ignore", message=".*given a batch with no two items.*")
        value = objective.plain(relations(nodes, owners), labels)
    assert value.isfinite()
    value.backward()
    assert nodes.grad.isfinite().all()
    for k in range(3):
        items = torch.tensor(owners) == k
        kin = len(set(labels[items].tolist())) < int(items.sum())
        found = objective.logged[f"loss-part-{k + 1}"]
        if not items.any() or (not kin and objective.loss.proxies is None):
            assert found == 0


def test_an_objective_of_which_nothing_is_left_still_has_a_graph():
    head = Relational(12, 6, 3, representation_weight=0.0, reconstruction_weight=0.0)
    nodes = torch.randn(3, 3, 2).requires_grad_()
    objective = ensembles.objective(head, "contrastive")
    value = objective.plain(relations(nodes, [0, 1, 2]), torch.tensor([0, 0, 0]))
    assert value == 0
    value.backward()
    assert not nodes.grad.any()
    assert "loss-whole" not in objective.logged


def test_a_part_whose_items_are_all_of_one_class_still_draws_them_together():
    """Only a part without kin says nothing."""
    objective = ensembles.objective(Relational(12, 6, 3), "contrastive")
    nodes = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
    objective.plain(relations(nodes, [0, 0, 1, 2]), torch.tensor([0, 0, 1, 1]))
    assert objective.logged["loss-part-1"] > 0
    assert objective.logged["loss-part-2"] == objective.logged["loss-part-3"] == 0


def test_proxies_of_a_branch_rest_while_it_is_empty():
    """Also where the optimiser has momentum from when it was not, and nobody says that they were forgotten."""
    objective = ensembles.objective(Relational(12, 6, 3), "proxy-anchor")
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.1)
    nodes, labels = torch.randn(4, 3, 2).requires_grad_(), torch.tensor([0, 0, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(60):
            optimizer.zero_grad()
            objective.plain(relations(nodes, [0, 1, 2, 2] if step == 0 else [0, 1, 0, 1]), labels).backward()
            optimizer.step()
            if step == 0:
                before = [part.proxies.detach().clone() for part in objective.parts]
    moved = [not torch.equal(part.proxies, start) for part, start in zip(objective.parts, before, strict=True)]
    assert moved == [True, True, False]


def test_the_weights_of_an_ensemble_are_the_model_s_alone():
    network = ensembles.Network("relational")
    objective = ensembles.objective(network.head, "proxy-anchor")
    owned = {id(parameter) for parameter in network.parameters()}
    assert not owned & {id(parameter) for parameter in objective.parameters()}
    assert [*objective.state_dict()] == ["loss.proxies", *(f"parts.{k}.proxies" for k in range(3))]


def test_every_loss_has_proxies_as_wide_as_what_they_are_compared_with_for_all_classes():
    given = configure(tiny.recipe(**RELATIONAL, loss={"name": "proxy-anchor"}, miner=None))
    embedder = kinfold.models.create(
        "features", 6, "relational", backbone_options={"width": 10}, head_options={"branches": 2}
    )
    made = parts.objective(given, 12, embedder)
    assert isinstance(made, EnsembleObjective)
    assert made.loss.proxies.shape == (12, 6)
    assert [part.proxies.shape for part in made.parts] == [(12, 3), (12, 3)]
    assert not torch.equal(made.parts[0].proxies, made.parts[1].proxies)
    # the whole starts as it would without parts
    assert torch.equal(made.loss.proxies, parts.objective(given, 12).loss.proxies)


def test_every_draw_of_a_step_depends_on_its_numbers_alone_and_parts_draw_apart():
    network, output, labels = outputs("independent")
    objective = ensembles.objective(network.head, "margin", "random").double()
    plain = Mined(make("margin", dim=6), kinfold.miners.create("random")).double()

    def drawn():
        objective.seed(7, 1)
        objective.plain(output, labels)
        return {key: float(value) for key, value in objective.logged.items()}

    first = drawn()
    objective.plain(output, labels)
    assert drawn() == first
    states = [part.miner.generator.initial_seed() for part in objective.parts]
    assert len({*states, objective.loss.miner.generator.initial_seed()}) == 4
    alone = kinfold.training.Objective(plain)
    alone.seed(7, 1)
    assert float(alone.plain(output.embeddings, labels).detach()) == first["loss-whole"]


def test_what_an_ensemble_cannot_do_is_refused():
    head = Relational(12, 6, 3)
    with pytest.raises(ValueError, match="3 parts needs as many losses, got 2"):
        EnsembleObjective(head, make("triplet"), [make("triplet"), make("triplet")])
    with pytest.raises(ValueError, match="must be 'mean' or 'sum'"):
        ensembles.objective(head, "triplet", reduction="none")


# -- a step -------------------------------------------------------------------------------------------------------


def gradients(kind, loss, miner, **options):
    network = ensembles.Network(kind).double()
    objective = ensembles.objective(network.head, loss, miner).double()
    done = Step(network, objective, seed=5, precision="float64", **options)(whole_batch(size=12), 3)
    named = [*network.named_parameters(), *objective.named_parameters()]
    return done, {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("kind", ensembles.HEADS)
@pytest.mark.parametrize(("loss", "miner"), PAIRED)
def test_small_parts_of_a_batch_have_the_gradient_of_the_whole(kind, loss, miner):
    done, expected = gradients(kind, loss, miner)
    for size in (1, 5):
        found_done, found = gradients(kind, loss, miner, micro_batch=size)
        assert found_done.loss == pytest.approx(done.loss, rel=1e-12)
        assert found_done.logged == pytest.approx(done.logged, rel=1e-12)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-12, rtol=1e-10, msg=name)


def test_mixed_items_have_both_labels_in_every_term():
    network = ensembles.Network("relational").double()
    objective = ensembles.objective(network.head, "proxy-anchor").double()
    batch = whole_batch(size=12)
    found = Step(network, objective, seed=5, precision="float64", mixing=Mixup())(batch, 0).loss
    draw = kinfold.training.mixup.draw(Mixup(), 12, kinfold.data.seeds.derived(5, 0, 2))
    output = network(draw.mixed(batch.images))
    own, other = objective.plain(output, batch.labels), objective.plain(output, batch.labels[draw.partner])
    assert found == pytest.approx(float((draw.share * own + (1 - draw.share) * other).detach()), rel=1e-12)


@pytest.mark.parametrize("kind", ensembles.HEADS)
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_finite_and_near(kind, precision):
    def step(precision):
        network = ensembles.Network(kind)
        objective = ensembles.objective(network.head, "multi-similarity")
        batch = whole_batch(dtype=torch.float32, size=24)
        loss = Step(network, objective, precision=precision)(Batch(*batch), 0).loss
        return loss, [p.grad for p in network.parameters() if p.grad is not None]

    loss, found = step(precision)
    assert loss == pytest.approx(step("float32")[0], rel=0.1)
    assert all(gradient.isfinite().all() for gradient in found)


# -- runs ---------------------------------------------------------------------------------------------------------


def run(folder, changes, **more):
    return train(tiny.recipe(**{**changes, **more}), folder, dataset=tiny.dataset())


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_inside_a_relational_head(name, tmp_path):
    done = run(tmp_path / "run", RELATIONAL, loss={"name": name}, miner=None, training={"steps": 4})
    assert done.scores["ended"] == "all steps done"
    steps = [event for event in done.events if event["event"] == "step"]
    assert len(steps) == 4
    for event in steps:
        terms = {key: event[key] for key in event if key.startswith(("loss", "occupancy", "reconstruction"))}
        names = {
            "loss",
            "loss-whole",
            "reconstruction",
            *(f"{n}-{k}" for n in ("loss-part", "occupancy") for k in (1, 2)),
        }
        assert terms.keys() == names
        assert all(math.isfinite(value) for value in terms.values())
        assert event["occupancy-1"] + event["occupancy-2"] == pytest.approx(1)
        parts_sum = event["loss-part-1"] + event["loss-part-2"] + 2 * event["loss-whole"] + event["reconstruction"]
        assert event["loss"] == pytest.approx(parts_sum, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("miner", kinfold.list("miners"))
def test_every_miner_trains_inside_a_relational_head(miner, tmp_path):
    loss = {"name": "contrastive"}
    done = run(tmp_path / "run", RELATIONAL, loss=loss, miner={"name": miner}, training={"steps": 3})
    assert done.scores["steps"] == 3


def test_a_relational_head_learns(tmp_path):
    """Both the loss of the embedding and the reconstruction fall."""
    loss = {"loss": {"name": "multi-similarity"}, "miner": None, "optimizer": {"lr": 0.01}}
    model = {"head": "relational", "head_options": {"branches": 2, "branch_input": "full"}}
    done = run(tmp_path / "run", {"model": model}, **loss, training={"steps": 150})
    steps = [event for event in done.events if event["event"] == "step"]
    for name in ("reconstruction", "loss-whole"):
        first, last = ([event[name] for event in steps[part]] for part in (slice(0, 20), slice(-20, None)))
        assert sum(last) < 0.8 * sum(first), name


def test_a_memory_is_refused_and_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"leave \[memory\] out, or take another head"):
        run(tmp_path / "run", RELATIONAL, memory={"size": 40})
    assert not (tmp_path / "run").exists()


def test_branches_that_do_not_fit_are_named_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="width of the features=10 cannot be shared by 3 branches"):
        run(tmp_path / "run", {"model": {"head": "relational", "head_options": {"branches": 3}}})
    assert not (tmp_path / "run").exists()


BROKEN = {
    "relational": RELATIONAL,
    "drawn": {**RELATIONAL, "miner": {"name": "drml-hard"}},
    "proxies": {**RELATIONAL, "loss": {"name": "proxy-anchor"}, "miner": None, "optimizer": {"loss_lr": 0.05}},
    "bfloat16 in small parts": {**RELATIONAL, "training": {"precision": "bfloat16", "micro_batch": 5}},
    "independent": INDEPENDENT,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_run_that_broke_off_ends_as_if_it_had_not(name, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    tables, data = tiny.recipe(**BROKEN[name]), tiny.dataset()
    train(tables, tmp_path / "expected", dataset=data)
    for step in (3, 17):
        folder = tmp_path / f"broken-{step}"
        with pytest.raises(BrokenOffError):
            train(tables, folder, dataset=data, callbacks=[raising(step)])
        train(folder=folder, resume=True, dataset=data)
        assert tiny.difference(folder, tmp_path / "expected") == ""
    torch.set_num_threads(before)


@pytest.mark.parametrize("changes", [RELATIONAL, INDEPENDENT])
def test_a_run_is_opened_again_and_exported(changes, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    data = tiny.dataset()
    done = train(tiny.recipe(**changes), tmp_path / "run", dataset=data)
    test = data.subset("test")
    again = Run.open(tmp_path / "run", data)
    assert torch.equal(again.embed(test), done.embed(test))
    rows = torch.from_numpy(test.items.array().copy())
    assert export(Deployed(again.model(), None, unit=True), tmp_path / "model.onnx", rows).difference < 1e-4


# -- ranks --------------------------------------------------------------------------------------------------------

RUNS = {
    "relational": {**RELATIONAL, "training": {"precision": "float64", "steps": 12}},
    "independent": {**INDEPENDENT, "training": {"precision": "float64", "steps": 12}},
}


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "runs.json").write_text(json.dumps(RUNS))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.training.ensemble_rank_run", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_two_ranks_have_the_gradient_and_the_terms_of_one_process(launched):
    found = json.loads((launched / "steps.json").read_text())
    assert len(found) == 2
    for on_rank in found:
        assert len(on_rank) == 2 * len(ensembles.HEADS) * 7
        for name, compared in on_rank.items():
            assert compared["size"] > 1e-4, name
            assert compared["logged"] > 4, name
            assert compared["difference"] < 1e-10, name


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_two_ranks_is_that_of_one_process(name, launched):
    alone = run(launched / f"{name} alone", RUNS[name])
    several = launched / f"{name} on 2"
    weights = [read_state(folder / "model.safetensors")["model"] for folder in (several, alone.folder)]
    for key, expected in weights[1].items():
        torch.testing.assert_close(weights[0][key], expected, atol=1e-10, rtol=1e-10, msg=key)
    for line, expected in zip(tiny.lines(several), tiny.lines(alone.folder), strict=True):
        assert line == pytest.approx(expected, abs=1e-10)


# -- recipes ------------------------------------------------------------------------------------------------------

DRML = [name for name in kinfold.list("recipes") if name.startswith("drml/")]


def test_every_recipe_of_drml_stands_beside_its_baseline_with_everything_else_equal():
    assert len(DRML) == 12
    for name in DRML:
        if name.endswith("-baseline"):
            continue
        ours, baseline = (read(recipes.find(found)) for found in (name, f"{name}-baseline"))
        assert ours["model"].pop("head") == "relational"
        assert baseline["model"].pop("head") == "linear"
        ours["model"].pop("head_options", None)
        assert ours == baseline, name


@pytest.mark.parametrize("name", DRML)
def test_every_recipe_of_drml_trains_on_features(name, tmp_path):
    changes = ["data.name=features", "model.dim=8", "training.steps=3", "schedule.warmup=0"]
    changes += ["sampler.batch_size=24", "evaluation.diagnose=never"]
    if not name.endswith("baseline"):
        changes.append("model.head_options.branches=2")
    done = train(read(recipes.find(name)), tmp_path / "run", changes=changes, dataset=tiny.dataset())
    assert done.scores["steps"] == 3
