"""An evaluation shows its values: per class, as text, in notebooks, as a table and as a plot."""

import sys

import numpy as np
import pytest
import torch

from kinfold.metrics import examine
from tests.metrics.embedding_sets import make_embeddings


def test_values_per_class_are_means_over_its_queries():
    x, labels = make_embeddings("clustered")
    evaluation = examine(x, [f"c{label}" for label in labels], metrics=["map@r"])
    for label in np.unique(labels):
        expected = float(evaluation.per_query["map@r"][torch.tensor(labels == label)].mean())
        assert evaluation.per_class("map@r")[f"c{label}"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="map@r"):
        evaluation.per_class("nmi")


def evaluation(**options):
    x, labels = make_embeddings("clustered")
    return examine(x, [f"<c{label}>" for label in labels], metrics=["recall@1", "map@r", "nmi"], **options)


def test_the_repr_is_one_short_line():
    x, labels = make_embeddings("clustered")
    result = examine(x, labels, metrics=["recall@1"])
    assert repr(result) == f"Evaluation(recall@1={result.values['recall@1']:.4f}; 260 queries, 20 classes)"
    many = examine(x, labels)
    assert "\n" not in repr(many)
    assert repr(many).count("=") == 4
    assert ", and 2 more; 260 queries, 20 classes)" in repr(many)


def test_the_repr_counts_queries_without_a_relevant_item():
    result = examine(torch.eye(3), [0, 0, 1], metrics=["recall@1"])
    assert repr(result).endswith("; 3 queries, 1 without a relevant item, 2 classes)")
    assert repr(examine(torch.eye(2), [0, 0], metrics=["recall@1"])).endswith("; 2 queries, 1 class)")


def test_a_table_has_a_row_for_each_metric_and_prints_aligned():
    result = evaluation(intervals="classes", level=0.9)
    table = result.table()
    assert [row.name for row in table] == ["recall@1", "map@r", "nmi"]
    assert [row.value for row in table] == [*result.values.values()]
    assert [row.interval for row in table] == [result.intervals["recall@1"], result.intervals["map@r"], None]
    lines = str(table).splitlines()
    assert lines[0].split() == ["metric", "value", "90", "%", "interval"]
    low, high = result.intervals["recall@1"]
    assert lines[1].split() == ["recall@1", f"{result.values['recall@1']:.4f}", f"{low:.4f}", "to", f"{high:.4f}"]
    assert lines[3].split() == ["nmi", f"{result.values['nmi']:.4f}"]
    assert len({line.index(".") for line in lines[1:]}) == 1, "values are aligned"


def test_a_table_without_intervals_has_two_columns():
    table = evaluation().table()
    assert str(table).splitlines()[0].split() == ["metric", "value"]
    assert table[0].interval is None


def test_notebooks_show_a_table():
    result = evaluation(intervals="queries")
    html = result._repr_html_()
    assert html.startswith("<p>260 queries, 20 classes</p><table>")
    assert html.count("<tr>") == 4
    assert f"<td>{result.values['map@r']:.4f}</td>" in html
    assert result.table()._repr_html_() in html


def test_a_plot_has_a_bar_for_each_metric_and_a_line_for_each_interval():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    result = evaluation(intervals="classes")
    axes = result.plot()
    try:
        assert [bar.get_width() for bar in axes.patches] == [*result.values.values()]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["recall@1", "map@r", "nmi"]
        assert [tuple(line.get_xdata()) for line in axes.lines] == [*result.intervals.values()]
        assert "95 % interval" in axes.get_xlabel()
    finally:
        pyplot.close(axes.figure)
    figure, axes = pyplot.subplots()
    assert evaluation().plot(axes) is axes
    pyplot.close(figure)


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'Evaluation.plot needs matplotlib: pip install "kinfold\[report\]"'):
        evaluation().plot()
