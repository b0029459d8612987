"""`kinfold list` shows every name, and describes one with its arguments."""

import json
import re

import pytest

import kinfold
from kinfold import registry
from kinfold.registry import documentation
from tests.cli.runs import run


def test_list_prints_kinds_and_names(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list", "metrics")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == kinfold.list("metrics")
    code, out, _ = run(capsys, monkeypatch, "list", "--json")
    assert json.loads(out)["miners"] == kinfold.list("miners")
    code, _, errors = run(capsys, monkeypatch, "list", "metric")
    assert code == 2
    assert "did you mean 'metrics'" in errors


def test_a_name_is_described_with_its_paper_and_its_arguments(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list", "losses", "triplet")
    assert code == 0
    assert out.startswith(
        "Triplet loss: every positive nearer than every negative by a margin (Schroff et al., CVPR 2015)."
    )
    assert "squared Euclidean distances of unit vectors" in out
    assert re.search(r"^  margin: float = 0\.2\n(      .*\n)?  squared: bool = true\n", out, flags=re.MULTILINE)
    code, out, _ = run(capsys, monkeypatch, "list", "sets", "kl", "--json")
    description = json.loads(out)
    gamma = description["options"].pop("gamma")
    assert (gamma["type"], gamma["default"]) == ("float | Tensor", None)
    assert not description["options"]
    assert ">>>" not in description["text"]


@pytest.mark.parametrize("kind", registry.kinds())
def test_the_list_of_a_kind_has_one_line_per_name(kind, capsys, monkeypatch):
    _, out, _ = run(capsys, monkeypatch, "list", kind)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert [*lines] == kinfold.list(kind)
    for name, summary in lines.items():
        _, text, _ = run(capsys, monkeypatch, "list", kind, name)
        assert " ".join(text.removeprefix("#").split()).startswith(summary)


def test_a_plugin_is_listed_with_its_summary(tmp_path, own_names, capsys, monkeypatch):
    text = 'import kinfold\n\n@kinfold.register("miners", "mine")\ndef mine():\n    """Mine alone."""\n'
    (tmp_path / "own_miner.py").write_text(text)
    _, out, _ = run(capsys, monkeypatch, "list", "miners", "--plugin", tmp_path / "own_miner.py")
    assert out.splitlines()[-1].split(maxsplit=1) == ["mine", "Mine alone."]
    registry.register("miners", "elsewhere", "no_such_package:Miner")
    _, out, _ = run(capsys, monkeypatch, "list", "miners")
    assert out.splitlines()[-1] == "elsewhere"


def test_a_recipe_and_a_table_are_printed_as_files(capsys, monkeypatch):
    _, out, _ = run(capsys, monkeypatch, "list", "recipes", "images")
    assert "[model]" in out
    assert "kinfold train images --root" in out
    _, out, _ = run(capsys, monkeypatch, "list", "tables", "dro/table1")
    assert 'source = "Table 1"' in out


@pytest.mark.parametrize(
    ("kind", "name", "suggestion"),
    [
        ("losses", "triplt", "did you mean 'triplet'"),
        ("recipes", "imges", "did you mean 'images'"),
        ("tables", "dro/table11", "did you mean 'dro/table1'"),
        ("loses", "triplet", "did you mean 'losses'"),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(kind, name, suggestion, capsys, monkeypatch):
    code, _, errors = run(capsys, monkeypatch, "list", kind, name)
    assert code == 2
    assert f"\nhelp: {suggestion}" in errors


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if kind not in ("recipes", "tables")])
def test_every_name_has_a_description(kind, capsys, monkeypatch):
    for name in kinfold.list(kind):
        code, out, _ = run(capsys, monkeypatch, "list", kind, name)
        assert code == 0
        assert "has no docstring" not in out, name
        assert len(out.split()) > 6, name


def test_listing_one_name_does_not_import_the_others(monkeypatch, capsys):
    resolved = []
    resolve = registry.resolve
    monkeypatch.setattr(documentation, "resolve", lambda kind, name: resolved.append(name) or resolve(kind, name))
    run(capsys, monkeypatch, "list", "miners", "hard")
    assert resolved == ["hard"]
