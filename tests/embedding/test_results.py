"""Results in a notebook: short reprs, tables and plots of searches, galleries and answers."""

import numpy as np
import pytest
import torch

from kinfold import Gallery, Run
from kinfold.audit import audit
from kinfold.data import Rows, create_dataset
from tests.cli.runs import feature_run, glyph_files, image_run
from tests.problems import generator


def test_a_run_is_searched_by_position_and_by_array():
    run = Run.open(feature_run())
    by_position = run.search(3, k=4)
    row = run.data("test").items[3]
    by_array = run.search(row, k=5)
    assert by_array.neighbors[0].index == 3  # the item itself
    assert [item.index for item in by_array.neighbors[1:]] == [item.index for item in by_position.neighbors]
    assert by_array.scores[1:] == pytest.approx(by_position.scores, abs=1e-6)
    assert repr(by_position).startswith("<SearchResult: 4 neighbors by similarity: ")
    assert len(by_position.table().splitlines()) == 5
    assert "<table>" in by_position._repr_html_()
    assert len(by_position.plot().axes) == 1
    with pytest.raises(ValueError, match="one query, got 2"):
        run.search(np.stack([row, row]))


def test_a_run_on_images_is_searched_by_path_and_by_picture():
    from PIL import Image

    run = Run.open(image_run())
    path = sorted(glyph_files().rglob("*.png"))[0]
    by_path = run.search(path, k=3, gallery=glyph_files())
    with Image.open(path) as picture:
        by_picture = run.search(picture.copy(), k=4, gallery=glyph_files())
    assert by_picture.scores[0] == pytest.approx(1.0, abs=1e-4)  # the file itself, which a path leaves out
    assert by_picture.scores[1:] == pytest.approx(by_path.scores, abs=1e-4)
    assert len(by_path.plot().axes) == 4


def test_galleries_and_their_answers(tmp_path):
    rows = torch.randn(60, 6, generator=generator(0))
    gallery = Gallery.create(tmp_path / "g", dim=6)
    gallery.add(rows[:20], ["<wren>"] * 15 + ["owl"] * 5)
    gallery.set_probes(rows[20:], [f"p{i // 4}" for i in range(40)], far=0.2)
    assert gallery.table().splitlines() == ["  items  class", "     15  <wren>", "      5  owl"]
    assert "&lt;wren&gt;" in gallery._repr_html_()
    matches, answers = gallery.search(rows[:3], k=2), gallery.identify(rows[:3])
    for result in (gallery, matches, answers):
        assert len(repr(result)) < 300
        assert "<table>" in result._repr_html_()
        assert len(result.plot().axes) == 1
    assert len(matches.table().splitlines()) == 7
    assert len(answers.table().splitlines()) == 4


def test_an_audit():
    rows = np.random.default_rng(0).normal(size=(40, 20)).astype(np.float32)
    rows[5] = rows[4]
    result = audit(create_dataset("rows", Rows(rows), np.arange(40) // 10, ["train"] * 40))
    assert "duplicate" in result.table().splitlines()[1]
    assert "<table>" in result._repr_html_()
    assert len(result.plot().axes) == 2
