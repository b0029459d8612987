"""Names from files are printed as text, whatever control codes or markup they contain."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.table import Table

import kinfold
from kinfold.cli.console import Console
from kinfold.cli.terminal import escape
from kinfold.training import train

from .runs import SHORT, run

EVIL = "\x1b[2J\x1b]0;owned\x07wren\x9b31m\u202e"
MARKUP = "[bold]x[/bold] :cat:"
SHOWN = r"\x1b[2J\x1b]0;owned\x07wren\x9b31m\u202e"


@pytest.fixture(scope="module")
def evil_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("evil") / "rows.npz"
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    names = np.array(["ant", "bee", "cat", EVIL, MARKUP, "fox"])[labels]
    rows = draw.normal(size=(6, 12))[labels] + 0.5 * draw.normal(size=(48, 12))
    np.savez(path, embeddings=rows.astype(np.float32), labels=names, split=np.where(labels < 3, "train", "test"))
    return path


@pytest.fixture(scope="module")
def evil_run(evil_file, tmp_path_factory):
    data = {"name": "features", "root": str(evil_file), "validation": 0.0}
    sampler = {"name": "spc", "batch_size": 12, "per_class": 4}
    recipe = {**SHORT, "data": data, "model": {"dim": 4}, "sampler": sampler, "training": {"steps": 2}}
    return train(recipe, tmp_path_factory.mktemp("evil") / "run").folder


def assert_no_control_codes(*texts):
    """No control character except line breaks."""
    for text in texts:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_search_prints_class_names_as_text(capsys, monkeypatch, evil_run):
    code, output, errors = run(capsys, monkeypatch, "search", evil_run, "#0", "--k", "20")
    assert code == 0, errors
    assert_no_control_codes(output, errors)
    assert SHOWN in output
    assert MARKUP in output


def test_evaluate_prints_class_names_as_text(capsys, monkeypatch, evil_file):
    code, output, errors = run(capsys, monkeypatch, "evaluate", evil_file, "--per-class", "recall@1")
    assert code == 0, errors
    assert_no_control_codes(output, errors)
    assert SHOWN in output
    assert MARKUP in output


def test_errors_and_json_hold_no_control_codes(capsys, monkeypatch, evil_file, tmp_path):
    _, output, errors = run(capsys, monkeypatch, "evaluate", evil_file, "--where", f"labels={EVIL}?")
    assert_no_control_codes(output, errors)
    assert SHOWN in errors
    _, output, errors = run(capsys, monkeypatch, "evaluate", evil_file, "--per-class", "recall@1", "--json")
    assert_no_control_codes(output, errors)
    assert json.dumps(EVIL) in output
    folder = tmp_path / "a\x1b[31m[red]"
    folder.mkdir()
    (folder / "1.png").write_text("no image")
    Image.new("L", (4, 4)).save(folder / "2.png")
    code, output, errors = run(capsys, monkeypatch, "data", "check", "folder", "--root", tmp_path)
    assert code == 1
    assert_no_control_codes(output, errors)
    assert r"a\x1b[31m[red]" in output


def test_a_console_keeps_its_own_colors_and_escapes_those_in_names(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = Console(file=io.StringIO())
    table = Table("class", title="\x1b[5mtitle")
    table.add_row("\x1b[31mred [green]")
    console.print(table)
    console.print("plain \x1b[2K", style="bold")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1m" in text
    assert not any(code in text for code in ("\x1b[31m", "\x1b[5m", "\x1b[2K"))
    assert r"\x1b[31mred [green]" in text


def test_line_breaks_tabs_and_letters_of_any_script_are_kept():
    text = "wren\trobin\n\u0436\u043a 中 é 🐦"
    assert escape(text) == text


def test_commands_print_only_through_terminal_and_console():
    folder = Path(kinfold.__file__).parent / "cli"
    for path in folder.glob("*.py"):
        if path.name in ("terminal.py", "console.py"):
            continue
        direct = re.findall(r"(?<![\w.])print\(|typer\.echo\(|sys\.std\w+\.write\(|rich\.console", path.read_text())
        assert not direct, f"{path.name}: use kinfold.cli.terminal.echo or kinfold.cli.console.Console, not {direct}"
