"""One description of a chart is drawn by the page and by matplotlib."""

import json
from dataclasses import asdict

import pytest

from kinfold.report import write_page
from kinfold.report.charts import Axis, Chart, Series
from kinfold.report.figures.charts import draw_chart
from kinfold.report.figures.style import use_style
from tests.report import fake_content
from tests.report.browser_pages import open_page

LINES = [
    Series("first", [1, 2, 3], [0.1, None, 0.3], 0, [0, None, 0.2], [0.2, None, 0.4]),
    Series("b", [1, 3], [1, 2], 9),
]
BARS = [Series("pairs", [0, 1, 2], [0.25, 0.75], "positive"), Series("others", [0, 1, 2], [0.5, 0.5], "negative")]
POINTS = [Series("first", [0.2], [0.5], 0), Series("second", [0.3], [0.6], 1), Series("third", [0.4], [0.7], 2)]
CHARTS = [
    Chart("lines", "a line", Axis("step", integer=True), Axis("value", "log"), LINES, note="with gaps"),
    Chart("bars", "bars", Axis("similarity"), Axis("share", limits=(0, 1), include_zero=True), BARS, "histogram"),
    Chart("points", "points", Axis("density"), Axis("recall@1", limits=(0, 1)), POINTS, "scatter", subject="glyphs"),
]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.kind)
def test_a_chart_survives_json(chart):
    restored = Chart.from_dict(json.loads(json.dumps(asdict(chart))))
    assert json.dumps(asdict(restored)) == json.dumps(asdict(chart))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.kind)
def test_the_page_and_matplotlib_draw_the_same_series_and_labels(chart, browser, folder):
    content = fake_content.make_empty()
    content["charts"]["training"] = [asdict(chart)]
    with use_style():
        (axes,) = draw_chart(chart).axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [series.name for series in chart.series]
    labels = [axes.get_xlabel(), axes.get_ylabel()]
    with open_page(browser, write_page(content, folder / f"{chart.name}.html")) as page:
        figure = page.locator("#training figure")
        assert sorted(figure.locator("text.label").all_text_contents()) == sorted(labels)
        legend = figure.locator("svg text.name" if chart.kind == "scatter" else ".legend button")
        assert [text.strip() for text in legend.all_text_contents()] == names
        caption = figure.locator("figcaption").inner_text()
        assert all(text in caption for text in (chart.title, chart.subject, chart.note))
        drawn = figure.locator("svg circle.method" if chart.kind == "scatter" else ".plot > svg path.line")
        assert drawn.count() == len(chart.series)
