"""Figures and tables as files for papers: all of them, legible in grey, with any name."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from kinfold.report import collect_content, write_figures
from kinfold.report.charts import Axis, Chart, Series
from kinfold.report.figures import style as drawing
from kinfold.report.figures.charts import draw_chart
from kinfold.report.figures.files import draw_figures
from kinfold.report.figures.space_figures import SpriteSheets
from kinfold.report.figures.style import SeriesStyle, escape_text, render_figure, use_style
from kinfold.report.figures.tables import format_tables
from tests.report.runs import NAMES, feature_run, image_run


def line_chart(title, x, y, series):
    return Chart("", title, Axis(x), Axis(y), [series])


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
    with use_style():
        made = render_figure(draw_chart(line_chart("", "x", "y", Series("a", [1, 2], [1, 2], 0))), "png")
    assert int.from_bytes(made[16:20], "big") == round(drawing.SIZE[0] * 200)


def test_no_two_lines_look_alike_in_grey():
    looks = [SeriesStyle.create(place) for place in range(55)]
    assert len({(str(look.dash), look.marker) for look in looks}) == 55
    for one, other in itertools.pairwise(looks):
        assert one.dash != other.dash
        assert one.marker != other.marker


def test_the_same_content_gives_the_same_file():
    chart = line_chart("t", "x", "y", Series("a", [1, 2, 3], [1, None, 2], 0, [0, None, 1], [2, None, 3]))
    with use_style():
        for kind in ("svg", "png"):
            assert render_figure(draw_chart(chart), kind) == render_figure(draw_chart(chart), kind)


@pytest.mark.parametrize("name", [*NAMES, "$", "\\frac{", "a_b^c", "%", "\udcff", "", "x" * 5000])
def test_any_name_can_be_drawn(name):
    with use_style():
        made = render_figure(draw_chart(line_chart(name, name, name, Series(name, [1, 2], [1, 2], 0))), "svg")
    ElementTree.fromstring(made)
    assert len(escape_text("x" * 5000)) < 100


def test_a_point_between_gaps_is_seen():
    series = Series("a", [0, 1, 2, 3, 4], [None, None, 1.0, None, None], 0)
    with use_style():
        figure = draw_chart(line_chart("", "x", "y", series))
    (line,) = figure.axes[0].lines
    assert line.get_markevery() == 1


def test_axes_of_shares_end_at_one_and_steps_are_whole():
    with use_style():
        step, near_one = Axis("step", integer=True), [Series("a", [3, 4], [0.9, 1.0], 0)]
        figure = draw_chart(Chart("", "", step, Axis("recall@1", limits=(0, 1)), near_one))
        plain_one = draw_chart(Chart("", "", step, Axis("loss"), near_one))
        below_zero = [Series("a", [3, 4], [-0.1, 0.2], 0)]
        beyond = draw_chart(Chart("", "", step, Axis("ami", limits=(0, 1)), below_zero))
    assert figure.axes[0].get_ylim()[1] == 1.0
    assert plain_one.axes[0].get_ylim()[1] > 1.0
    assert beyond.axes[0].get_ylim()[0] < -0.1
    ticks = figure.axes[0].get_xticks()
    assert (ticks == ticks.round()).all()


def test_losses_of_different_size_are_drawn_on_a_logarithmic_axis(content):
    chart = content["charts"]["training"][0]
    chart = {**chart, "y": {**chart["y"], "scale": "log"}}
    with use_style():
        ((_, figure),) = draw_figures({"charts": {"training": [chart]}, "spaces": []})
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_ylabel() == "loss, log scale"


def test_queries_are_drawn_from_the_sheets(tmp_path):
    run = image_run(tmp_path)
    made = collect_content(run.folder)
    tiles = SpriteSheets(made["thumbnails"])
    data = run.data("test")
    (space,) = made["spaces"]
    query = space["worst"][0]["query"]
    place = data.items.paths.tolist().index(query["text"])
    with Image.open(data.items[place].path) as picture:
        expected = np.asarray(picture.convert("L").resize((48, 48), Image.Resampling.BICUBIC), dtype=float)
    found = np.asarray(Image.fromarray(tiles.get_tile(query["thumbnail"])).convert("L"), dtype=float)
    assert np.corrcoef(found.flatten(), expected.flatten())[0, 1] > 0.9
    with use_style():
        titles = [title for title, _ in draw_figures(made)]
    assert any(title.startswith("best queries") for title in titles)
    assert tiles.get_tile(-1) is None


def test_tables_say_what_the_page_says(content):
    (name, texts), *_ = format_tables(content)
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
    compared |= {"significant": True, "column": "recall@1"}
    table = {"caption": "t", "columns": [column], "rows": [row, other], "notes": ["50 % & more"]}
    found = dict(format_tables({"tables": [{**table, "comparisons": [compared]}]}))
    assert r"| a\_b | **50.0 ± 1.0** | 51.2 |" in found["table t"]["md"]
    assert "% 50 % & more" in found["table t"]["tex"]
    assert r"| a\_b - c | +10.00 ± 2.00 | 0.001 | 0.001 * |" in found["comparisons t"]["md"]
    assert r"a\_b - c & +10.00 $\pm$ 2.00 & 0.001 & 0.001 {*} \\" in found["comparisons t"]["tex"]
    assert "| difference | recall@1, percentage points | p | p, Holm |" in found["comparisons t"]["md"]
    unlike = {**compared, "significant": False, "p": 0.1, "adjusted": None}
    told = dict(format_tables({"tables": [{**table, "comparisons": [unlike]}]}))["comparisons t"]["md"]
    assert "| 0.100 | - |" in told
    assert "*" not in told
    assert "no difference is significant" in told
