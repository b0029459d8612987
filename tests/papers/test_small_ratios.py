"""What rows of a table have in proportion in the paper stays in proportion at small scale."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.published import load_table
from kinfold.papers.small_ratios import keep_imbalance, keep_lengths, keep_pair_counts
from kinfold.papers.small_scale import SmallScale

SIZES = (80, 160, 320, 480, 640)


def batches(sizes=SIZES, per_class=5):
    return {str(size): {"sampler": {"name": "spc", "batch_size": size, "per_class": per_class}} for size in sizes}


def count_positives_per_negative(sampler) -> float:
    """By counting the ordered pairs of a batch."""
    labels = np.arange(sampler["batch_size"]) // sampler["per_class"]
    same = labels[:, None] == labels[None, :]
    return float((same.sum() - len(labels)) / (~same).sum())


@pytest.fixture(scope="module")
def few_classes(tmp_path_factory) -> Path:
    """Features of 200 classes, of which 80 train."""
    path: Path = tmp_path_factory.mktemp("features") / "few.npz"
    labels = np.repeat(np.arange(200), 6)
    rows = np.random.default_rng(0).normal(size=(len(labels), 8)).astype(np.float32)
    np.savez(path, embeddings=rows, labels=labels)
    return path


@given(classes=st.integers(80, 127))
def test_batches_of_few_classes_keep_positives_per_negative(classes):
    small = keep_imbalance(batches(), classes)
    paper = batches()
    for name in paper:
        assert small[name]["batch_size"] // small[name]["per_class"] <= classes
        ratio = count_positives_per_negative(small[name]) / count_positives_per_negative(paper[name]["sampler"])
        assert ratio == pytest.approx(1.0, abs=0.07)  # a batch has an integer number of classes


def test_as_many_items_of_a_class_as_fit_are_kept():
    assert {sampler["per_class"] for sampler in keep_imbalance(batches(), 119).values()} == {3}
    assert {sampler["per_class"] for sampler in keep_imbalance(batches(), 80).values()} == {2}


def test_batches_that_fit_stay():
    assert keep_imbalance(batches(), 128) == {}


def test_with_too_few_classes_all_batches_shrink_by_one_factor():
    small = keep_imbalance(batches(), 40)
    groups = [sampler["batch_size"] // 2 for sampler in small.values()]
    assert max(groups) == 40
    assert np.allclose(np.array(groups[1:]) / groups[0], np.array(SIZES[1:]) / SIZES[0], rtol=0.05)


def test_rows_that_differ_in_their_sampler_otherwise_are_left_alone():
    rows = {**batches((112,), 2), "b": {"sampler": {"name": "spc", "batch_size": 640, "per_class": 4}}}
    assert keep_imbalance(rows, 10) == {}


def test_k_and_its_search_follow_the_batch():
    paper = {
        "loss": {"name": "dro-topk", "k": 1280},
        "sampler": {"batch_size": 640},
        "search": {"loss.k": {"values": [640, 1920]}, "optimizer.lr": {"low": 1e-5, "high": 1e-3}},
    }
    small = keep_pair_counts(paper, {**paper, "sampler": {"batch_size": 160}})
    assert small["loss"]["k"] == 320
    assert small["search"] == {"loss.k": {"values": [160, 480]}, "optimizer.lr": {"low": 1e-5, "high": 1e-3}}


def test_k_of_precision_does_not_count_pairs_of_a_batch():
    paper = {"loss": {"name": "precision-at-k", "k": 4}, "sampler": {"batch_size": 80}}
    assert keep_pair_counts(paper, {**paper, "sampler": {"batch_size": 40}}) == {}


def test_lengths_stay_in_proportion_and_untrained_rows_untrained():
    rows = {name: {"training": {"steps": steps}} for name, steps in (("a", 74700), ("b", 9300), ("start", 0))}
    assert keep_lengths(rows, 800) == {"a": 800, "b": 100}
    assert keep_lengths({"a": rows["a"], "b": rows["a"]}, 800) == {}


def test_the_imbalance_figure_keeps_its_ratios_on_few_classes(few_classes):
    table = load_table("dro/imbalance-512")
    plan = plan_table(table, PlanOptions(small=SmallScale(80, few_classes))).settings["in-shop"]
    for row in table.rows:
        paper = row.settings("in-shop")
        ratio = count_positives_per_negative(plan[row.name]["sampler"]) / count_positives_per_negative(paper["sampler"])
        assert ratio == pytest.approx(1.0, abs=0.07)
    steps = [plan[f"semihard@{size}"]["training"]["steps"] for size in SIZES]
    assert steps == [80, 40, 20, 13, 10]


def test_the_figure_over_k_keeps_k_per_item(few_classes):
    plan = plan_table(load_table("dro/k-sensitivity"), PlanOptions(small=SmallScale(80, few_classes)))
    shares = [row["loss"]["k"] / row["sampler"]["batch_size"] for row in plan.settings["in-shop"].values()]
    assert shares == [1.0, 1.5, 2.0, 2.5, 3.0, 4.0]


def test_untrained_rows_measure_the_start_at_small_scale(few_classes):
    small = SmallScale(80, few_classes)
    features = plan_table(load_table("revisiting/table4"), PlanOptions(small=small)).settings["cub"]["imagenet"]
    assert (features["training"]["steps"], features["model"]["head"], features["model"]["dim"]) == (0, "identity", 8)
    components = plan_table(load_table("drml/table1"), PlanOptions(small=small)).settings["cub"]["pretrained"]
    assert (components["training"]["steps"], components["model"]["init"]) == (0, "pca")
