"""Both memory formats train the same network; "auto" takes the faster one once and keeps it."""

import json
import tomllib

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold import models
from kinfold.data import Rows, create_dataset
from kinfold.models import Backbone
from kinfold.training import memory_format, train
from kinfold.training.loop.optimizers import load_optimizer_state
from kinfold.training.memory_format import choose_memory_format, needs_trial, time_memory_formats
from tests.training.test_resume import SimulatedCrashError, crash_at
from tests.training.tiny import difference, recipe

CHANNELS_LAST = {"memory_format": "channels-last"}


def dataset():
    """20 classes of 9 small gray images, of which 5 classes are for testing."""
    source = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 9)
    items = source.integers(0, 255, size=(len(labels), 12, 12)).astype(np.uint8)
    return create_dataset("tiny", Rows(items), labels, np.where(labels < 15, "train", "test"))


def run(folder, *callbacks, **model):
    return train(recipe("images", model=model), folder, dataset=dataset(), callbacks=callbacks)


def read_format(folder):
    return tomllib.loads((folder / "configuration.toml").read_text())["model"]["memory_format"]


@pytest.fixture
def trials(monkeypatch):
    """Every network gets a trial, in which channels-last takes half the time; returns the list of trials."""
    trials = []

    def time_formats(model, images, precision):
        trials.append((images.shape, precision))
        return {"contiguous": 2.0, "channels-last": 1.0}

    monkeypatch.setattr("kinfold.training.builder.needs_trial", lambda model: True)
    monkeypatch.setattr("kinfold.training.builder.time_memory_formats", time_formats)
    return trials


def test_embeddings_and_gradients_do_not_depend_on_the_memory_format():
    images = torch.randn(4, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    results = []
    for name in ("contiguous", "channels-last"):
        model = models.create("conv4", 8).double().set_memory_format(name)
        model(images).square().sum().backward()
        results.append((model(images), [weight.grad for weight in model.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


def test_images_and_convolution_weights_are_in_the_order_of_the_format():
    model = models.create("conv4", 8, backbone_options={"channels": 3}).set_memory_format("channels-last")
    images = []
    model.backbone.register_forward_pre_hook(lambda module, inputs: images.append(inputs[0]))
    model(torch.randn(2, 3, 16, 16))
    kernels = [weight for weight in model.backbone.parameters() if weight.ndim == 4]
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in (*images, *kernels))
    model.set_memory_format("contiguous")
    assert all(kernel.is_contiguous() for kernel in kernels)


def test_restored_optimizer_state_is_in_the_order_of_the_weights():
    model = models.create("conv4", 8).set_memory_format("channels-last")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 1, 16, 16)).sum().backward()
    optimizer.step()
    saved = {name: dict(values) for name, values in optimizer.state_dict()["state"].items()}
    groups = optimizer.state_dict()["param_groups"]
    contiguous = {name: {key: value.contiguous() for key, value in values.items()} for name, values in saved.items()}
    restored = torch.optim.Adam(model.parameters())
    load_optimizer_state(restored, {"state": contiguous, "param_groups": groups})
    for parameter, values in restored.state.items():
        assert values["exp_avg"].stride() == parameter.stride()
        assert torch.equal(values["exp_avg"], optimizer.state[parameter]["exp_avg"])


def test_an_unknown_memory_format_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown memory format 'channel-last' \(did you mean 'channels-last'"):
        models.create("conv4", 8).set_memory_format("channel-last")


def test_the_faster_format_is_recorded_and_used_by_the_run(trials, tmp_path):
    trained = run(tmp_path / "run")
    assert trials == [(torch.Size([8, 1, 28, 28]), "float32")]
    assert read_format(tmp_path / "run") == "channels-last"
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["memory_format_trial"] == {"contiguous": 2.0, "channels-last": 1.0}
    assert trained.model().memory_format == "channels-last"


def test_a_resumed_run_keeps_its_format_and_ends_in_the_same_bits(trials, monkeypatch, tmp_path):
    expected = run(tmp_path / "expected")
    with pytest.raises(SimulatedCrashError):
        run(tmp_path / "broken", crash_at(13))
    monkeypatch.setattr("kinfold.training.builder.time_memory_formats", lambda *args: pytest.fail("a second trial"))
    train(folder=tmp_path / "broken", resume=True, dataset=dataset())
    assert read_format(tmp_path / "broken") == "channels-last"
    assert difference(tmp_path / "broken", expected.folder) == ""


def test_a_run_of_an_earlier_version_is_resumed_without_a_trial(trials, tmp_path):
    with pytest.raises(SimulatedCrashError):
        run(tmp_path / "run", crash_at(13), memory_format="contiguous")
    configuration = tmp_path / "run" / "configuration.toml"
    configuration.write_text(configuration.read_text().replace('memory_format = "contiguous"\n', ""))
    resumed = train(folder=tmp_path / "run", resume=True, dataset=dataset())
    assert resumed.finished
    assert trials == []


def test_an_explicit_format_needs_no_trial(trials, tmp_path):
    run(tmp_path / "run", **CHANNELS_LAST)
    assert trials == []
    assert read_format(tmp_path / "run") == "channels-last"
    assert "memory_format_trial" not in json.loads((tmp_path / "run" / "environment.json").read_text())


def test_small_networks_features_and_untrained_runs_have_no_trial(monkeypatch, tmp_path):
    monkeypatch.setattr("kinfold.training.builder.time_memory_formats", lambda *args: pytest.fail("a trial"))
    run(tmp_path / "conv4")
    assert read_format(tmp_path / "conv4") == "contiguous"
    assert not needs_trial(models.create("features", 8, backbone_options={"width": 4096}))
    assert needs_trial(models.create("efficientnet-lite0", 8))
    monkeypatch.setattr("kinfold.training.builder.needs_trial", lambda model: True)
    train(recipe("images", training={"steps": 0, "head_only": 0}), tmp_path / "start", dataset=dataset())


def test_selected_weights_embed_as_in_training(tmp_path):
    contiguous, channels_last = run(tmp_path / "a"), run(tmp_path / "b", **CHANNELS_LAST)
    for trained in (contiguous, channels_last):
        embeddings = trained.embed(trained.data("test"))
        scores = kinfold.metrics.evaluate(embeddings, trained.data("test").labels, metrics=["map@r"])
        assert scores["map@r"] == trained.scores["test"]["map@r"]


class ViewBackbone(Backbone):
    """Takes contiguous images only."""

    width = 4

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.drop = nn.Dropout()

    def forward(self, images):
        maps = self.drop(self.conv(images))
        return maps.view(maps.shape[0], -1)[:, :4]


def test_a_trial_times_both_formats_and_leaves_no_trace():
    model = models.create("conv4", 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    milliseconds = time_memory_formats(model, torch.randn(4, 1, 16, 16, generator=torch.Generator()), "bfloat16")
    assert set(milliseconds) == {"contiguous", "channels-last"}
    assert all(value > 0 for value in milliseconds.values())
    assert model.memory_format == "contiguous"
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_backbone_that_cannot_take_channels_last_stays_contiguous():
    model = models.Embedder(ViewBackbone(), nn.Identity(), 4)
    state = torch.get_rng_state()
    milliseconds = time_memory_formats(model, torch.randn(2, 3, 8, 8, generator=torch.Generator()))
    assert milliseconds["channels-last"] is None
    assert milliseconds["contiguous"] > 0
    assert choose_memory_format(milliseconds) == "contiguous"
    assert torch.equal(torch.get_rng_state(), state)


def test_a_backbone_that_fails_in_both_formats_raises_its_error():
    model = models.Embedder(ViewBackbone(), nn.Identity(), 4)
    with pytest.raises(RuntimeError, match="channels"):
        time_memory_formats(model, torch.randn(2, 5, 8, 8))


def test_the_first_process_decides_for_all(monkeypatch, tmp_path):
    """The second of two processes times nothing and takes the choice of the first."""
    from kinfold.distributed import World
    from kinfold.training import configure
    from kinfold.training.builder import RunBuilder

    monkeypatch.setattr("kinfold.training.builder.needs_trial", lambda model: True)
    monkeypatch.setattr("kinfold.training.builder.time_memory_formats", lambda *args: pytest.fail("a trial"))
    monkeypatch.setattr(World, "gather_integers", lambda self, numbers: [[1], numbers])
    builder = RunBuilder(configure(recipe("images")), dataset(), World(rank=1, size=2))
    assert builder.config.model.memory_format == builder.model.memory_format == "channels-last"


def test_the_clock_waits_for_other_devices(monkeypatch):
    waits = []
    module = type("module", (), {"synchronize": staticmethod(lambda: waits.append(True))})
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    memory_format._read_clock(torch.device("cuda"))
    memory_format._read_clock(torch.device("cpu"))
    assert waits == [True]
