"""The call users make: names, labels of all kinds, singletons, classes, intervals, and what goes wrong."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import kinfold
from kinfold.metrics import evaluate, examine
from kinfold.metrics.intervals import bootstrap
from tests.metrics.brute_force import retrieval
from tests.metrics.spaces import RETRIEVAL, make

# the fixture of the study's golden values: unit rows, three classes of two
E = torch.tensor([[2, 3, 6], [6, 2, 3], [3, 6, -2], [-3, 6, 2], [6, -2, 3], [-2, 3, 6]]) / 7.0
LABELS = [0, 1, 0, 2, 1, 2]


def test_golden_values():
    golden = {
        "recall@1": 0.5,
        "recall@2": 0.666667,
        "map@c": 0.291667,
        "map@r": 0.5,
        "map@1000": 0.336111,
        "map": 0.672222,
        "rho@1": 0.018635,
        "rho@2": 0.010566,
        "intra": 0.394558,
        "inter": 0.630235,
        "density": 0.626049,
        "uniformity": -1.825988,
    }
    found = evaluate(E, LABELS, metrics=list(golden))
    for name, value in golden.items():
        assert found[name] == pytest.approx(value, abs=1e-6), name


@pytest.mark.parametrize(
    ("hits", "r_precision", "map_at_r"),
    [([1], 0.1, 0.1), ([1, 10], 0.2, 0.12), ([1, 2], 0.2, 0.2), (range(1, 11), 1, 1)],
)
def test_worked_examples_with_ten_relevant_items(hits, r_precision, map_at_r):
    """The query at the origin, ten relevant items of which some are at the given ranks and the rest far away."""
    places = list(range(1, 11))
    kin = [r for r in places if r in hits] + [100.0 + i for i in range(10 - len(list(hits)))]
    others = [r for r in places if r not in hits] + [50.0]
    gallery = torch.tensor([[float(p), 0.0] for p in kin + others])
    labels = [1] * len(kin) + [2] * len(others)
    found = evaluate(torch.zeros(1, 2), [1], gallery, labels, metrics=["r-precision", "map@r"], distance="euclidean")
    assert found == pytest.approx({"r-precision": r_precision, "map@r": map_at_r})


def test_agrees_with_pytorch_metric_learning_where_definitions_agree():
    calculator_module = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    x, labels = make("clustered", n=400, d=16, classes=40)
    labels = labels[np.isin(labels, [c for c in range(40) if (labels == c).sum() > 1])]
    x = x[: len(labels)]
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = calculator_module.AccuracyCalculator(
        include=names, k="max_bin_count", knn_func=inference.CustomKNN(distances.CosineSimilarity())
    )
    theirs = calculator.get_accuracy(x, torch.tensor(labels))
    ours = evaluate(x, labels, metrics=["precision@1", "r-precision", "map@r"])
    assert list(ours.values()) == pytest.approx([theirs[name] for name in names], abs=1e-6)


def test_defaults():
    x, labels = make("clustered")
    found = evaluate(x, labels)
    assert list(found) == ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"]
    assert found == pytest.approx({name: retrieval(x.numpy(), labels)[name] for name in found})


@pytest.mark.parametrize("offset", [0, 2**24, -(2**40)])
def test_labels_are_any_integers(offset):
    x, labels = make("clustered")
    assert evaluate(x, labels.astype(np.int64) + offset, metrics=RETRIEVAL) == evaluate(x, labels, metrics=RETRIEVAL)


def test_labels_are_strings():
    x, labels = make("clustered")
    words = [f"kind {label}" for label in labels]
    names = [*RETRIEVAL, "nmi", "f1", "intra", "roc-auc"]
    assert evaluate(x, words, metrics=names) == pytest.approx(evaluate(x, labels, metrics=names), abs=1e-12)
    with pytest.raises(ValueError, match="strings and integers"):
        evaluate(x, words, x, labels)


def test_half_precision_is_what_float32_says_of_it():
    x, labels = make("clustered")
    half = x.half()
    assert evaluate(half, labels, metrics=RETRIEVAL) == evaluate(half.float(), labels, metrics=RETRIEVAL)


def test_singletons_are_left_out_but_count_zero_in_the_study_metrics():
    x, labels = make("clustered")
    alone = np.concatenate([labels, [1000, 1001]])
    more = torch.cat([x, 1e3 * torch.eye(12)[:2]])
    found = examine(more, alone, metrics=RETRIEVAL, distance="euclidean")
    assert found.left_out == 2
    before = evaluate(x, labels, metrics=RETRIEVAL, distance="euclidean")
    # far away they change nobody's ranks: only the study's means are diluted
    for name in RETRIEVAL:
        diluted = name.startswith(("map@c", "map@1000"))
        assert found.values[name] == pytest.approx(before[name] * (260 / 262 if diluted else 1))
        assert bool(found.per_query[name][-2:].isnan().all()) != diluted


def test_nobody_has_kin():
    x, _ = make("random", n=10)
    found = evaluate(x, range(10), metrics=["recall@1", "map@c", "roc-auc", "alignment", "intra"])
    assert found["map@c"] == 0.0
    assert all(np.isnan(found[name]) for name in ("recall@1", "roc-auc", "alignment", "intra"))


def test_one_class_only():
    x, _ = make("random", n=10)
    found = evaluate(x, [3] * 10, metrics=[*RETRIEVAL, "nmi", "ami", "f1", "roc-auc", "inter", "eer", "tar@far=0.1"])
    assert found["recall@1"] == found["map"] == found["map@r"] == found["nmi"] == found["ami"] == found["f1"] == 1.0
    assert found["map@c"] == pytest.approx(0.9)
    assert all(np.isnan(found[name]) for name in ("roc-auc", "inter", "eer", "tar@far=0.1"))


def test_a_query_class_that_the_gallery_lacks():
    x, labels = make("clustered")
    found = examine(x[:50], np.where(np.arange(50) < 5, 999, labels[:50]), x[50:], labels[50:])
    assert found.left_out == 5
    assert found.values == pytest.approx(
        {name: retrieval(x[5:50].numpy(), labels[5:50], x[50:].numpy(), labels[50:])[name] for name in found.values}
    )


def test_per_class():
    x, labels = make("clustered")
    found = examine(x, [f"c{label}" for label in labels], metrics=["map@r"])
    for label in np.unique(labels):
        expected = float(found.per_query["map@r"][torch.tensor(labels == label)].mean())
        assert found.per_class("map@r")[f"c{label}"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="map@r"):
        found.per_class("nmi")


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_intervals_are_those_of_a_mean(level):
    """Of many values the mean is nearly normal, and its interval known."""
    values = torch.randn(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = bootstrap({"m": values}, torch.zeros(4000, dtype=torch.int64), "queries", level)["m"]
    half = scipy.stats.norm.ppf((1 + level) / 2) * values.std().item() / math.sqrt(4000)
    assert found == pytest.approx((values.mean().item() - half, values.mean().item() + half), abs=0.06 * half)


def test_intervals_cover_and_those_over_classes_are_wider():
    # whole classes are easy or hard, so that queries of one class say little more than one of them
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 20)
    noise = np.where(np.arange(30) % 2 == 0, 0.1, 3.0)[labels][:, None]
    x = torch.tensor(rng.normal(size=(30, 16))[labels] + rng.normal(size=(600, 16)) * noise)
    queries = examine(x, labels, metrics=["recall@1"], intervals="queries")
    classes = examine(x, labels, metrics=["recall@1"], intervals="classes")
    for found in (queries, classes):
        low, high = found.intervals["recall@1"]
        assert low < found.values["recall@1"] < high
    width = [found.intervals["recall@1"][1] - found.intervals["recall@1"][0] for found in (queries, classes)]
    per_query = queries.per_query["recall@1"]
    assert width[0] == pytest.approx(2 * 1.96 * float(per_query.std()) / 600**0.5, rel=0.1)
    means = torch.tensor(list(classes.per_class("recall@1").values()))
    assert width[1] == pytest.approx(2 * 1.96 * float(means.std()) / 30**0.5, rel=0.15)
    assert width[1] > 1.5 * width[0]
    again = examine(x, labels, metrics=["recall@1"], intervals="classes")
    assert again.intervals == classes.intervals


@pytest.mark.parametrize("name", [n.replace("@k", "@3").replace("=x", "=0.1") for n in kinfold.list("metrics")])
def test_every_registered_metric_is_a_number_and_perfect_spaces_are_perfect(name):
    labels = np.repeat(np.arange(8), 5)
    x = torch.eye(8)[labels] + 1e-3 * torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    coarse = {"coarse_labels": labels // 2} if name.endswith("-coarse") else {}
    found = evaluate(x, labels, metrics=[name], **coarse)[name]
    best = {"map@c": 0.8, "map@1000": 0.8, "map@c-printed": 0.8, "map@1000-printed": 0.004, "eer": 0.0}
    shape = ("rho@3", "uniformity", "alignment", "intra", "inter", "density", "nmi-coarse", "ami-coarse", "f1-coarse")
    if name in shape:
        assert np.isfinite(found)
    else:
        assert found == pytest.approx(best.get(name, 1.0), abs=1e-9 if name not in ("nmi", "ami", "f1") else 0.2)


def test_names_and_numbers():
    x, labels = make("random", n=20)
    for wrong, hint in [
        ("recal@1", "recall@1"),
        ("recall@0", "at least 1"),
        ("recall@k", "recall@"),
        ("recall@1.5", "whole number"),
        ("map@5", "kinfold.list"),
        ("tar@far=2", "between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=hint):
            evaluate(x, labels, metrics=[wrong])
    with pytest.raises(ValueError, match="list of names"):
        evaluate(x, labels, metrics="recall@1")


def test_wrong_input():
    x, labels = make("random", n=20)
    with pytest.raises(ValueError, match="20 rows of embeddings but 19 labels"):
        evaluate(x, labels[:19])
    with pytest.raises(ValueError, match="20 rows of gallery but 19 labels"):
        evaluate(x, labels, x, labels[:19])
    with pytest.raises(ValueError, match="give both or none"):
        evaluate(x, labels, x)
    with pytest.raises(ValueError, match="no embeddings"):
        evaluate(x[:0], labels[:0])
    with pytest.raises(ValueError, match="needs coarse_labels"):
        evaluate(x, labels, metrics=["nmi-coarse"])
    with pytest.raises(ValueError, match="3 coarse_labels"):
        evaluate(x, labels, metrics=["nmi-coarse"], coarse_labels=[0, 1, 1])
    with pytest.raises(ValueError, match="init_process_group"):
        evaluate(x, labels, ranks=True)
    with pytest.raises(ValueError, match="queries"):
        examine(x, labels, intervals="rows")


def test_progress_is_told():
    x, labels = make("random", n=200)
    seen = []
    evaluate(x, labels, metrics=["recall@1", "nmi", "rho@1", "eer"], progress=lambda *step: seen.append(step))
    assert ("ranks", 1.0) in seen
    assert {stage for stage, _ in seen} == {"ranks", "clusters", "space", "pairs"}
    assert all(0.0 <= share <= 1.0 for _, share in seen)


def test_pooled_areas_are_those_of_scikit_learn():
    x, labels = make("clustered")
    found = evaluate(x, labels, metrics=["roc-auc", "pr-auc"])
    unit = torch.nn.functional.normalize(x.double())
    first, second = np.triu_indices(260, 1)
    score, kin = (unit @ unit.T).numpy()[first, second], (labels[:, None] == labels)[first, second]
    assert found["roc-auc"] == pytest.approx(roc_auc_score(kin, score), abs=1e-7)
    assert found["pr-auc"] == pytest.approx(average_precision_score(kin, score), abs=1e-6)


@pytest.mark.parametrize(
    ("metrics", "given", "message"),
    [
        (["recall@1"], {"coarse_labels": [0, 0, 0, 1]}, "no metric of recall@1 uses coarse_labels"),
        (["nmi", "density"], {"gallery": torch.eye(4), "gallery_labels": [0, 0, 1, 1]}, "looks at a gallery"),
        (["nmi"], {"intervals": "queries"}, "intervals are of retrieval metrics"),
        (["recall@1"], {"level": 0.9}, "level=0.9 is that of intervals"),
    ],
)
def test_an_argument_that_no_metric_uses_is_refused(metrics, given, message):
    with pytest.raises(ValueError, match=message):
        kinfold.metrics.examine(torch.eye(4), [0, 0, 1, 1], metrics=metrics, **given)
