"""A run shows itself: a short repr, a table of scores for terminals and notebooks, and curves."""

import sys

import pytest

from kinfold.training import Stopped, train
from kinfold.training.run import Run
from tests.training.tiny import dataset, recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(recipe(), tmp_path_factory.mktemp("runs") / "run", dataset=dataset())


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "unfinished"

    def interrupt(event):
        raise Stopped(15, event.step)

    with pytest.raises(Stopped):
        train(recipe(), folder, dataset=dataset(), callbacks=[interrupt])
    (folder / "log.jsonl").unlink(missing_ok=True)
    return Run.open(folder, dataset())


def test_the_repr_names_folder_loss_data_and_the_test_score(run):
    score = run.scores["test"]["map@r"]
    assert repr(run) == f"Run({str(run.folder)!r}, loss='margin', data='features', test map@r={score:.4f})"


def test_the_repr_marks_an_unfinished_run(unfinished):
    assert repr(unfinished).endswith("data='features', not finished)")
    assert unfinished._repr_html_().count("<table>") == 0
    with pytest.raises(ValueError, match="is not finished"):
        unfinished.table()


def test_the_table_has_score_start_and_gain_of_every_split(run):
    header, *rows = (line.split() for line in run.table().splitlines())
    columns = [word for split in ("validation", "test") for word in (split, split, "start", split, "gain")]
    assert header == ["metric", *columns]
    assert [row[0] for row in rows] == ["recall@1", "map@r"]
    scores = run.scores
    for name, *values in rows:
        for split, (value, start, gain) in {"validation": values[:3], "test": values[3:]}.items():
            assert value == f"{scores[split][name]:.4f}"
            assert start == f"{scores['start'][split][name]:.4f}"
            assert gain == f"{scores[split][name] - scores['start'][split][name]:+.4f}"


def test_a_notebook_shows_the_same_table(run):
    page = run._repr_html_()
    assert page.startswith("<code>Run(")
    assert page.count("<tr>") == 3
    assert f"<td>{run.scores['test']['recall@1']:.4f}</td>" in page


def test_the_plot_has_the_loss_and_the_evaluated_metrics(run):
    pytest.importorskip("matplotlib")
    loss_axes, metric_axes = run.plot().axes
    steps = [event["step"] for event in run.events if event["event"] == "step"]
    assert loss_axes.lines[0].get_xdata().tolist() == steps
    assert [line.get_label() for line in metric_axes.lines] == ["recall@1", "map@r", "selected step"]
    values = [event["map@r"] for event in run.events if event["event"] == "evaluation"]
    assert metric_axes.lines[1].get_ydata().tolist() == values


def test_without_a_log_there_is_nothing_to_plot(unfinished):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="has logged nothing yet"):
        unfinished.plot()


def test_without_matplotlib_the_error_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'Run.plot needs matplotlib: pip install "kinfold\[report\]"'):
        run.plot()
