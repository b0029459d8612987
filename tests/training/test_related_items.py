"""Levels and tags from a column of a table: the relation of a batch, evaluation, and errors that say what to change."""

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold.data import Batch, load
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.label_table import LabelTable
from kinfold.metrics import evaluate_graded
from kinfold.pairs import CrossBatchMemory, tree_relation
from kinfold.training import Objective, Run, Step

LEVELS = np.array([f"group {number // 12}/class {number // 4}" for number in range(72)])
TAGS = np.array([f"color {number % 3}; shape {number % 4}" for number in range(72)])


def write_features(folder, kind="levels", **arrays):
    rows = np.random.default_rng(0).normal(size=(18, 8))[np.arange(72) // 4]
    rows = rows + np.random.default_rng(1).normal(size=(72, 8))
    split = np.where(np.arange(72) < 48, "train", "test")
    path = folder / "birds.npz"
    texts = LEVELS if kind == "levels" else TAGS
    np.savez(path, embeddings=rows.astype("float32"), taxonomy=texts, split=split, **arrays)
    return path


def write_recipe(path, kind="levels", loss="happier", **tables):
    return {
        "data": {"name": "features", "root": str(path), "options": {"columns": {kind: "taxonomy"}}},
        "loss": {"name": loss},
        "sampler": {"name": "random", "batch_size": 24},
        "training": {"steps": 6},
        "evaluation": {"every": 3, "metrics": ["ndcg@5", "hap", "recall@1"], "metric": "ndcg@5", "selection": "last"},
        **tables,
    }


def test_a_column_of_levels_is_read_and_is_the_class_where_there_is_none(tmp_path):
    path = write_features(tmp_path)
    data = load("features", path, columns={"levels": "taxonomy"})
    assert len(data.classes) == 18
    assert data.label_table.kind == "levels"
    test = data.subset("test")
    expected = tree_relation(kinfold.pairs.read_levels(LEVELS[48:].tolist()))
    torch.testing.assert_close(test.label_table.relate(torch.arange(24)), expected)
    plain = load("features", path, columns={"label": "taxonomy"})
    assert plain.label_table is None
    assert compute_fingerprint(plain) != compute_fingerprint(data)


def test_a_column_of_labels_stays_the_class(tmp_path):
    path = write_features(tmp_path, "tags", labels=np.arange(72) % 9)
    data = load("features", path, columns={"tags": "taxonomy"})
    assert len(data.classes) == 9
    related = data.label_table.relate(torch.tensor([0]), torch.tensor([3, 4, 5]))
    assert related.tolist() == [[True, True, False]]


def test_a_table_of_images_has_levels_or_tags_too(tmp_path):
    (tmp_path / "list.csv").write_text("path,kind,colors\na.png,bird/owl,red;white\nb.png,bird/crow,\n")
    data = load("table", tmp_path / "list.csv", columns={"levels": "kind"})
    assert data.label_table.relate(torch.arange(2)).tolist() == [[1.0, 0.5], [0.5, 1.0]]
    assert data.classes == ("bird/crow", "bird/owl")
    data = load("table", tmp_path / "list.csv", columns={"tags": "colors", "label": "kind"})
    assert data.label_table.relate(torch.arange(2)).tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"levels": "taxonomie"}, "did you mean 'taxonomy'"),
        ({"levels": "taxonomy", "tags": "taxonomy"}, "both levels and tags"),
        ({"levels": "ragged"}, r"column 'ragged': item 1 has the path 'a'"),
    ],
)
def test_a_column_that_cannot_be_read(tmp_path, columns, message):
    path = write_features(tmp_path, ragged=np.array(["a/b", "a"] * 36))
    with pytest.raises(ValueError, match=message):
        load("features", path, columns=columns)


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("levels", "happier"),
        ("levels", "log-ratio"),
        ("levels", "supcon"),
        ("levels", "contrastive"),
        ("tags", "triplet"),
        ("tags", "happier"),
    ],
)
def test_a_recipe_trains_and_evaluates_related_items(tmp_path, kind, loss):
    recipe = write_recipe(write_features(tmp_path, kind), kind, loss)
    kinfold.train(recipe, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    test = run.data("test")
    options = {"metrics": ["ndcg@5", "hap"], "distance": run.distance}
    relation = test.label_table.relate(torch.arange(len(test)))
    expected = evaluate_graded(run.embed(test), relation, **options)
    assert {name: run.scores["test"][name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert run.config.evaluation.metric == "ndcg@5"


@pytest.mark.parametrize("name", ["happier", "supcon", "log-ratio", "contrastive"])
@pytest.mark.parametrize("memory", [None, 20])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_gradient_of_a_step_is_that_of_the_relation(name, memory, micro_batch):
    """Also with gradients cached in parts, and against a memory of earlier batches."""
    generator = torch.Generator().manual_seed(0)
    table = LabelTable.from_texts("levels", LEVELS)
    ids = torch.randperm(72, generator=generator)[:10]
    rows = torch.randn(10, 8, generator=generator, dtype=torch.float64)
    network = nn.Linear(8, 5, dtype=torch.float64)
    loss = kinfold.losses.create(name)
    objective = Objective(loss, None if memory is None else CrossBatchMemory(memory), weight=0.5)
    objective.label_table = table
    step = Step(network, objective, precision="float64", micro_batch=micro_batch)
    value = step(Batch(rows, torch.arange(10), ids), 0).loss
    actual = network.weight.grad.clone()
    network.zero_grad()
    x, relation = network(rows), table.relate(ids)
    expected = loss(x, relation=relation)
    if memory is not None:
        against = {"ref_embeddings": x.detach(), "ids": ids, "ref_ids": ids}
        expected = expected + 0.5 * loss(x, relation=relation, **against)
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(actual, network.weight.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"name": "arcface"}}, "'arcface' learns one vector for each class: use happier, log-ratio, supcon"),
        ({"loss": {"name": "triplet"}}, "'triplet' needs pairs that are related or not: use happier"),
        ({"loss": {"name": "contrastive"}, "miner": {"name": "hard"}}, "miner.name=none"),
        ({"mixup": {"alpha": 1.0, "layers": ["input"]}}, r"not known for mixed items: leave \[mixup\] out"),
        ({"model": {"head": "divided"}}, "need classes: use another head"),
    ],
)
def test_what_needs_classes_says_so_before_training(tmp_path, changes, message):
    recipe = write_recipe(write_features(tmp_path)) | changes
    with pytest.raises(ValueError, match=message):
        kinfold.train(recipe, tmp_path / "run")


def test_a_metric_of_related_items_needs_a_column(tmp_path):
    path = write_features(tmp_path)
    recipe = write_recipe(path, loss="supcon") | {
        "data": {"name": "features", "root": str(path), "options": {"columns": {"label": "taxonomy"}}}
    }
    with pytest.raises(ValueError, match=r"ndcg@5 compares related items: name a column of levels or tags"):
        kinfold.train(recipe, tmp_path / "run")
