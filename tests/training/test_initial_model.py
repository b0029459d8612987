"""A run starts from the weights of another run."""

import json
import shutil

import pytest
import torch

from kinfold.training import Run, Stopped, train
from tests.training.test_resume import signal_at
from tests.training.tiny import dataset, recipe

NO_STEPS = {"training": {"steps": 0}, "evaluation": {"selection": "last"}}


@pytest.fixture(scope="module", params=["margin", "images"])
def first(request, tmp_path_factory):
    """(variant, a finished run)"""
    changes = {"training": {"steps": 4}, "evaluation": {"selection": "last"}}
    folder = tmp_path_factory.mktemp("first") / "run"
    return request.param, train(recipe(request.param, **changes), folder, dataset=dataset(request.param))


def train_from(variant, folder, source, **changes):
    """A run without a step, so that its weights are those it started from."""
    tables = recipe(variant, **{**NO_STEPS, **changes})
    tables["model"]["weights"] = str(source.folder)
    return train(tables, folder, dataset=dataset(variant))


def same_weights(a, b, part=""):
    left, right = a.model().state_dict(), b.model().state_dict()
    return all(torch.equal(left[key], right[key]) for key in left if key.startswith(part))


def test_backbone_and_head_start_from_the_run(first, tmp_path):
    variant, source = first
    run = train_from(variant, tmp_path / "run", source)
    assert same_weights(run, source)
    assert run.config.model.weights == str(source.folder)
    start = json.loads(run.run_folder.environment.read_text())["start"]
    assert start["run"] == str(source.folder)
    assert start["step"] == 4
    assert start["parts"] == ["backbone", "head"]


def test_settings_that_the_recipe_leaves_open_come_from_the_run(first, tmp_path):
    variant, source = first
    tables = recipe(variant, **NO_STEPS)
    tables["model"] = {"weights": str(source.folder)}
    run = train(tables, tmp_path / "run", dataset=dataset(variant))
    assert run.config.model.dim == 6
    assert same_weights(run, source)


@pytest.mark.parametrize("first", ["margin"], indirect=True)
def test_a_run_without_any_fitting_weights_is_refused(tmp_path, first):
    """Features have no backbone of their own."""
    variant, source = first
    with pytest.raises(ValueError, match=r"nothing of the run .* fits.*model.dim = 6"):
        train_from(variant, tmp_path / "run", source, model={"dim": 5})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("first", ["images"], indirect=True)
def test_a_head_of_another_shape_starts_fresh_with_a_warning(tmp_path, first):
    variant, source = first
    with pytest.warns(UserWarning, match="only the backbone starts from that run"):
        run = train_from(variant, tmp_path / "run", source, model={"dim": 5})
    assert same_weights(run, source, "backbone.")
    assert json.loads(run.run_folder.environment.read_text())["start"]["parts"] == ["backbone"]


@pytest.mark.parametrize("first", ["images"], indirect=True)
def test_another_backbone_is_refused(tmp_path, first):
    variant, source = first
    with pytest.raises(ValueError, match=r"the backbone of the run .* \(model.backbone = 'conv4'\) does not fit"):
        train_from(variant, tmp_path / "run", source, model={"backbone_options": {"width": 16}})
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    tables = recipe(model={"weights": str(tmp_path / "empty")})
    with pytest.raises(ValueError, match="is not the folder of a run"):
        train(tables, tmp_path / "run", dataset=dataset())


def test_a_run_with_a_checkpoint_resumes_without_the_run_it_started_from(tmp_path, first):
    variant, source = first
    moved = tmp_path / "source"
    shutil.copytree(source.folder, moved)
    tables = recipe(variant, training={"steps": 8})
    tables["model"]["weights"] = str(moved)
    whole = train(tables, tmp_path / "whole", dataset=dataset(variant))
    with pytest.raises(Stopped):
        train(tables, tmp_path / "run", dataset=dataset(variant), callbacks=[signal_at("step", 5, 15)])
    shutil.rmtree(moved)
    run = train(folder=tmp_path / "run", resume=True, dataset=dataset(variant))
    assert same_weights(run, whole)


def test_a_run_without_a_checkpoint_does_not_start_from_other_weights(tmp_path, first):
    variant, source = first
    moved = tmp_path / "source"
    shutil.copytree(source.folder, moved)
    run = train_from(variant, tmp_path / "run", Run.open(moved))
    run.run_folder.scores.unlink()
    run.run_folder.model.unlink()
    shutil.rmtree(run.run_folder.checkpoints)
    run.run_folder.checkpoints.mkdir()
    about = json.loads(run.run_folder.environment.read_text())
    about["start"]["sha256"] = "0" * 64
    run.run_folder.environment.write_text(json.dumps(about))
    with pytest.raises(ValueError, match="began from other weights than those that"):
        train(folder=tmp_path / "run", resume=True, dataset=dataset(variant))


def test_the_head_of_an_image_network_starts_from_principal_components(tmp_path):
    run = train(
        recipe("images", **NO_STEPS, model={"init": "half-whiten"}), tmp_path / "run", dataset=dataset("images")
    )
    embeddings = run.embed(run.data("train")).double()
    covariance = embeddings.T @ embeddings / len(embeddings)
    off_diagonal = covariance - covariance.diag().diag()
    assert off_diagonal.abs().max() < 1e-4 * covariance.diag().max()
    assert float(covariance.diag().sum()) == pytest.approx(1.0, rel=1e-4)  # the mean squared length


def test_too_few_images_leave_the_head_random_with_a_warning(tmp_path):
    tables = recipe("images", **NO_STEPS, model={"init": "half-whiten", "dim": 200})
    with pytest.warns(UserWarning, match=r"needs more than 200 training images for model.dim = 200, and there are 135"):
        few = train(tables, tmp_path / "few", dataset=dataset("images"))
    random = train(recipe("images", **NO_STEPS, model={"dim": 200}), tmp_path / "random", dataset=dataset("images"))
    assert same_weights(few, random)
