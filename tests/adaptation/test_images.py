"""`kinfold.adapt` on images: features once, the ladder, fine-tuning, and a run that embeds images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import kinfold
from kinfold.adaptation.candidates import IMAGE_STEPS, LinearCandidate, list_tuned_candidates
from kinfold.adaptation.image_network import ImageNetwork
from kinfold.adaptation.plan import AdaptationPlan, TrialTimes, make_plan
from kinfold.calibration.stored import calibrate_run
from kinfold.embedding.kept import embed_items
from kinfold.gallery.adding import add_dataset
from tests.models.test_image_processors import tiny_vit

PLAN = AdaptationPlan(2, 1, 4, 1, False, max_rows=600, threads=1, tune_steps=2)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of 12 training and 4 test classes: a bar at the angle of the class, with noise."""
    generator, tmp_path = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    for label in range(16):
        split = "train" if label < 12 else "test"
        folder = tmp_path / "photos" / split / f"class-{label:02}"
        folder.mkdir(parents=True)
        for number in range(6):
            rows, columns = np.mgrid[:28, :28] - 14 + generator.normal(size=(2, 1, 1))
            angle = np.pi * label / 16
            bar = np.abs(rows * np.cos(angle) + columns * np.sin(angle)) < 3
            pixels = 120 * bar + 40 * generator.random((28, 28))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture(scope="module", autouse=True)
def plan():
    """Use a plan instead of a trial, so that tests do not depend on the speed of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        times = TrialTimes(1.0, 1.0, 1.0, 1.0, 1.0)
        patch.setattr("kinfold.adaptation.launch.run_trial", lambda *_: times)
        patch.setattr("kinfold.adaptation.launch.make_plan", lambda *_: PLAN)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory, photos, plan):
    return adapt(photos, tmp_path_factory.mktemp("runs") / "whole")


def adapt(photos, folder, **options):
    dataset = kinfold.data.load("folder", photos)
    source = {"name": "folder", "root": str(photos)}
    return kinfold.adapt(dataset, folder=folder, source=source, **{"backbone": "conv4", **options})


def test_a_folder_of_images_becomes_a_run_that_embeds_images(photos, whole):
    adaptation = whole
    assert [row.step for row in adaptation.steps] == ["as given", *IMAGE_STEPS]
    assert "last 2 stages" in adaptation.steps[-1].candidate
    run = kinfold.training.Run.open(adaptation.folder)
    assert run.finished
    path = next(photos.rglob("*.png"))
    assert run.embed(path).shape == (1, run.config.model.dim)
    test = run.embed(run.data("test"))
    scores = kinfold.metrics.evaluate(test, run.data("test").labels, metrics=["recall@1"])
    assert scores["recall@1"] == pytest.approx(adaptation.test["recall@1"]["adapted"], abs=1e-6)
    assert run.scores["test"]["recall@1"] == pytest.approx(scores["recall@1"], abs=1e-6)


def test_what_uses_the_run_embeds_no_image_again(photos, whole, tmp_path, monkeypatch):
    run = whole.run
    assert whole.winner != "fine-tuning"
    splits = run.splits()
    expected = {name: run.embed(split) for name, split in splits.items()}

    def embed(self, things, progress=None):
        raise AssertionError(f"{len(things)} images are embedded again")

    monkeypatch.setattr(kinfold.training.Run, "embed", embed)
    for name, split in splits.items():
        torch.testing.assert_close(embed_items(run, split), expected[name], rtol=1e-4, atol=1e-5)
    assert len(run.search("#0", k=3, gallery=photos).neighbors) == 3
    gallery = kinfold.Gallery.create(tmp_path / "gallery", run=run)
    assert add_dataset(gallery, kinfold.data.load("folder", photos / "train"), run) == 72
    assert gallery.calibrate(run, far=0.2).far == 0.2
    with pytest.raises(ValueError, match="4 classes are too few to calibrate on"):
        calibrate_run(run, far=0.2)


def test_features_are_computed_once_and_a_killed_process_goes_on(tmp_path, photos, whole, monkeypatch):
    from kinfold.adaptation import image_network
    from kinfold.embedding import embed_to_file as embed

    measure, calls = image_network.Tuner.measure, {"embed": 0, "measure": 0}

    def count_embeddings(*arguments, **options):
        calls["embed"] += 1
        return embed(*arguments, **options)

    def fail_once(self, *arguments):
        calls["measure"] += 1
        if calls["measure"] == 3:
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(image_network, "embed_to_file", count_embeddings)
    monkeypatch.setattr(image_network.Tuner, "measure", fail_once)
    with pytest.raises(KeyboardInterrupt):
        adapt(photos, tmp_path / "killed")
    killed = adapt(photos, tmp_path / "killed")
    assert calls["embed"] == 1
    assert [replace(row, seconds=0.0) for row in killed.steps[1:]] == [
        replace(row, seconds=0.0) for row in whole.steps[1:]
    ]
    weights = [each.run.model().state_dict() for each in (whole, killed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_fine_tuning_that_wins_trains_the_last_stages_alone(tmp_path, photos, monkeypatch):
    from kinfold.adaptation import image_network

    def pretend(self, split, candidate, steps, every, limit=None):
        return [[{"recall@1": 3.0, "map@r": 3.0 + split.number / 100}]] * (1 + steps // every)

    monkeypatch.setattr(image_network.Tuner, "measure", pretend)
    adaptation = adapt(photos, tmp_path / "run")
    assert adaptation.winner == "fine-tuning"
    start = kinfold.models.create("conv4", seed=0).backbone.state_dict()
    trained = adaptation.run.model().backbone.state_dict()
    changed = {name.partition(".")[0] for name in start if not torch.equal(start[name], trained[name])}
    assert changed == {"block3", "block4"}
    assert adaptation.run.config.model.frozen_stages == -2
    assert adaptation.embed(next(photos.rglob("*.png"))).shape[0] == 1


def test_adapters_are_a_candidate_for_a_backbone_with_attention_and_are_trained_alone_where_they_win(
    tmp_path, photos, monkeypatch
):
    pytest.importorskip("peft")
    pytest.importorskip("transformers")
    from kinfold.adaptation import image_network

    raced, measure = [], image_network.Tuner.measure

    def prefer_adapters(self, split, candidate, steps, every, limit=None):
        raced.append(candidate.name)
        measured = measure(self, split, candidate, steps, every, limit)  # really trained
        score = 3.0 + split.number / 100 if candidate.lora_rank else 1.0
        return [[{"recall@1": score, "map@r": score}] for _ in measured]

    monkeypatch.setattr(image_network.Tuner, "measure", prefer_adapters)
    folder = tiny_vit(tmp_path / "vit", size={"height": 32, "width": 32})
    adaptation = adapt(photos, tmp_path / "run", backbone=f"transformers/{folder}", weights="pretrained")
    assert any("last 2 stages" in name for name in raced)
    assert adaptation.winner == "fine-tuning"
    assert "adapters of rank 8" in adaptation.steps[-1].candidate
    start = kinfold.models.create(f"transformers/{folder}", weights="pretrained").backbone.state_dict()
    trained = adaptation.run.model().backbone.state_dict()
    adapters = [name for name in trained if "lora_" in name]
    assert adapters
    assert all(torch.equal(trained[name.replace(".base_layer", "")], start[name]) for name in start if name in trained)
    assert any(trained[name].any() for name in adapters if "lora_B" in name)  # these start at zero
    assert adaptation.run.config.lora.rank == 8
    assert adaptation.embed(next(photos.rglob("*.png"))).shape[0] == 1


def test_a_backbone_without_attention_is_tuned_at_two_rates():
    names = [candidate.name for candidate in list_tuned_candidates(LinearCandidate("pca"), "margin", 16, 4)]
    assert names == ["margin, last 2 stages, rate 0.0001", "margin, last 2 stages, rate 2e-05"]


def test_too_few_classes_return_the_backbone_as_it_is(tmp_path, photos):
    dataset = kinfold.data.load("folder", photos).subset("test")
    adaptation = kinfold.adapt(replace(dataset, split=np.full(len(dataset), "train")), backbone="conv4")
    assert "too few to hold some out" in adaptation.verdict
    assert adaptation.run.config.model.head == "identity"
    expected = kinfold.models.create("conv4").eval().backbone.state_dict()
    weights = adaptation.run.model().backbone.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_backbone_for_features_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a backbone is for images"):
        kinfold.adapt(np.zeros((4, 2)), [0, 0, 1, 1], backbone="conv4")
    with pytest.raises(ValueError, match="give backbone= too"):
        kinfold.adapt(kinfold.data.load("glyphs"), weights="file.pth")


def test_fine_tuning_is_planned_where_there_is_time():
    times = TrialTimes(split=2.0, step=0.01, overhead=0.5, tune_step=1.0, tune_overhead=20.0)
    assert make_plan(times, 1, 600, 1).tune_steps == 0
    hour = make_plan(times, 60, 600, 1)
    assert hour.tune_steps >= 100
    assert not hour.residual
    assert hour.seconds <= 3600


def test_embedding_is_bound_to_images_and_backbone(tmp_path, photos):
    dataset = kinfold.data.load("folder", photos)
    for network, images in (
        (ImageNetwork("conv4", None), dataset),
        (ImageNetwork("conv4", None), dataset.subset("test")),
    ):
        network.embed_once(images, tmp_path, lambda *_: None)
    assert len([*tmp_path.glob("features-*.npz")]) == 2
