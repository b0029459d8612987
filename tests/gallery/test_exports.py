"""Copies of a gallery give the same neighbors in the programs that they are for."""

import numpy as np
import pytest
import torch

from kinfold import Gallery
from kinfold.data.stored_embeddings import read_stored_embeddings
from kinfold.gallery.exports import EXPORTS
from tests.problems import generator


@pytest.fixture
def gallery(tmp_path):
    made = Gallery.create(tmp_path / "g", dim=8)
    made.add(
        torch.randn(50, 8, generator=generator(0)), [f"c{i % 5}" for i in range(50)], [f"id{i}" for i in range(50)]
    )
    made.remove(ids=["id3"])  # keys have a gap from now on
    return made


@pytest.fixture
def queries():
    return torch.randn(4, 8, generator=generator(1))


def read_ids(path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(f"{path}.parquet")
    return dict(zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True))


def test_parquet_is_read_back_with_labels(gallery, tmp_path):
    EXPORTS["parquet"](gallery, tmp_path / "copy.parquet")
    stored = read_stored_embeddings(tmp_path / "copy.parquet")
    assert stored.labels.tolist() == gallery.labels
    assert np.array_equal(stored.embeddings, gallery.embeddings().numpy())


def test_faiss_finds_the_same_items(gallery, queries, tmp_path):
    faiss = pytest.importorskip("faiss")
    EXPORTS["faiss"](gallery, tmp_path / "copy.faiss")
    index = faiss.read_index(str(tmp_path / "copy.faiss"))
    _, keys = index.search(queries.numpy(), 5)
    ids = read_ids(tmp_path / "copy.faiss")
    assert [[ids[key] for key in row] for row in keys.tolist()] == gallery.search(queries, k=5).ids


@pytest.mark.integration
def test_usearch_finds_the_same_items(gallery, queries, tmp_path):
    usearch = pytest.importorskip("usearch.index")
    EXPORTS["usearch"](gallery, tmp_path / "copy.usearch")
    index = usearch.Index.restore(str(tmp_path / "copy.usearch"))
    ids = read_ids(tmp_path / "copy.usearch")
    for query, expected in zip(queries.numpy(), gallery.search(queries, k=5).ids, strict=True):
        assert [ids[int(key)] for key in index.search(query, 5, exact=True).keys] == expected


@pytest.mark.integration
def test_lancedb_finds_the_same_items(gallery, queries, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    EXPORTS["lancedb"](gallery, tmp_path / "lance")
    table = lancedb.connect(str(tmp_path / "lance")).open_table("gallery")
    for query, expected in zip(queries.numpy(), gallery.search(queries, k=5).ids, strict=True):
        neighbors = table.search(query).distance_type("cosine").limit(5).to_arrow()
        assert neighbors["id"].to_pylist() == expected


@pytest.mark.integration
def test_qdrant_finds_the_same_items(gallery, queries, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    for _ in range(2):  # the second replaces the first
        EXPORTS["qdrant"](gallery, tmp_path / "qdrant")
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    for query, expected in zip(queries.tolist(), gallery.search(queries, k=5).ids, strict=True):
        points = client.query_points("gallery", query=query, limit=5).points
        assert [point.payload["id"] for point in points] == expected
    client.close()
