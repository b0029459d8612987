"""`kinfold list`: every name, and what stands under it."""

import json

import pytest

import kinfold
from kinfold import registry
from tests.cli.runs import run


def test_list(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list", "metrics")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == kinfold.list("metrics")
    code, out, _ = run(capsys, monkeypatch, "list", "--json")
    assert json.loads(out)["miners"] == kinfold.list("miners")
    code, _, errors = run(capsys, monkeypatch, "list", "metric")
    assert code == 2
    assert "did you mean 'metrics'" in errors


def test_a_name_is_told_with_its_paper_and_its_options(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "list", "losses", "triplet")
    assert code == 0
    assert out.startswith("Triplet: every positive nearer than every negative by a margin (Schroff et al., CVPR 2015).")
    assert "Squared Euclidean distances of unit vectors" in out
    assert "  margin     0.2\n  squared    true\n" in out
    code, out, _ = run(capsys, monkeypatch, "list", "sets", "kl", "--json")
    found = json.loads(out)
    assert found["options"] == {"gamma": "needed"}
    assert ">>>" not in found["text"]


@pytest.mark.parametrize("kind", registry.kinds())
def test_every_name_has_a_line_of_its_own_in_the_list(kind, capsys, monkeypatch):
    _, out, _ = run(capsys, monkeypatch, "list", kind)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert [*lines] == kinfold.list(kind)
    for name, told in lines.items():
        _, text, _ = run(capsys, monkeypatch, "list", kind, name)
        assert " ".join(text.removeprefix("#").split()).startswith(told)


def test_a_plugin_tells_its_own_line(tmp_path, own_names, capsys, monkeypatch):
    text = 'import kinfold\n\n@kinfold.register("miners", "mine")\ndef mine():\n    """Mine alone."""\n'
    (tmp_path / "own_miner.py").write_text(text)
    _, out, _ = run(capsys, monkeypatch, "list", "miners", "--plugin", tmp_path / "own_miner.py")
    assert out.splitlines()[-1].split(maxsplit=1) == ["mine", "Mine alone."]
    registry.register("miners", "elsewhere", "no_such_package:Miner")
    _, out, _ = run(capsys, monkeypatch, "list", "miners")
    assert out.splitlines()[-1] == "elsewhere"


def test_a_recipe_and_a_table_are_shown_as_they_are(capsys, monkeypatch):
    _, out, _ = run(capsys, monkeypatch, "list", "recipes", "images")
    assert "[model]" in out
    assert "kinfold train images --root" in out
    _, out, _ = run(capsys, monkeypatch, "list", "tables", "dro/table1")
    assert 'source = "Table 1"' in out


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("losses", "triplt", "did you mean 'triplet'"),
        ("recipes", "imges", "did you mean 'images'"),
        ("tables", "dro/table11", "did you mean 'dro/table1'"),
        ("loses", "triplet", "did you mean 'losses'"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(kind, name, told, capsys, monkeypatch):
    code, _, errors = run(capsys, monkeypatch, "list", kind, name)
    assert code == 2
    assert told in errors


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if kind not in ("recipes", "tables")])
def test_every_name_says_what_it_is(kind, capsys, monkeypatch):
    for name in kinfold.list(kind):
        code, out, _ = run(capsys, monkeypatch, "list", kind, name)
        assert code == 0
        assert "has no docstring" not in out, name
        assert len(out.split()) > 6, name


def test_listing_one_name_does_not_import_the_others(monkeypatch, capsys):
    looked_at = []
    resolve = registry.resolve
    monkeypatch.setattr(registry, "resolve", lambda kind, name: looked_at.append(name) or resolve(kind, name))
    run(capsys, monkeypatch, "list", "miners", "hard")
    assert looked_at == ["hard"]
