"""An index that is kept with a gallery follows its changes; what it returns is ordered by exact cosines."""

import json

import numpy as np
import pytest
import torch

from kinfold import Gallery
from kinfold.gallery import kept_index
from tests.cli.runs import run
from tests.problems import generator

LIBRARIES = [
    "faiss",
    pytest.param("usearch", marks=pytest.mark.integration),
]


def rows(count, seed=0):
    return torch.randn(count, 12, generator=generator(seed))


@pytest.fixture(params=LIBRARIES)
def gallery(request, tmp_path, monkeypatch):
    module = "usearch.index" if request.param == "usearch" else request.param
    pytest.importorskip(module)
    monkeypatch.setattr(kept_index, "MIN_CHANGES", 20)
    made = Gallery.create(tmp_path / "g", dim=12)
    made.add(rows(400), [f"c{i % 8}" for i in range(400)], [f"id{i}" for i in range(400)])
    made.build_index(request.param)
    return made


def find_by_hand(gallery, queries, k):
    """Ids of the nearest items by float64 products of the stored vectors."""
    stored = gallery.embeddings().double().numpy()
    scores = queries.double().numpy() @ stored.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [[gallery.ids[j] for j in row] for row in order]


def measure_recall(gallery, queries, k=10):
    near = gallery.search(queries, k, approximate=True)
    exact = find_by_hand(gallery, queries, k)
    return np.mean([len({*a} & {*b}) / k for a, b in zip(near.ids, exact, strict=True)])


def test_it_finds_what_an_exact_search_finds(gallery):
    queries = rows(30, seed=1)
    assert measure_recall(gallery, queries) > 0.99
    near, exact = gallery.search(queries, 5, approximate=True), gallery.search(queries, 5)
    assert near.ids == exact.ids
    assert torch.equal(near.similarities, exact.similarities)  # to the last bit: scored in the same way


def test_new_items_are_found_at_once_and_join_the_index_later(gallery):
    file = gallery.info()["index"]
    assert file == {**file, "items": 400, "waiting": 0, "removed": 0}
    new = rows(15, seed=2)
    gallery.add(new, ["new"] * 15, [f"new{i}" for i in range(15)])
    assert gallery.info()["index"]["waiting"] == 15
    assert [ids[0] for ids in gallery.search(new, 1, approximate=True).ids] == [f"new{i}" for i in range(15)]
    more = rows(40, seed=3)
    gallery.add(more, ["more"] * 40, [f"more{i}" for i in range(40)])
    assert gallery.info()["index"] == {**file, "items": 455, "waiting": 0}
    reopened = Gallery.open(gallery.folder)
    assert [ids[0] for ids in reopened.search(more, 1, approximate=True).ids] == [f"more{i}" for i in range(40)]
    assert measure_recall(reopened, rows(30, seed=4)) > 0.99


def test_removed_items_are_never_returned(gallery):
    queries = gallery.embeddings()[:32]
    gallery.remove(ids=[f"id{i}" for i in range(32)])
    assert gallery.info()["index"]["removed"] == 32
    for matches in gallery.search(queries, 20, approximate=True):
        assert len(matches) == 20
        assert not {match.id for match in matches} & {f"id{i}" for i in range(32)}
    assert measure_recall(gallery, queries) > 0.99
    gallery.remove(ids=[f"id{i}" for i in range(32, 50)])  # more than a tenth: built again
    assert gallery.info()["index"] == {**gallery.info()["index"], "items": 350, "removed": 0}
    assert measure_recall(gallery, queries) > 0.99


def test_a_query_whose_neighbors_were_all_removed_is_searched_exactly(gallery):
    cluster = torch.ones(18, 12) + 1e-3 * rows(18, seed=5)
    gallery.add(cluster, ["crowd"] * 18, [f"crowd{i}" for i in range(18)])
    gallery.build_index(gallery.info()["index"]["library"])
    gallery.remove(labels=["crowd"])
    assert gallery.info()["index"]["removed"] == 18
    query = torch.ones(1, 12)
    assert gallery.search(query, 3, approximate=True).ids == find_by_hand(gallery, query, 3)


def test_only_queries_with_too_few_neighbors_are_searched_exactly(gallery, monkeypatch):
    searched = []
    monkeypatch.setattr(kept_index, "search_chunks", lambda *arguments: searched.append(arguments))
    gallery.search(gallery.embeddings()[:8], 3, approximate=True)
    assert searched == []


def test_an_index_is_opened_once_until_it_changes(gallery, monkeypatch):
    opened = []
    read = kept_index.read
    monkeypatch.setattr(kept_index, "read", lambda *args: opened.append(1) or read(*args))
    query = rows(1, seed=8)
    gallery.search(query, 2, approximate=True)
    gallery.add(rows(1, seed=9), ["late"], ["late"])
    gallery.search(query, 2, approximate=True)
    assert len(opened) == 1
    gallery.drop_index()
    with pytest.raises(ValueError, match="index"):
        gallery.search(query, 2, approximate=True)


def test_replaced_items_are_found_under_their_new_vectors(gallery):
    moved = rows(3, seed=6)
    gallery.add(moved, ["moved"] * 3, ["id0", "id1", "id2"], existing="replace")
    near = gallery.search(moved, 1, approximate=True)
    assert near.ids == [["id0"], ["id1"], ["id2"]]
    assert near.similarities.flatten().tolist() == pytest.approx([1.0] * 3)


def test_a_damaged_index_is_noticed(gallery):
    (path,) = gallery.folder.glob("index-*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    reopened = Gallery.open(gallery.folder)
    with pytest.raises(ValueError, match="damaged"):
        reopened.verify()
    with pytest.raises(ValueError, match="damaged"):
        reopened.search(rows(1), approximate=True)
    assert reopened.search(rows(1)).ids  # the items are sound
    reopened.build_index(reopened.info()["index"]["library"])
    reopened.verify()


def test_without_the_library_the_index_waits(gallery, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    gallery.add(rows(60, seed=7), ["later"] * 60)
    assert gallery.info()["index"]["waiting"] == 60
    assert measure_recall(gallery, rows(30, seed=8)) > 0.99


def test_an_approximate_search_needs_an_index(tmp_path):
    made = Gallery.create(tmp_path / "g", dim=12)
    made.add(rows(5), ["a"] * 5)
    with pytest.raises(ValueError, match="kinfold gallery index"):
        made.search(rows(1), approximate=True)
    with pytest.raises(ValueError, match="'faiss', 'usearch'"):
        made.build_index("annoy")


def test_the_command_line_builds_searches_and_drops(capsys, monkeypatch, tmp_path):
    pytest.importorskip("faiss")
    made = Gallery.create(tmp_path / "g", dim=12)
    made.add(rows(50), [f"c{i % 5}" for i in range(50)])
    np.save(tmp_path / "query.npy", rows(2).numpy())
    _, out, _ = run(capsys, monkeypatch, "gallery", "index", tmp_path / "g", "--json")
    assert json.loads(out)["index"]["items"] == 50
    arguments = ["gallery", "search", tmp_path / "g", tmp_path / "query.npy", "-k", "3", "--json"]
    near, exact = (run(capsys, monkeypatch, *arguments, *option)[1] for option in (["--approximate"], []))
    assert json.loads(near) == json.loads(exact)
    assert "no index" in run(capsys, monkeypatch, "gallery", "index", tmp_path / "g", "--drop")[1]
    assert not [*made.folder.glob("index-*")]
