"""Charts drawn by matplotlib: any name, gaps, limits and log scales."""

import xml.etree.ElementTree as ElementTree

import pytest

from kinfold.report.charts import Axis, Chart, Series
from kinfold.report.figures import style as drawing
from kinfold.report.figures.charts import draw_chart
from kinfold.report.figures.files import draw_figures
from kinfold.report.figures.style import escape_text, render_figure, use_style
from tests.report.runs import NAMES


def line_chart(title, x, y, series):
    return Chart("", title, Axis(x), Axis(y), [series])


def test_images_have_two_hundred_dots_per_inch():
    with use_style():
        data = render_figure(draw_chart(line_chart("", "x", "y", Series("a", [1, 2], [1, 2], 0))), "png")
    assert int.from_bytes(data[16:20], "big") == round(drawing.SIZE[0] * 200)


def test_the_same_content_gives_the_same_file():
    chart = line_chart("t", "x", "y", Series("a", [1, 2, 3], [1, None, 2], 0, [0, None, 1], [2, None, 3]))
    with use_style():
        for kind in ("svg", "png"):
            assert render_figure(draw_chart(chart), kind) == render_figure(draw_chart(chart), kind)


@pytest.mark.parametrize("name", [*NAMES, "$", "\\frac{", "a_b^c", "%", "\udcff", "", "x" * 5000])
def test_any_name_can_be_drawn(name):
    with use_style():
        data = render_figure(draw_chart(line_chart(name, name, name, Series(name, [1, 2], [1, 2], 0))), "svg")
    ElementTree.fromstring(data)
    assert len(escape_text("x" * 5000)) < 100


def test_a_point_between_gaps_is_seen():
    series = Series("a", [0, 1, 2, 3, 4], [None, None, 1.0, None, None], 0)
    with use_style():
        figure = draw_chart(line_chart("", "x", "y", series))
    (line,) = figure.axes[0].lines
    assert line.get_markevery() == 1


def test_axes_of_fractions_end_at_one_and_steps_are_integers():
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


def test_losses_of_different_size_are_drawn_on_a_log_axis(content):
    chart = content["charts"]["training"][0]
    chart = {**chart, "y": {**chart["y"], "scale": "log"}}
    with use_style():
        ((_, figure),) = draw_figures({"charts": {"training": [chart]}, "spaces": []})
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_ylabel() == "loss, log scale"
