"""A repeat measures its folds apart and together, on test classes that nobody saw before."""

import json
import shutil

import numpy as np
import pytest
import torch

from kinfold import metrics
from kinfold.data import Rows
from kinfold.distributed import World
from kinfold.experiments.repeat import Repeat, open_run
from kinfold.models.concatenated import ConcatenatedEmbedder
from kinfold.training import Run, configure, splits, train
from kinfold.training.builder import RunBuilder
from kinfold.training.config.parsing import merge_tables
from kinfold.training.splits import HeldOutTest
from tests.experiments.tiny import BASE, WIDTH, dataset


def recipe(fold=0, **changes):
    expected = {"data": {"name": "features", "protocol": "reality-check", "fold": fold, "test": "withheld"}}
    return merge_tables(BASE, expected, changes)


def trained(folder, folds=4, **changes):
    for fold in range(folds):
        train(recipe(fold, **changes), folder / f"fold-{fold}", dataset=dataset())
    return Repeat.open(folder, dataset())


@pytest.fixture(scope="module")
def repeat(tmp_path_factory):
    """Four folds, tested."""
    result = trained(tmp_path_factory.mktemp("repeat"))
    result.test()
    return result


def second_half():
    """The test classes, taken from the data by hand: the second half."""
    data = dataset()
    mask = data.labels >= 8
    assert isinstance(data.items, Rows)
    return torch.from_numpy(data.items.array())[mask], data.labels[mask]


def test_separated_is_the_mean_over_the_folds(repeat):
    rows, labels = second_half()
    each = []
    for run in repeat.runs:
        with torch.no_grad():
            each.append(metrics.evaluate(run.model()(rows), labels, metrics=["recall@1", "map@r"]))
    for name in ("recall@1", "map@r"):
        values = [result[name] for result in each]
        assert len({*values}) > 1  # the folds differ
        assert repeat.scores["separated"][name] == pytest.approx(np.mean(values), abs=1e-12)
        held = [run.scores["validation"][name] for run in repeat.runs]
        assert repeat.scores["validation"][name] == pytest.approx(np.mean(held), abs=1e-12)


def test_concatenated_compares_by_the_cosine_averaged_over_the_folds(repeat):
    rows, labels = second_half()
    with torch.no_grad():
        each = [torch.nn.functional.normalize(run.model()(rows).double(), dim=1) for run in repeat.runs]
    similarity = torch.stack([result @ result.T for result in each]).mean(0)
    together = repeat.embed(repeat.data("test")).double()
    assert torch.allclose(together @ together.T, similarity, atol=1e-6)
    similarity.fill_diagonal_(-2)
    nearest = similarity.argmax(1)
    assert repeat.scores["concatenated"]["recall@1"] == pytest.approx(
        (labels[nearest] == labels).double().mean().item()
    )
    positives = labels[:, None] == labels
    average = []
    for row, (order, same) in enumerate(zip(similarity.argsort(1, descending=True), positives, strict=True)):
        count = int(same.sum()) - 1
        hits = same[order[:count]].double()
        average.append(((hits.cumsum(0) / torch.arange(1, count + 1)) * hits).sum().item() / count)
        assert row not in order[:count]
    assert repeat.scores["concatenated"]["map@r"] == pytest.approx(np.mean(average), abs=1e-9)


def test_the_model_is_all_folds_side_by_side(repeat):
    model = repeat.model()
    assert isinstance(model, ConcatenatedEmbedder)
    assert not model.training
    with torch.no_grad():
        rows = model(torch.from_numpy(repeat.data("test").items.array()))
    assert rows.shape == (48, 16)
    assert torch.allclose(rows, repeat.embed(repeat.data("test")), atol=1e-6)
    assert torch.allclose(rows.norm(dim=1), torch.ones(48), atol=1e-6)
    assert repeat.distance == "cosine"


def test_the_parts_of_a_repeat_are_all_learning_classes_and_the_test_classes(repeat):
    assert {name: len(part.classes) for name, part in repeat.splits().items()} == {"train": 8, "test": 8}
    with pytest.raises(ValueError, match="has no split 'validation'; it has train, test"):
        repeat.data("validation")


def test_a_folder_opens_as_what_it_is(repeat, tmp_path):
    assert isinstance(open_run(repeat.folder), Repeat)
    assert isinstance(open_run(repeat.folder / "fold-2"), Run)
    with pytest.raises(ValueError, match="is not the folder of a run"):
        open_run(tmp_path)
    with pytest.raises(ValueError, match="is not the folder of a repeat: it has no fold-0"):
        Repeat.open(tmp_path)


def test_the_test_classes_are_held_out_while_a_fold_is_unfinished(repeat, tmp_path):
    folder = tmp_path / "repeat"
    shutil.copytree(repeat.folder, folder)
    (folder / "scores.json").unlink()
    for fold in (1, 3):
        (folder / f"fold-{fold}" / "scores.json").unlink()
    waiting = Repeat.open(folder, dataset())
    assert not waiting.finished
    with pytest.raises(ValueError, match="are held out until every fold is trained; not finished: fold-1, fold-3"):
        waiting.test()
    with pytest.raises(ValueError, match="was not tested yet"):
        _ = waiting.scores
    assert not (folder / "scores.json").exists()
    for fold in (1, 3):
        train(folder=folder / f"fold-{fold}", resume=True, dataset=dataset())
    assert Repeat.open(folder, dataset()).test() == repeat.scores


def test_a_withheld_run_has_no_test_scores_and_no_test_items(repeat):
    for run in repeat.runs:
        assert "test" not in run.scores
        assert set(run.splits()) == {"train", "validation"}


def test_selection_on_the_test_classes_is_marked_as_inflated(tmp_path):
    oracle = {"evaluation": {"selection": "test-oracle"}, "data": {"test": "open"}}
    result = trained(tmp_path, **oracle)
    scores = result.test()
    assert scores["inflated"] is True
    assert json.loads((tmp_path / "scores.json").read_text())["inflated"] is True
    for name in ("recall@1", "map@r"):
        best = [
            max(event[name] for event in run.events if event.get("split") == "test" and name in event)
            for run in result.runs
        ]
        assert scores["separated"][name] == pytest.approx(np.mean(best))
    assert "concatenated" not in scores


def test_one_fold_cannot_be_concatenated(tmp_path):
    result = trained(tmp_path, folds=1, data={"protocol": "classic"})
    assert result.test()["folds"] == 1
    assert "concatenated" not in result.scores
    rows = result.embed(result.data("test"))
    assert rows.shape == (48, 4)
    assert torch.equal(rows, result.runs[0].embed(result.data("test")))


def test_weights_that_are_not_finite_are_reported(tmp_path):
    result = trained(tmp_path, folds=1, data={"protocol": "classic"})
    key = result.runs[0].run_folder
    weights = key.read_weights(key.model)
    weights["model"]["head.bias"][0] = torch.nan
    key.finish(weights["step"], weights["model"], key.read_scores())
    with pytest.raises(ValueError, match="has no usable weights: all steps done"):
        result.test()
    assert not (tmp_path / "scores.json").exists()


def test_no_training_and_no_head_measure_the_features_themselves(tmp_path):
    raw = {"model": {"head": "identity", "dim": WIDTH}, "training": {"steps": 0}}
    result = trained(tmp_path, **raw)
    rows, labels = second_half()
    expected = metrics.evaluate(rows, labels, metrics=["recall@1", "map@r"])
    scores = result.test()
    assert scores["separated"] == pytest.approx(expected, abs=1e-12)
    assert scores["concatenated"] == pytest.approx(expected, abs=1e-12)
    assert torch.equal(result.runs[0].embed(result.data("test")), rows)


class Halfway:
    """A trainer that is not through."""

    over, step_number, steps = False, 2, 4


def test_held_out_classes_are_not_returned_before_training_is_over():
    held_out = HeldOutTest(dataset())
    with pytest.raises(
        RuntimeError, match="held-out test classes stay closed until training is over; it is at step 2 of 4"
    ):
        held_out.open(Halfway())
    config = configure(recipe(data={"test": "open"}))
    work = RunBuilder(config, dataset(), World())
    trainer = work.build_trainer(None, [])
    opening = []

    def look(event):
        if not trainer.over:
            with pytest.raises(RuntimeError, match="held-out test classes stay closed"):
                work.test.open(trainer)
            opening.append(event.step)

    trainer.callbacks = [look]
    trainer.fit()
    assert {0, 1, 2, 3} <= {*opening}
    assert len(work.test.open(trainer)) == 48
    assert len(splits.assign_splits(dataset(), config.data)) == len(dataset())
