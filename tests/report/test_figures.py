"""Figures and tables as files for papers: all of them, legible in grey, with any name."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from kinfold.report.content import collect_content
from kinfold.report.figures import charts as drawing
from kinfold.report.figures.charts import Look, image, lines, plain, style
from kinfold.report.figures.files import figures, tables, write_figures
from kinfold.report.figures.space_figures import Tiles
from tests.report.runs import NAMES, feature_run, image_run


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return collect_content(feature_run(tmp_path_factory.mktemp("figures")).folder)


def test_every_figure_is_written_in_both_formats_and_every_table_in_both(content, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "DPI", 40)  # two hundred take long
    before = dict(matplotlib.rcParams)
    written = write_figures(content, tmp_path / "new" / "folder")
    assert dict(matplotlib.rcParams) == before
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(written)
    names = {suffix: {path.stem for path in written if path.suffix == suffix} for suffix in (".png", ".svg", ".md")}
    assert names[".png"] == names[".svg"]
    kinds = ["training-loss", "training-validation", "map", "confused", "similarities", "roc", "precision-recall"]
    kinds += [
        "recall-at-k",
        "spectrum-whole",
        "spectrum-classes",
        "pair-weights",
        "rho-at-1",
        "uniformity",
        "alignment",
    ]
    for kind in kinds:
        assert any(name.startswith(kind) for name in names[".png"]), kind
    assert names[".md"] == {path.stem for path in written if path.suffix == ".tex"}
    for path in written:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert np.asarray(picture.convert("L")).std() > 1


def test_pictures_have_two_hundred_dots_per_inch():
    with style():
        made = image(lines("", "x", "y", [{"name": "a", "x": [1, 2], "y": [1, 2]}]), "png")
    assert int.from_bytes(made[16:20], "big") == round(drawing.SIZE[0] * 200)


def test_no_two_lines_look_alike_in_grey():
    looks = [Look.number(place) for place in range(55)]
    assert len({(str(look.dash), look.marker) for look in looks}) == 55
    for one, other in itertools.pairwise(looks):
        assert one.dash != other.dash
        assert one.marker != other.marker


def test_the_same_content_gives_the_same_file():
    series = [{"name": "a", "x": [1, 2, 3], "y": [1, None, 2], "low": [0, None, 1], "high": [2, None, 3]}]
    with style():
        for kind in ("svg", "png"):
            assert image(lines("t", "x", "y", series), kind) == image(lines("t", "x", "y", series), kind)


@pytest.mark.parametrize("name", [*NAMES, "$", "\\frac{", "a_b^c", "%", "\udcff", "", "x" * 5000])
def test_any_name_can_be_drawn(name):
    with style():
        made = image(lines(name, name, name, [{"name": name, "x": [1, 2], "y": [1, 2]}]), "svg")
    ElementTree.fromstring(made)
    assert len(plain("x" * 5000)) < 100


def test_a_point_between_gaps_is_seen():
    series = {"x": [0, 1, 2, 3, 4], "y": [None, None, 1.0, None, None]}
    with style():
        figure = lines("", "x", "y", [{"name": "a", **series}])
    (line,) = figure.axes[0].lines
    assert line.get_markevery() == 1


def test_axes_of_shares_end_at_one_and_steps_are_whole():
    with style():
        figure = lines("", "step", "recall@1", [{"name": "a", "x": [3, 4], "y": [0.9, 1.0]}], shares=True, whole_x=True)
        plain_one = lines("", "step", "loss", [{"name": "a", "x": [3, 4], "y": [0.9, 1.0]}])
        beyond = lines("", "step", "ami", [{"name": "a", "x": [3, 4], "y": [-0.1, 0.2]}], shares=True)
    assert figure.axes[0].get_ylim()[1] == 1.0
    assert plain_one.axes[0].get_ylim()[1] > 1.0
    assert beyond.axes[0].get_ylim()[0] < -0.1
    ticks = figure.axes[0].get_xticks()
    assert (ticks == ticks.round()).all()


def test_losses_of_different_size_are_drawn_on_a_logarithmic_axis(content):
    training = [{**content["training"][0], "log_y": True}]
    empty = {"spaces": [], "diagnostics": {"columns": [], "points": []}, "weights": []}
    with style():
        ((_, figure),) = figures({"training": training, **empty})
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_ylabel() == "loss, log scale"


def test_queries_are_drawn_from_the_sheets(tmp_path):
    run = image_run(tmp_path)
    made = collect_content(run.folder)
    tiles = Tiles(made["thumbnails"])
    data = run.data("test")
    (space,) = made["spaces"]
    query = space["worst"][0]["query"]
    place = data.items.paths.tolist().index(query["text"])
    with Image.open(data.items[place].path) as picture:
        expected = np.asarray(picture.convert("L").resize((48, 48), Image.Resampling.BICUBIC), dtype=float)
    found = np.asarray(Image.fromarray(tiles.tile(query["thumbnail"])).convert("L"), dtype=float)
    assert np.corrcoef(found.flatten(), expected.flatten())[0, 1] > 0.9
    with style():
        titles = [title for title, _ in figures(made)]
    assert any(title.startswith("best queries") for title in titles)
    assert tiles.tile(-1) is None


def test_tables_say_what_the_page_says(content):
    (name, texts), *_ = tables(content)
    cell = content["tables"][0]["rows"][0]["cells"]["recall@1"]
    assert name == "table rows: test classes"
    for kind in ("md", "tex"):
        assert f"{100 * cell['mean']:.1f}" in texts[kind]
        assert "one repeat, so no interval" in texts[kind]
    assert re.search(r"\\begin\{tabular\}", texts["tex"])


def test_tables_of_comparisons_have_signs_and_stars():
    cell = {"mean": 0.5, "half_width": 0.01, "count": 3, "published": 51.2, "bold": True, "note": ""}
    row = {"method": "a_b", "cells": {"recall@1": cell}, "command": "", "configuration": "", "quoted": None}
    other = {**row, "method": "c", "cells": {"recall@1": {**cell, "bold": False, "mean": 0.4}}}
    column = {"key": "recall@1", "title": "recall@1, %", "factor": 100, "decimals": 1, "smaller_is_better": False}
    compared = {"first": "a_b", "second": "c", "difference": 0.1, "half_width": 0.02, "p": 0.001, "adjusted": 0.001}
    compared |= {"told_apart": True, "column": "recall@1"}
    table = {"caption": "t", "columns": [column], "rows": [row, other], "notes": ["50 % & more"]}
    found = dict(tables({"tables": [{**table, "comparisons": [compared]}]}))
    assert r"| a\_b | **50.0 ± 1.0** | 51.2 |" in found["table t"]["md"]
    assert "% 50 % & more" in found["table t"]["tex"]
    assert r"| a\_b - c | +10.00 ± 2.00 | 0.001 | 0.001 * |" in found["comparisons t"]["md"]
    assert r"a\_b - c & +10.00 $\pm$ 2.00 & 0.001 & 0.001 {*} \\" in found["comparisons t"]["tex"]
    assert "| difference | recall@1, percentage points | p | p, Holm |" in found["comparisons t"]["md"]
    unlike = {**compared, "told_apart": False, "p": 0.1, "adjusted": None}
    told = dict(tables({"tables": [{**table, "comparisons": [unlike]}]}))["comparisons t"]["md"]
    assert "| 0.100 | - |" in told
    assert "*" not in told
    assert "no two are told apart" in told
