"""Training, resuming and evaluating on the second device end in the weights and scores of the CPU."""

import json

import pytest
import torch

import kinfold
from kinfold.data import Batch, Rows
from kinfold.devices import keep_global_generators, seed_global_generators
from kinfold.training import Objective, Step, train
from kinfold.training.environment import describe_environment
from tests.on_second_device import DEVICE
from tests.training.tiny import VARIANTS, dataset, difference, lines, recipe


class SimulatedCrashError(Exception):
    pass


def crash_at(step):
    def callback(event):
        if event.kind == "step" and event.step == step:
            raise SimulatedCrashError

    return callback


def run(variant, folder, device, *callbacks):
    tables = recipe(variant)
    tables["training"]["device"] = device
    return train(tables, folder, dataset=dataset(variant), callbacks=callbacks)


def test_sampled_classes_are_refused_because_the_device_has_no_sparse_tensors(tmp_path):
    with pytest.raises(NotImplementedError, match="needs sparse gradients"):
        run("sampled classes", tmp_path / "second", "second")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("dropout", "sampled classes")])
def test_a_run_ends_like_one_on_the_cpu(variant, tmp_path):
    run(variant, tmp_path / "cpu", "cpu")
    run(variant, tmp_path / "second", "second")
    for one, other in zip(lines(tmp_path / "second"), lines(tmp_path / "cpu"), strict=True):
        assert one.keys() == other.keys()
        # rows are normalized with another rounding there, which grows with the steps and may swap two neighbors
        exact = {"rel": 1e-3, "abs": 1e-4} if other.get("step", 0) <= 4 else {"rel": 0.02, "abs": 0.02}
        for key, value in other.items():
            assert one[key] == (pytest.approx(value, **exact) if isinstance(value, float) else value)
    environment = json.loads((tmp_path / "second" / "environment.json").read_text())
    assert environment["device"] == "second (the CPU as a second device)"


@pytest.mark.parametrize("variant", ["memory with draws", "proxy-anchor", "gc", "dropout", "float16", "micro-batch"])
def test_an_interrupted_run_ends_bit_for_bit_like_an_uninterrupted_one(variant, tmp_path):
    run(variant, tmp_path / "expected", "second")
    with pytest.raises(SimulatedCrashError):
        run(variant, tmp_path / "resumed", "second", crash_at(9))
    train(folder=tmp_path / "resumed", resume=True, dataset=dataset(variant))
    assert difference(tmp_path / "resumed", tmp_path / "expected") == ""


def test_dropout_is_seeded_on_the_device_and_the_global_generators_are_restored(tmp_path):
    def one_step():
        torch.get_device_module(DEVICE).manual_seed(99)  # no part of the seed of a step
        head = {"dropout": 0.5, "hidden": 8}
        model = kinfold.models.create("features", 5, "mlp", backbone_options={"width": 9}, head_options=head)
        step = Step(model.to(DEVICE), Objective(kinfold.losses.create("contrastive")), seed=1, device=DEVICE)
        rows = torch.randn(12, 9, generator=torch.Generator().manual_seed(0), device="cpu")
        labels = torch.arange(12, device="cpu") % 4
        return step(Batch(rows, labels, torch.arange(12, device="cpu")), 3).loss

    assert one_step() == one_step()
    with keep_global_generators(DEVICE):
        seed_global_generators(7, DEVICE)
        expected = torch.rand(4, device=DEVICE)
    with keep_global_generators(DEVICE):
        seed_global_generators(7, DEVICE)
        assert torch.equal(torch.rand(4, device=DEVICE), expected)
    assert not torch.equal(torch.rand(4, device=DEVICE), expected)
    before = torch.get_device_module(DEVICE).get_rng_state()
    run("dropout", tmp_path / "run", "second")
    assert torch.equal(torch.get_device_module(DEVICE).get_rng_state(), before)


def test_the_learner_trains_there_and_transforms_on_the_cpu():
    data = dataset()
    assert isinstance(data.items, Rows)
    rows, labels = data.items.array(), data.labels.numpy()
    embedded = [
        kinfold.MetricLearner(dim=4, steps=10, random_state=0, device=device).fit(rows, labels).transform(rows)
        for device in ("cpu", "second")
    ]
    assert embedded[1] == pytest.approx(embedded[0], abs=1e-4)


def test_hardware_without_a_name_is_described_by_its_device(monkeypatch):
    monkeypatch.delattr(type(torch.get_device_module(DEVICE)), "get_device_name")
    assert describe_environment(DEVICE)["device"] == "second:0"
