"""`kinfold report` as a user types it."""

import json

import pytest

from kinfold.report.figures import style as drawing
from tests.cli.runs import feature_run, image_run, run


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(drawing, "DPI", 30)


def test_report_writes_a_page_and_figures(capsys, monkeypatch, tmp_path, quick):
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    code, printed, errors = run(capsys, monkeypatch, "report", feature_run(), "--out", page, "--figures", figures)
    assert code == 0, errors
    assert printed.splitlines()[-1] == str(page)
    assert printed.splitlines()[-2] == f"{figures}: {len([*figures.iterdir()])} files"
    assert "- no validation classes: the weights are those of the last step" in printed.splitlines()
    text = page.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "[bold]dog" in text
    assert str(tmp_path) not in text
    assert str(feature_run().parent) not in text


def test_json_lists_what_was_written_and_what_is_missing(capsys, monkeypatch, tmp_path):
    page = tmp_path / "page.html"
    code, printed, _ = run(capsys, monkeypatch, "report", image_run(), "--out", page, "--points", "30", "--json")
    assert code == 0
    summary = json.loads(printed)
    assert summary["page"] == str(page)
    assert summary["kind"] == "run"
    assert [(space["count"], space["shown"]) for space in summary["spaces"]] == [(124, 30)]
    assert any("one seed" in sentence for sentence in summary["missing"])
    assert summary["tables"][0]["rows"][0]["cells"]["recall@1"]["count"] == 1
    assert "data:image/" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["RUN", "--out", "page.pdf"], "--out writes an .html file, got 'page.pdf'"),
        (["RUN", "--out", "no/such/page.html"], "there is no folder no/such to write page.html to"),
        (["RUN", "--points", "1"], "at least 2 points"),
    ],
)
def test_invalid_input_is_refused(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = [feature_run() if argument == "RUN" else argument for argument in arguments]
    code, _, errors = run(capsys, monkeypatch, "report", *arguments)
    assert code == 2
    assert message in errors
    assert not [*tmp_path.iterdir()]
