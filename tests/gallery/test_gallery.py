"""Galleries: what is added is found, exactly; ids are unique; another model is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kinfold
from kinfold import Gallery, Run
from kinfold.embedding import fingerprint_run
from kinfold.gallery import adding, exact_search, folder
from kinfold.gallery.exact_search import search_chunks
from kinfold.metrics import neighbors
from tests.cli.runs import feature_file, feature_run
from tests.problems import generator


def rows(count, dim=6, seed=0):
    return torch.randn(count, dim, generator=generator(seed))


@pytest.fixture
def gallery(tmp_path):
    made = Gallery.create(tmp_path / "birds", dim=6, fingerprint="model-a")
    made.add(rows(30), [f"c{i % 5}" for i in range(30)], [f"id{i}" for i in range(30)])
    return made


def test_search_returns_the_exact_neighbors_with_their_labels_and_ids(gallery):
    queries = rows(4, seed=1)
    matches = gallery.search(queries, k=7)
    values, indices = neighbors(queries, rows(30), k=7)
    assert torch.equal(matches.rows, indices)
    assert torch.equal(matches.similarities, values)
    assert matches.ids == [[f"id{i}" for i in row] for row in indices.tolist()]
    assert matches.labels == [[f"c{i % 5}" for i in row] for row in indices.tolist()]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    dim=st.integers(1, 9),
    k=st.integers(1, 70),
    levels=st.sampled_from([2, 3, 1000]),
    seed=st.integers(0, 10**6),
)
def test_search_over_chunks_equals_a_float64_sort_with_ties(sizes, dim, k, levels, seed):
    source = np.random.default_rng(seed)
    # few levels give many equal rows, and ties are decided by the row
    grid = torch.from_numpy(source.integers(-levels, levels + 1, size=(sum(sizes), dim)).astype(np.float32))
    units = torch.nn.functional.normalize(grid)
    queries = torch.nn.functional.normalize(torch.from_numpy(source.normal(size=(3, dim)).astype(np.float32)))
    scores, indices = search_chunks(queries, torch.split(units, sizes), k)
    exact = (queries.double()[:, None] * units.double()).sum(dim=-1)
    order = exact.sort(dim=1, descending=True, stable=True)
    assert torch.equal(indices, order.indices[:, :k])
    assert torch.equal(scores, order.values[:, :k])


def test_few_rows_are_scored_in_float64(monkeypatch):
    counts = []
    score = exact_search.score_rows
    monkeypatch.setattr(exact_search, "score_rows", lambda *args: counts.append(len(args[2])) or score(*args))
    unit = torch.nn.functional.normalize(rows(2000, 16))
    search_chunks(unit[:50], [unit], 5)
    assert sum(counts) < 50 * 6


def test_too_many_ties_are_searched_in_smaller_blocks(monkeypatch):
    monkeypatch.setattr("kinfold.gallery.exact_search._MAX_CANDIDATES", 100)
    same = torch.nn.functional.normalize(torch.ones(500, 3))
    scores, indices = search_chunks(same[:8], [same[:200], same[200:]], 4)
    assert indices.tolist() == [[0, 1, 2, 3]] * 8
    assert scores.allclose(torch.ones(8, 4, dtype=torch.float64))


def test_what_was_added_is_there_after_reopening(gallery):
    again = Gallery.open(gallery.folder)
    assert (len(again), again.ids, again.labels) == (30, gallery.ids, gallery.labels)
    assert torch.equal(again.embeddings(), gallery.embeddings())
    assert torch.allclose(again.embeddings().norm(dim=1), torch.ones(30))


def test_small_additions_are_joined_to_few_chunks(tmp_path):
    gallery = Gallery.create(tmp_path / "g", dim=6)
    for i in range(40):
        gallery.add(rows(1, seed=i), ["a"], [str(i)])
    assert gallery.info()["chunks"] <= 6
    assert gallery.ids == [str(i) for i in range(40)]
    expected = torch.nn.functional.normalize(torch.cat([rows(1, seed=i) for i in range(40)]))
    assert torch.allclose(gallery.embeddings(), expected, atol=1e-6)


def test_large_additions_are_divided(tmp_path, monkeypatch):
    monkeypatch.setattr("kinfold.gallery.chunk_list.CHUNK_BYTES", 4 * 6 * 10)
    gallery = Gallery.create(tmp_path / "g", dim=6)
    gallery.add(rows(35), range(35))
    assert gallery.info(verify=True)["chunks"] == 4
    assert torch.equal(gallery.search(rows(3, seed=1), k=5).rows, neighbors(rows(3, seed=1), rows(35), k=5)[1])


def test_existing_ids_are_refused_skipped_or_replaced(gallery):
    with pytest.raises(ValueError, match=r"1 of these ids .* 'id3'"):
        gallery.add(rows(2, seed=5), ["x", "x"], ["id3", "new"])
    assert len(gallery) == 30
    assert gallery.add(rows(2, seed=5), ["x", "x"], ["id3", "new"], existing="skip") == 1
    assert (len(gallery), gallery.labels[gallery.ids.index("id3")]) == (31, "c3")
    assert gallery.add(rows(1, seed=6), ["x"], ["id3"], existing="replace") == 1
    assert (len(gallery), gallery.labels[gallery.ids.index("id3")]) == (31, "x")
    assert gallery.search(rows(1, seed=6), k=1).ids == [["id3"]]
    with pytest.raises(ValueError, match="'a' is given twice"):
        gallery.add(rows(2), ["x", "x"], ["a", "a"])


def test_removed_items_are_gone_and_the_others_keep_their_scores(gallery):
    before = {match.id: match.similarity for match in gallery.search(rows(1, seed=1), k=30)[0]}
    assert gallery.remove(labels=["c1"]) == 6
    assert gallery.remove(ids=["id0", "id2"]) == 2
    after = {match.id: match.similarity for match in gallery.search(rows(1, seed=1), k=30)[0]}
    assert len(after) == len(gallery) == 22
    assert after == {name: before[name] for name in after}
    assert not {"id0", "id1", "id2"} & set(after)
    with pytest.raises(ValueError, match="no item with the id 'id0'"):
        gallery.remove(ids=["id5", "id0"])
    assert len(Gallery.open(gallery.folder)) == 22


def test_a_gallery_can_become_empty_and_grow_again(gallery):
    gallery.remove(labels=gallery.classes)
    assert (len(gallery), gallery.labels) == (0, [])
    with pytest.raises(ValueError, match="is empty"):
        gallery.search(rows(1))
    gallery.add(rows(2), ["a", "b"])
    assert gallery.search(rows(2), k=1).labels == [["a"], ["b"]]


def test_embeddings_of_another_model_are_refused(gallery):
    with pytest.raises(ValueError, match=r"model-a.*model-b.*cannot be compared"):
        gallery.search(rows(1), fingerprint="model-b")
    with pytest.raises(ValueError, match="cannot be compared"):
        gallery.add(rows(1), ["x"], fingerprint="model-b")
    gallery.search(rows(1), fingerprint="model-a")


def test_a_run_embeds_what_it_adds_and_searches(tmp_path):
    run = Run.open(feature_run())
    data = kinfold.data.load("features", feature_file())
    gallery = Gallery.create(tmp_path / "g", run=run)
    assert adding.add_dataset(gallery, data, run) == len(data)
    assert adding.add_dataset(gallery, data, run) == 0
    first = data.items[0]
    best = gallery.search(first, k=1, run=run)[0][0]
    assert (best.row, best.label) == (0, data.classes[int(data.labels[0])])
    assert best.similarity == pytest.approx(1)
    assert gallery.fingerprint == fingerprint_run(run)


def test_wrong_input_is_refused_and_changes_nothing(gallery, tmp_path):
    for call, message in [
        (lambda: gallery.add(rows(2), ["a"]), "2 embeddings and 1 labels"),
        (lambda: gallery.add(rows(2), "ab"), "must be a list"),
        (lambda: gallery.add(rows(2, dim=5), ["a", "b"]), "5 numbers"),
        (lambda: gallery.add(rows(1) * torch.nan, ["a"]), "NaN"),
        (lambda: gallery.add(rows(1), ["a"], existing="ignore"), "existing must be"),
        (lambda: gallery.search(rows(1), k=0), "at least 1"),
        (lambda: gallery.remove(), "ids or the labels"),
        (lambda: gallery.remove(ids=["id1"], labels=["c1"]), "ids or the labels"),
        (lambda: Gallery.open(tmp_path), "is not a gallery"),
        (
            lambda: Gallery.create(gallery.folder, dim=3),
            "is not empty: add to it with `kinfold gallery add`, or choose",
        ),
        (lambda: Gallery.create(gallery.folder.parent, dim=3), "is not empty: choose another folder"),
        (lambda: Gallery.create(tmp_path / "new"), "dim="),
        (lambda: Gallery.create(tmp_path / "new", dim=0), "at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert len(Gallery.open(gallery.folder)) == 30


def test_numbers_are_the_ids_of_items_without_one_and_are_not_used_again(tmp_path):
    gallery = Gallery.create(tmp_path / "g", dim=6)
    gallery.add(rows(3), [1, 2, 3])
    gallery.remove(ids=["2"])
    gallery.add(rows(1), torch.tensor([7]))
    assert (gallery.ids, gallery.labels) == (["0", "1", "3"], ["1", "2", "7"])


def test_every_flipped_bit_is_found(gallery):
    manifest = json.loads((gallery.folder / folder.MANIFEST).read_text())
    files = [manifest["chunks"][0][part]["file"] for part in ("vectors", "items")]
    for name in (*files, folder.MANIFEST):
        path = gallery.folder / name
        content = path.read_bytes()
        for position in np.linspace(0, len(content) - 1, 12).astype(int).tolist():
            path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
            with pytest.raises(ValueError, match=r"damaged|not valid JSON|not a text file|sha256|must be"):
                Gallery.open(gallery.folder).info(verify=True)
        path.write_bytes(content[:-3])
        with pytest.raises(ValueError, match=r"damaged|not valid JSON"):
            Gallery.open(gallery.folder).info(verify=True)
        path.write_bytes(content)
    Gallery.open(gallery.folder).verify()


def test_a_damaged_chunk_is_found_by_the_first_search(gallery):
    path = next(gallery.folder.glob("vectors-*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    opened = Gallery.open(gallery.folder)  # opening reads no vectors
    with pytest.raises(ValueError, match=rf"{path.name} is damaged"):
        opened.search(rows(1))


def test_links_are_not_followed(gallery, tmp_path):
    path = next(gallery.folder.glob("vectors-*"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="symbolic link"):
        Gallery.open(gallery.folder)


def test_an_open_gallery_keeps_what_it_shows_while_another_process_writes(gallery):
    reader = Gallery.open(gallery.folder)
    gallery.remove(labels=["c0", "c1", "c2", "c3"])
    assert len(reader) == 30
    assert len(reader.search(rows(1), k=30)[0]) == 30
    reader.refresh()
    assert len(reader) == 6
