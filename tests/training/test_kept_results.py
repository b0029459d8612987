"""Runs of one process share decoded images and features of untrained backbones, without a change to the bit."""

import numpy as np
import pytest
import torch

import kinfold
from kinfold import recipes
from kinfold.data import load
from kinfold.training import Run, kept_results
from kinfold.training.kept_results import KeptResults, keep_results

CHANGES = ["model.init=half-whiten", "model.dim=8", "training.steps=2", "evaluation.every=1", "sampler.batch_size=20"]


@pytest.fixture(autouse=True)
def forget():
    yield
    keep_results(0)


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in range(12):
        color = draw.integers(0, 200, 3)
        for number in range(5):
            folder = tmp_path / "photos" / f"class-{label:02}"
            folder.mkdir(parents=True, exist_ok=True)
            noise = draw.integers(0, 56, (40, 48, 3))
            Image.fromarray((color + noise).astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "photos"


def train(photos, folder, *changes):
    settings = [*CHANGES, "data.pipeline=small-color", "model.backbone_options.channels=3"]
    settings += [f"data.root={photos}", "data.name=folder", "data.protocol=classic"]
    settings += ["data.cache=true", "data.short_side=32"]
    return kinfold.train(recipes.find_recipe("glyphs"), folder, changes=[*settings, *changes])


def count_calls(monkeypatch, name):
    calls = []
    original = getattr(kept_results, name)

    def counted(*arguments, **options):
        calls.append(name)
        return original(*arguments, **options)

    monkeypatch.setattr(kept_results, name, counted)
    return calls


def read_weights(run: Run):
    return run.model().state_dict()


def test_runs_that_share_results_are_the_same_to_the_bit(photos, tmp_path, monkeypatch):
    alone = [train(photos, tmp_path / f"alone-{seed}", f"seed={seed}") for seed in (0, 1)]
    starts = [run.embed_start(run.data("test")) for run in alone]
    keep_results()
    decoded, embedded = count_calls(monkeypatch, "cache_images"), count_calls(monkeypatch, "compute_embeddings")
    shared = [train(photos, tmp_path / f"shared-{seed}", f"seed={seed}") for seed in (0, 1)]
    assert len(decoded) == 1
    for one, other in zip(alone, shared, strict=True):
        assert one.scores == other.scores
        weights = read_weights(other)
        assert all(torch.equal(value, weights[name]) for name, value in read_weights(one).items())
    embedded.clear()
    for start, run in zip(starts, shared, strict=True):
        assert torch.equal(run.embed_start(run.data("test")), start)
    again = len(embedded)
    for start, run in zip(starts, shared, strict=True):
        assert torch.equal(run.embed_start(run.data("test")), start)
    assert len(embedded) == again


def test_other_images_or_settings_are_computed_again(photos, tmp_path, monkeypatch):
    keep_results()
    decoded = count_calls(monkeypatch, "cache_images")
    embedded = count_calls(monkeypatch, "compute_embeddings")
    train(photos, tmp_path / "first")
    train(photos, tmp_path / "second")
    assert (len(decoded), len(embedded)) == (1, 1)
    train(photos, tmp_path / "other-size", "data.short_side=20")
    assert (len(decoded), len(embedded)) == (2, 2)
    train(photos, tmp_path / "other-batch", "evaluation.batch_size=7")
    assert (len(decoded), len(embedded)) == (2, 3)
    file = photos / "class-00" / "0.png"
    file.write_bytes((photos / "class-11" / "4.png").read_bytes())
    train(photos, tmp_path / "other-image")
    assert (len(decoded), len(embedded)) == (3, 4)


def test_nothing_is_kept_unless_asked_for(photos, tmp_path, monkeypatch):
    decoded = count_calls(monkeypatch, "cache_images")
    for number in range(2):
        train(photos, tmp_path / str(number))
    assert len(decoded) == 2
    assert len(load("folder", str(photos))) == 60


def test_the_least_recently_used_results_are_dropped():
    results, computed = KeptResults(100), []

    def get(key, size):
        return results.get(key, lambda: computed.append(key) or [key], lambda _: size)

    for key, size in (("a", 40), ("b", 40), ("a", 40), ("c", 40), ("b", 40), ("large", 101), ("large", 101), ("c", 40)):
        get(key, size)
    assert computed == ["a", "b", "c", "b", "large", "large"]
