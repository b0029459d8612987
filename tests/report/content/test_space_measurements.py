"""Measurements of an embedding space, against the same computed naively."""

import pytest
import torch

from kinfold.data import Rows, create_dataset
from kinfold.report.content.space_measurements import measure_space
from tests.report.content.naive import CLASSES, COUNT, rows_and_data, scores_by_hand


def rank_naively(scores, query, gallery, distance):
    """Positions of the gallery, closest first, without the query itself."""
    order = sorted(gallery, key=lambda j: scores[query, j] if distance == "euclidean" else -scores[query, j])
    return [j for j in order if j != query]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("roles", [False, True])
def test_neighbors_queries_and_confusions_are_exact(distance, roles):
    role = ["query" if item // CLASSES % 3 == 0 else "gallery" for item in range(COUNT)] if roles else None
    rows, data = rows_and_data(role)
    measurements = measure_space(rows, data, distance, points=40)
    labels, scores = data.labels.numpy(), scores_by_hand(rows, distance)
    gallery = [item for item in range(COUNT) if not roles or role[item] == "gallery"]
    queries = [item for item in range(COUNT) if not roles or role[item] == "query"]
    for item, near, values in zip(
        measurements["shown"].tolist(), measurements["neighbors"], measurements["scores"], strict=True
    ):
        expected = rank_naively(scores, item, gallery, distance)[:10]
        assert near.tolist() == expected
        assert values.tolist() == pytest.approx(scores[item, expected].tolist(), abs=1e-5)

    def precision_at_r(query):
        positive = [labels[j] == labels[query] for j in rank_naively(scores, query, gallery, distance)]
        r = sum(positive)
        return sum(sum(positive[: n + 1]) / (n + 1) for n in range(r) if positive[n]) / r

    values = {query: precision_at_r(query) for query in queries}
    for which, extreme in (("best", max), ("worst", min)):
        each = {label: extreme(v for q, v in values.items() if labels[q] == label) for label in range(CLASSES)}
        shown = {int(labels[one["query"]]): one["value"] for one in measurements[which]}
        assert shown == pytest.approx(each)
        for one in measurements[which]:
            assert one["value"] == pytest.approx(values[one["query"]])
            assert one["neighbors"] == rank_naively(scores, one["query"], gallery, distance)[:10]
    worst = [one["value"] for one in measurements["worst"]]
    assert worst == sorted(worst)

    counts = {}
    for query in queries:
        nearest = labels[rank_naively(scores, query, gallery, distance)[0]]
        if nearest != labels[query]:
            pair = tuple(sorted((int(nearest), int(labels[query]))))
            counts[pair] = counts.get(pair, 0) + 1
    assert {(pair["first"], pair["second"]): pair["count"] for pair in measurements["confused"]} == counts
    size = sum(
        labels[q] in (measurements["confused"][0]["first"], measurements["confused"][0]["second"]) for q in queries
    )
    assert measurements["confused"][0]["share"] == pytest.approx(measurements["confused"][0]["count"] / size, rel=1e-4)


def test_equal_queries_are_ordered_by_their_number_of_positives_and_counted():
    """Classes of two to five items at one point each: every query retrieves all its positives first."""
    labels = torch.tensor([0] * 2 + [1] * 5 + [2] * 3 + [3] * 5)
    rows = torch.eye(4)[labels] + 0.001 * torch.randn(15, 4, generator=torch.Generator().manual_seed(0))
    data = create_dataset("equal", Rows(rows.numpy()), [str(int(label)) for label in labels], ["test"] * 15)
    measurements = measure_space(rows, data, "cosine", points=15)
    for which in ("best", "worst"):
        assert [one["query"] for one in measurements[which]] == [2, 10, 7, 0]
        assert [one["value"] for one in measurements[which]] == [1.0] * 4
    assert measurements["ties"] == {"best": 15, "worst": 15}


def test_a_single_class_has_no_pair_curves():
    rows, _ = rows_and_data()
    data = create_dataset("one", Rows(rows.numpy()), ["a"] * COUNT, ["test"] * COUNT)
    measurements = measure_space(rows, data, "cosine", points=10)
    assert [*measurements["curves"]] == ["recall@k"]
    assert measurements["histogram"] is None
    assert measurements["confused"] == []


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_very_few_items_have_a_space(count):
    rows = torch.eye(9)[:count, :3] + 0.1
    data = create_dataset("few", Rows(rows.numpy()), [str(item % 2) for item in range(count)], ["test"] * count)
    measurements = measure_space(rows, data, "cosine", points=100)
    assert measurements["layout"].isfinite().all()
    assert measurements["neighbors"].shape == (count, count - 1)
