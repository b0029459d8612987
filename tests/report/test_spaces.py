"""What is shown of a space, against the same worked out by hand; and what a run keeps of it."""

import os

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve, roc_curve

from kinfold.data import Rows, create_dataset
from kinfold.files.cache import load_or_compute
from kinfold.losses import Mined
from kinfold.report import collect_content
from kinfold.report.content import pair_curves
from kinfold.report.content.json_values import decode_array, encode_array
from kinfold.report.content.map_layout import compute_layout, sample_items
from kinfold.report.content.pair_curves import PairPool, compute_histogram
from kinfold.report.content.pair_weights import compute_pair_weights
from kinfold.report.content.path_redaction import redact_config, redact_paths
from kinfold.report.content.space_measurements import measure_space
from kinfold.training import Run, parts
from tests.report.runs import EACH, feature_run

COUNT, CLASSES = 90, 6


def rows_and_data(role=None, seed=0):
    """Six classes that overlap."""
    draw = np.random.default_rng(seed)
    labels = np.arange(COUNT) % CLASSES
    rows = (draw.normal(size=(CLASSES, 5))[labels] + 0.9 * draw.normal(size=(COUNT, 5))).astype(np.float32)
    data = create_dataset("made", Rows(rows), [f"class {label}" for label in labels], ["test"] * COUNT, role=role)
    return torch.from_numpy(rows), data


def scores_by_hand(rows, distance):
    x = rows.numpy().astype(np.float64)
    if distance == "euclidean":
        return np.linalg.norm(x[:, None] - x[None], axis=2)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if distance == "cosine" else x
    return x @ x.T


def ranked(scores, query, gallery, distance):
    """Positions of the gallery, closest first, without the query itself."""
    order = sorted(gallery, key=lambda j: scores[query, j] if distance == "euclidean" else -scores[query, j])
    return [j for j in order if j != query]


@pytest.mark.parametrize("distance", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("roles", [False, True])
def test_neighbours_queries_and_confusions_are_exact(distance, roles):
    role = ["query" if place // CLASSES % 3 == 0 else "gallery" for place in range(COUNT)] if roles else None
    rows, data = rows_and_data(role)
    found = measure_space(rows, data, distance, points=40)
    labels, scores = data.labels.numpy(), scores_by_hand(rows, distance)
    gallery = [place for place in range(COUNT) if not roles or role[place] == "gallery"]
    queries = [place for place in range(COUNT) if not roles or role[place] == "query"]
    for place, near, values in zip(found["shown"].tolist(), found["neighbors"], found["scores"], strict=True):
        expected = ranked(scores, place, gallery, distance)[:10]
        assert near.tolist() == expected
        assert values.tolist() == pytest.approx(scores[place, expected].tolist(), abs=1e-5)

    def precision_at_r(query):
        kin = [labels[j] == labels[query] for j in ranked(scores, query, gallery, distance)]
        r = sum(kin)
        return sum(sum(kin[: n + 1]) / (n + 1) for n in range(r) if kin[n]) / r

    values = {query: precision_at_r(query) for query in queries}
    for which, extreme in (("best", max), ("worst", min)):
        each = {label: extreme(v for q, v in values.items() if labels[q] == label) for label in range(CLASSES)}
        shown = {int(labels[one["query"]]): one["value"] for one in found[which]}
        assert shown == pytest.approx(each)
        for one in found[which]:
            assert one["value"] == pytest.approx(values[one["query"]])
            assert one["neighbors"] == ranked(scores, one["query"], gallery, distance)[:10]
    worst = [one["value"] for one in found["worst"]]
    assert worst == sorted(worst)

    counts = {}
    for query in queries:
        nearest = labels[ranked(scores, query, gallery, distance)[0]]
        if nearest != labels[query]:
            pair = tuple(sorted((int(nearest), int(labels[query]))))
            counts[pair] = counts.get(pair, 0) + 1
    assert {(pair["first"], pair["second"]): pair["count"] for pair in found["confused"]} == counts
    size = sum(labels[q] in (found["confused"][0]["first"], found["confused"][0]["second"]) for q in queries)
    assert found["confused"][0]["share"] == pytest.approx(found["confused"][0]["count"] / size, rel=1e-4)


def test_of_equal_queries_those_with_more_kin_come_first_and_all_are_counted():
    """Classes of two to five items at one place each: every query finds all its kin first."""
    labels = torch.tensor([0] * 2 + [1] * 5 + [2] * 3 + [3] * 5)
    rows = torch.eye(4)[labels] + 0.001 * torch.randn(15, 4, generator=torch.Generator().manual_seed(0))
    data = create_dataset("equal", Rows(rows.numpy()), [str(int(label)) for label in labels], ["test"] * 15)
    found = measure_space(rows, data, "cosine", points=15)
    for which in ("best", "worst"):
        assert [one["query"] for one in found[which]] == [2, 10, 7, 0]
        assert [one["value"] for one in found[which]] == [1.0] * 4
    assert found["ties"] == {"best": 15, "worst": 15}


def pairs_by_hand(rows, data, distance="cosine"):
    scores = scores_by_hand(rows, distance)
    once = np.triu_indices(COUNT, 1)
    kin = data.labels.numpy()[once[0]] == data.labels.numpy()[once[1]]
    return scores[once], kin


def test_curves_consist_of_points_of_the_whole_curves():
    rows, data = rows_and_data()
    curves = measure_space(rows, data, "cosine", points=10)["curves"]
    scores, kin = pairs_by_hand(rows, data)
    scores = scores.astype(np.float32)
    far, tar, _ = roc_curve(kin, scores, drop_intermediate=False)
    precision, recall, _ = precision_recall_curve(kin, scores)
    roc = curves["roc"]
    assert (roc["x"][0], roc["x"][-1], roc["y"][-1]) == (0.0, 1.0, 1.0)
    for x, y in zip(roc["x"], roc["y"], strict=True):
        assert np.min(np.abs(far - x) + np.abs(tar - y)) < 2e-4
    for x, y in zip(curves["precision-recall"]["x"], curves["precision-recall"]["y"], strict=True):
        assert np.min(np.abs(recall - x) + np.abs(precision - y)) < 2e-4
    assert max(map(len, (roc["x"], curves["precision-recall"]["x"], curves["recall@k"]["x"]))) <= 400
    assert curves["recall@k"]["y"] == sorted(curves["recall@k"]["y"])
    assert curves["recall@k"]["x"][-1] <= COUNT - 1


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_histogram_counts_every_pair_once(distance):
    rows, data = rows_and_data()
    everything = torch.ones(COUNT, dtype=torch.bool)
    found = compute_histogram(PairPool.create(rows, data.labels, everything, everything), distance)
    scores, kin = pairs_by_hand(rows, data, distance)
    edges = np.array(found["edges"])
    for name, mask in (("positives", kin), ("negatives", ~kin)):
        assert sum(found[name]) == pytest.approx(1.0, abs=1e-3)
        # scores on an edge may fall to either side
        expected = np.cumsum(np.histogram(scores[mask], edges)[0] / mask.sum())
        assert np.cumsum(found[name]) == pytest.approx(expected, abs=2.5 / mask.sum() + 1e-3)


def test_of_very_many_items_some_are_compared_with_all_others(monkeypatch):
    monkeypatch.setattr(pair_curves, "MAX_ITEMS", 50)
    monkeypatch.setattr(pair_curves, "MAX_QUERIES", 12)
    rows, data = rows_and_data()
    found = measure_space(rows, data, "cosine", points=10)
    assert found["pairs"] == "12 items against 78 others"
    assert found["histogram"]["positives"]
    assert found["count"] == COUNT


def test_one_class_alone_has_no_curves_of_pairs():
    rows, _ = rows_and_data()
    data = create_dataset("one", Rows(rows.numpy()), ["a"] * COUNT, ["test"] * COUNT)
    found = measure_space(rows, data, "cosine", points=10)
    assert [*found["curves"]] == ["recall@k"]
    assert found["histogram"] is None
    assert found["confused"] == []


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_very_few_items_have_a_space(count):
    rows = torch.eye(9)[:count, :3] + 0.1
    data = create_dataset("few", Rows(rows.numpy()), [str(place % 2) for place in range(count)], ["test"] * count)
    found = measure_space(rows, data, "cosine", points=100)
    assert found["layout"].isfinite().all()
    assert found["neighbors"].shape == (count, count - 1)


def test_rows_that_are_all_alike_or_one_number_have_a_plane():
    assert np.isfinite(compute_layout(torch.ones(30, 4))).all()
    line = compute_layout(torch.linspace(0, 1, 30)[:, None])
    assert line.shape == (30, 2)
    assert np.isfinite(line).all()


def test_the_plane_keeps_neighbours_and_lies_between_zero_and_one():
    labels = torch.arange(120) % 3
    rows = 6 * torch.eye(5)[labels] + 0.3 * torch.randn(120, 5, generator=torch.Generator().manual_seed(0))
    first, second = compute_layout(rows), compute_layout(rows)
    assert (first == second).all()
    assert first.min() >= 0
    assert first.max() <= 1
    apart = np.linalg.norm(first[:, None] - first[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (labels.numpy()[apart.argmin(axis=1)] == labels.numpy()).all()


def test_samples_are_proportional_to_classes():
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate([400, 200, 100, 3])])
    chosen = sample_items(labels, 71)
    assert len(set(chosen.tolist())) == 71
    counts = torch.bincount(labels[chosen], minlength=4).tolist()
    for count, size in zip(counts, [400, 200, 100, 3], strict=True):
        assert abs(count - size * 71 / 703) <= 1
    assert sample_items(labels, 1000).tolist() == [*range(703)]


def test_long_arrays_survive_packing():
    for array in (np.arange(6).reshape(2, 3), np.array([70_000, -1]), np.array([0.25, -1.5]), np.zeros((0, 10), int)):
        assert (decode_array(encode_array(array)) == array).all()
        assert decode_array(encode_array(array)).shape == array.shape
    assert encode_array(np.array([40_000]))["type"] == "int32"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return feature_run(tmp_path_factory.mktemp("space"))


def test_what_is_not_shown_is_named_by_its_class(run):
    """A neighbour among the shown points is its position there, another one -1 less its class."""
    (space,) = collect_content(run.folder, points=20)["spaces"]
    data = run.data("test")
    assert (space["count"], space["shown"]) == (len(data), 20)
    near, labels = decode_array(space["neighbors"]), decode_array(space["neighbor_labels"])
    own = decode_array(space["labels"])
    assert (near < 0).any()
    assert (near >= 0).any()
    assert (own[near[near >= 0]] == labels[near >= 0]).all()
    assert (-1 - near[near < 0] == labels[near < 0]).all()
    assert np.bincount(own).max() - np.bincount(own).min() <= 1  # classes of EACH items alike
    assert len(data) == EACH * len(space["classes"])


def test_a_space_is_made_once(run, monkeypatch):
    first = collect_content(run.folder)
    monkeypatch.setattr(Run, "embed", lambda *_: pytest.fail("embedded again"))
    assert collect_content(run.folder) == first
    with pytest.raises(pytest.fail.Exception, match="embedded again"):
        collect_content(run.folder, points=11)  # another map


def test_other_weights_make_another_space(tmp_path):
    mine = feature_run(tmp_path / "mine")
    other = feature_run(tmp_path / "other", {"seed": 5, "loss": {"name": "triplet"}, "optimizer": {"lr": 0.1}})
    before, wanted = (collect_content(each.folder)["spaces"][0] for each in (mine, other))
    mine.run_folder.model.write_bytes(other.run_folder.model.read_bytes())
    content = collect_content(mine.folder)  # other weights than those that were scored
    assert content["spaces"] == []
    assert any("model.safetensors is damaged" in why for why in content["missing"])
    state = other.run_folder.weights(other.run_folder.model)
    mine.run_folder.finish(state["step"], state["model"], mine.scores)
    after = collect_content(mine.folder)["spaces"][0]
    assert after["neighbor_scores"] == wanted["neighbor_scores"] != before["neighbor_scores"]


def test_what_is_damaged_is_made_anew(tmp_path):
    made = []

    def make_it():
        made.append(1)
        return {"values": torch.arange(3)}

    for key in ("a", "a", "b"):
        assert load_or_compute(tmp_path, "x", key, make_it)["values"].tolist() == [0, 1, 2]
    assert len(made) == 2
    (tmp_path / "cache" / "x.safetensors").write_bytes(b"nonsense")
    load_or_compute(tmp_path, "x", "b", make_it)
    load_or_compute(tmp_path, "x", "b", make_it)
    assert len(made) == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x.safetensors"]
    whole = (tmp_path / "cache" / "x.safetensors").read_bytes()
    (tmp_path / "cache" / "x.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert load_or_compute(tmp_path, "x", "b", make_it)["values"].tolist() == [0, 1, 2]
    assert len(made) == 4


@pytest.mark.parametrize("name", ["cache", "cache/x.safetensors"])
def test_what_is_kept_is_not_kept_behind_a_link(name, tmp_path):
    victim, run = tmp_path / "victim", tmp_path / "run"
    for folder in (victim, run, *([run / "cache"] if name != "cache" else [])):
        folder.mkdir()
    os.symlink(victim if name == "cache" else victim / "file", run / name)
    with pytest.raises(ValueError, match="is a symbolic link"):
        load_or_compute(run, "x", "key", lambda: {"values": torch.arange(3)})
    assert not [*victim.iterdir()]


@pytest.mark.parametrize(
    ("loss", "miner"), [("multi-similarity", None), ("margin", "distance-weighted"), ("proxy-anchor", None)]
)
def test_pair_weights_are_means_of_the_derivative(loss, miner, tmp_path):
    changes = {"loss": {"name": loss}, **({"miner": {"name": miner}} if miner else {})}
    run = feature_run(tmp_path, changes)
    train = run.data("train")
    found = compute_pair_weights(run, train)
    # by hand, from the same batch
    objective = parts.build_objective(run.config, len(train.classes), run.model())
    objective.load_state_dict(run.run_folder.read_last_state()["objective"])
    batch = sorted(set(next(iter(parts.build_sampler(run.config, train.labels)))))
    rows, labels = run.embed(train)[batch], train.labels[batch]
    inner = objective.loss.loss if isinstance(objective.loss, Mined) else objective.loss
    weights = objective.loss.pair_weights(rows, labels).double().numpy()
    x = rows.numpy() / np.linalg.norm(rows.numpy(), axis=1, keepdims=True)
    y, others = x, labels.numpy()
    if inner.proxies is not None:
        y = inner.proxies.detach().numpy()
        y, others = y / np.linalg.norm(y, axis=1, keepdims=True), np.arange(len(y))
    similarity, total = x @ y.T, {"positives": {}, "negatives": {}}
    for i in range(len(x)):
        for j in range(len(y)):
            if inner.proxies is None and i == j:
                continue
            group = total["positives" if labels[i] == others[j] else "negatives"]
            place = min(39, int((similarity[i, j] + 1) * 20))
            group.setdefault(round(-1 + (place + 0.5) / 20, 3), []).append(weights[i, j])
    for name, groups in total.items():
        shown = {round(s, 3): w for s, w in zip(found["similarity"], found[name], strict=True) if w is not None}
        assert shown == pytest.approx({s: sum(w) / len(w) for s, w in groups.items()}, rel=1e-3, abs=1e-7)


def test_a_loss_without_pair_weights_says_why(tmp_path):
    content = collect_content(feature_run(tmp_path, {"loss": {"name": "angular"}}).folder)
    assert content["charts"]["weights"] == []
    assert [s for s in content["missing"] if s.startswith("no pair weights of angular: Angular has no pair weights")]


def test_messages_and_configurations_lose_the_folders_of_the_machine():
    text = "cannot read '/home/ann/my/birds.csv': row 3, ~/data/wren.jpg (C:\\photos\\new\\1.png); see runs/first/log"
    assert redact_paths(text) == "cannot read 'birds.csv': row 3, wren.jpg (1.png); see runs/first/log"
    tables = {"seed": 1, "data": {"root": "/mnt/cub", "options": {"images": "/mnt/b"}}, "model": {"weights": "/w/r.pt"}}
    printed = redact_config(tables)
    assert "/mnt" not in printed
    assert "/w" not in printed
    assert 'root = "cub"' in printed
    assert printed.startswith("# shortened here to the last name: data.root, model.weights, data.options\n")
