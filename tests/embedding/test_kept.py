"""Embeddings that a run keeps: each image passes the network once."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.data import ImageFiles, Rows, create_dataset
from kinfold.embedding import kept
from kinfold.embedding.kept import KeptEmbeddings, embed_items
from kinfold.training import Run
from tests.cli.runs import feature_run, image_run


@pytest.fixture
def run(tmp_path):
    shutil.copytree(image_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    return Run.open(tmp_path / "run")


@pytest.fixture
def embedded(monkeypatch):
    """The number of items of each call of the network."""
    counts, embed = [], Run.embed

    def embed_and_count(self, things, progress=None):
        counts.append(len(things))
        return embed(self, things, progress)

    monkeypatch.setattr(Run, "embed", embed_and_count)
    return counts


@pytest.fixture
def photos(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(6):
        pixels = generator.integers(0, 255, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return ImageFiles(tmp_path, [f"{number}.png" for number in range(6)])


def dataset(items, classes="a"):
    return create_dataset("photos", items, [*(classes * len(items))], ["test"] * len(items))


def test_only_images_that_are_not_kept_pass_the_network(run, photos, embedded):
    first = embed_items(run, dataset(photos.take(np.array([4, 1]))))
    rows = embed_items(run, dataset(photos, "b"))  # classes do not matter
    assert embedded == [2, 4]
    expected = run.embed(dataset(photos))
    torch.testing.assert_close(rows, expected)
    assert torch.equal(rows[[4, 1]], first)
    embedded.clear()
    backwards = np.arange(6)[::-1].copy()
    assert torch.equal(embed_items(run, dataset(photos.take(backwards))), rows[torch.from_numpy(backwards)])
    assert embedded == []


def test_an_image_that_has_changed_passes_the_network_again(run, photos, embedded):
    before = embed_items(run, dataset(photos))
    Image.new("L", (28, 28), 200).save(photos[2].path)
    after = embed_items(run, dataset(photos))
    assert embedded == [6, 1]
    assert (before != after).any(dim=1).tolist() == [number == 2 for number in range(6)]


def test_a_part_of_an_image_is_another_item(run, photos, embedded):
    boxes = np.array([[-1, -1, -1, -1], [2, 2, 20, 20]])
    embed_items(run, dataset(photos))
    embed_items(run, dataset(ImageFiles(photos.root, photos.paths[:2], boxes)))
    assert embedded == [6, 1]


def test_images_in_memory_are_known_by_their_content(run, photos, embedded):
    pixels = np.stack([np.asarray(Image.open(photos[number].path)) for number in (0, 1)])
    rows = embed_items(run, dataset(Rows(pixels)))
    assert torch.equal(embed_items(run, dataset(Rows(pixels[::-1].copy()))), rows.flip(0))
    assert embedded == [2]


def test_the_oldest_are_dropped_where_they_are_too_many(run, photos, embedded, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_NUMBERS", 2 * run.config.model.dim)
    for items in ([0, 1, 2], [3], [1, 2, 3], [0]):
        embed_items(run, dataset(photos.take(np.array(items))))
    assert embedded == [3, 1, 1]  # 0 was dropped for 3 and 1 and 2 stayed


def test_what_is_only_looked_up_is_not_kept(run, photos, embedded):
    store = KeptEmbeddings(run)
    for _ in range(2):
        store.embed(dataset(photos), keep=False)
    assert embedded == [6, 6]
    assert not (run.folder / "cache").exists()


def test_features_are_not_kept_and_other_kinds_of_items_are_refused(photos, embedded):
    run = Run.open(feature_run())
    features = run.data("test")
    for _ in range(2):
        embed_items(run, features)
    assert embedded == [len(features)] * 2
    with pytest.raises(ValueError, match="embeds features, but photos holds images"):
        embed_items(run, dataset(photos))


def test_embeddings_of_other_weights_are_not_used(run, photos, embedded):
    embed_items(run, dataset(photos))
    state = run.run_folder.read_weights(run.run_folder.model)
    weights = {name: 2 * value if value.is_floating_point() else value for name, value in state["model"].items()}
    run.run_folder.finish(state["step"], weights, run.scores)
    embed_items(run, dataset(photos))
    assert embedded == [6, 6]
