"""`evaluate`: values, labels of all kinds, queries without relevant items, and errors."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import kinfold
from kinfold.distributed import World
from kinfold.metrics import evaluate, examine
from tests.metrics.brute_force import retrieval
from tests.metrics.embedding_sets import RETRIEVAL, make_embeddings

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
    values = evaluate(E, LABELS, metrics=list(golden))
    for name, value in golden.items():
        assert values[name] == pytest.approx(value, abs=1e-6), name


@pytest.mark.parametrize(
    ("hits", "r_precision", "map_at_r"),
    [([1], 0.1, 0.1), ([1, 10], 0.2, 0.12), ([1, 2], 0.2, 0.2), (range(1, 11), 1, 1)],
)
def test_worked_examples_with_ten_relevant_items(hits, r_precision, map_at_r):
    """The query is at the origin; some of ten relevant items have the ranks `hits`, the rest are far away."""
    ranks = list(range(1, 11))
    relevant = [r for r in ranks if r in hits] + [100.0 + i for i in range(10 - len(list(hits)))]
    other = [r for r in ranks if r not in hits] + [50.0]
    gallery = torch.tensor([[float(p), 0.0] for p in relevant + other])
    labels = [1] * len(relevant) + [2] * len(other)
    values = evaluate(torch.zeros(1, 2), [1], gallery, labels, metrics=["r-precision", "map@r"], distance="euclidean")
    assert values == pytest.approx({"r-precision": r_precision, "map@r": map_at_r})


def test_agrees_with_pytorch_metric_learning_where_definitions_agree():
    calculator_module = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    x, labels = make_embeddings("clustered", n=400, d=16, classes=40)
    labels = labels[np.isin(labels, [c for c in range(40) if (labels == c).sum() > 1])]
    x = x[: len(labels)]
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = calculator_module.AccuracyCalculator(
        include=names, k="max_bin_count", knn_func=inference.CustomKNN(distances.CosineSimilarity())
    )
    peer = calculator.get_accuracy(x, torch.tensor(labels))
    values = evaluate(x, labels, metrics=["precision@1", "r-precision", "map@r"])
    assert list(values.values()) == pytest.approx([peer[name] for name in names], abs=1e-6)


def test_defaults():
    x, labels = make_embeddings("clustered")
    values = evaluate(x, labels)
    assert list(values) == ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"]
    assert values == pytest.approx({name: retrieval(x.numpy(), labels)[name] for name in values})


@pytest.mark.parametrize("offset", [0, 2**24, -(2**40)])
def test_labels_are_any_integers(offset):
    x, labels = make_embeddings("clustered")
    assert evaluate(x, labels.astype(np.int64) + offset, metrics=RETRIEVAL) == evaluate(x, labels, metrics=RETRIEVAL)


def test_labels_are_strings():
    x, labels = make_embeddings("clustered")
    names_of_labels = [f"kind {label}" for label in labels]
    names = [*RETRIEVAL, "nmi", "f1", "intra", "roc-auc"]
    assert evaluate(x, names_of_labels, metrics=names) == pytest.approx(evaluate(x, labels, metrics=names), abs=1e-12)
    with pytest.raises(ValueError, match="strings and integers"):
        evaluate(x, names_of_labels, x, labels)


def test_half_precision_gives_the_values_of_float32():
    x, labels = make_embeddings("clustered")
    half = x.half()
    assert evaluate(half, labels, metrics=RETRIEVAL) == evaluate(half.float(), labels, metrics=RETRIEVAL)


def test_singletons_are_left_out_but_count_zero_in_the_study_metrics():
    x, labels = make_embeddings("clustered")
    alone = np.concatenate([labels, [1000, 1001]])
    more = torch.cat([x, 1e3 * torch.eye(12)[:2]])
    evaluation = examine(more, alone, metrics=RETRIEVAL, distance="euclidean")
    assert evaluation.skipped_queries == 2
    before = evaluate(x, labels, metrics=RETRIEVAL, distance="euclidean")
    # they are far away and change no other rank: only the means of the study are diluted
    for name in RETRIEVAL:
        diluted = name.startswith(("map@c", "map@1000"))
        assert evaluation.values[name] == pytest.approx(before[name] * (260 / 262 if diluted else 1))
        assert bool(evaluation.per_query[name][-2:].isnan().all()) != diluted


def test_no_query_has_a_relevant_item():
    x, _ = make_embeddings("random", n=10)
    values = evaluate(x, range(10), metrics=["recall@1", "map@c", "roc-auc", "alignment", "intra"])
    assert values["map@c"] == 0.0
    assert all(np.isnan(values[name]) for name in ("recall@1", "roc-auc", "alignment", "intra"))


def test_one_class_only():
    x, _ = make_embeddings("random", n=10)
    values = evaluate(x, [3] * 10, metrics=[*RETRIEVAL, "nmi", "ami", "f1", "roc-auc", "inter", "eer", "tar@far=0.1"])
    assert (
        values["recall@1"] == values["map"] == values["map@r"] == values["nmi"] == values["ami"] == values["f1"] == 1.0
    )
    assert values["map@c"] == pytest.approx(0.9)
    assert all(np.isnan(values[name]) for name in ("roc-auc", "inter", "eer", "tar@far=0.1"))


def test_a_query_class_that_the_gallery_lacks():
    x, labels = make_embeddings("clustered")
    evaluation = examine(x[:50], np.where(np.arange(50) < 5, 999, labels[:50]), x[50:], labels[50:])
    assert evaluation.skipped_queries == 5
    assert evaluation.values == pytest.approx(
        {
            name: retrieval(x[5:50].numpy(), labels[5:50], x[50:].numpy(), labels[50:])[name]
            for name in evaluation.values
        }
    )


@pytest.mark.parametrize("name", [n.replace("@k", "@3").replace("=x", "=0.1") for n in kinfold.list("metrics")])
def test_every_registered_metric_is_a_number_and_perfect_spaces_are_perfect(name):
    labels = np.repeat(np.arange(8), 5)
    x = torch.eye(8)[labels] + 1e-3 * torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    coarse = {"coarse_labels": labels // 2} if name.endswith("-coarse") else {}
    values = evaluate(x, labels, metrics=[name], **coarse)[name]
    best = {"map@c": 0.8, "map@1000": 0.8, "map@c-printed": 0.8, "map@1000-printed": 0.004, "eer": 0.0, "opis": 0.0}
    shape = ("rho@3", "uniformity", "alignment", "intra", "inter", "density", "nmi-coarse", "ami-coarse", "f1-coarse")
    if name in shape:
        assert np.isfinite(values)
    else:
        near = {"nmi": 0.2, "ami": 0.2, "f1": 0.2, "threshold@far=0.1": 1e-4}.get(name, 1e-9)
        assert values == pytest.approx(best.get(name, 1.0), abs=near)


def test_invalid_input_is_refused():
    x, labels = make_embeddings("random", n=20)
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
        evaluate(x, labels, world=World.current(enabled=True))
    with pytest.raises(ValueError, match="queries"):
        examine(x, labels, intervals="rows")


def test_progress_is_reported():
    x, labels = make_embeddings("random", n=200)
    steps = []
    evaluate(x, labels, metrics=["recall@1", "nmi", "rho@1", "eer"], progress=lambda *step: steps.append(step))
    assert ("ranks", 1.0) in steps
    assert {stage for stage, _ in steps} == {"ranks", "clusters", "space", "pairs"}
    assert all(0.0 <= share <= 1.0 for _, share in steps)


def test_pooled_areas_are_those_of_scikit_learn():
    x, labels = make_embeddings("clustered")
    values = evaluate(x, labels, metrics=["roc-auc", "pr-auc"])
    unit = torch.nn.functional.normalize(x.double())
    first, second = np.triu_indices(260, 1)
    score, is_positive = (unit @ unit.T).numpy()[first, second], (labels[:, None] == labels)[first, second]
    assert values["roc-auc"] == pytest.approx(roc_auc_score(is_positive, score), abs=1e-7)
    assert values["pr-auc"] == pytest.approx(average_precision_score(is_positive, score), abs=1e-6)


@pytest.mark.parametrize(
    ("metrics", "arguments", "message"),
    [
        (["recall@1"], {"coarse_labels": [0, 0, 0, 1]}, "no metric of recall@1 uses coarse_labels"),
        (["nmi", "density"], {"gallery": torch.eye(4), "gallery_labels": [0, 0, 1, 1]}, "looks at a gallery"),
        (["nmi"], {"intervals": "queries"}, "intervals are of retrieval metrics"),
        (["recall@1"], {"level": 0.9}, "level=0.9 is that of intervals"),
    ],
)
def test_an_argument_that_no_metric_uses_is_refused(metrics, arguments, message):
    with pytest.raises(ValueError, match=message):
        examine(torch.eye(4), [0, 0, 1, 1], metrics=metrics, **arguments)


@pytest.mark.parametrize("rows", [np.array([["a", "b"]] * 4), np.array([[1, None]] * 4), [["1", "2"]] * 4])
def test_embeddings_that_are_not_numbers_are_refused(rows):
    with pytest.raises(ValueError, match="embeddings must be numbers"):
        evaluate(rows, [0, 0, 1, 1])


def test_numbers_at_the_ends_of_their_ranges():
    x, labels = make_embeddings("clustered", n=80)
    values = evaluate(x, labels, metrics=["tar@far=0", "tar@far=1", "recall@1", "recall@100000", "rho@12"])
    assert values["tar@far=1"] == values["recall@100000"] == 1.0
    assert 0.0 <= values["tar@far=0"] < 1.0
    assert values["rho@12"] == pytest.approx(0.0)
    with pytest.raises(ValueError, match="none is left"):
        evaluate(x, labels, metrics=["rho@13"])
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            examine(x, labels, intervals="queries", level=level)


def test_complex_rows_are_refused():
    with pytest.raises(ValueError, match="real numbers"):
        evaluate(torch.ones(4, 2, dtype=torch.complex64), [0, 0, 1, 1])
