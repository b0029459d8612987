"""Damaged JSON and TOML files of a run: the commands that read them print one line that names the file."""

import json
import shutil
import tomllib

import pytest

from kinfold.files.documents import write_result
from kinfold.training.config.parsing import to_toml
from tests.cli.runs import feature_run, run

WRONG_VALUES = [None, True, -1, 10**30, 1e400, float("nan"), "x", [], {}, [[]], {"a": {}}]


def value_paths(value, path=()):
    """Paths of all values in a document, including tables and lists."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from value_paths(inner, (*path, key))


def replace_value(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replace_value(value[path[0]], path[1:], new)
    return copy


def remove_value(value, path):
    copy = value.copy()
    if len(path) > 1:
        copy[path[0]] = remove_value(value[path[0]], path[1:])
    else:
        del copy[path[0]]
    return copy


def cut_at_several_lengths(content):
    return [content[: len(content) * part // 7] for part in range(7)]


BROKEN_FILES = [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"\x00" * 10, b"9" * 5000, b"NaN", b"null", b'"x"']


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(feature_run(), tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    return tmp_path / "run"


def error_lines(capsys, monkeypatch, *arguments, always=True):
    """Lines of the error; an exception that `main` does not handle fails the test."""
    code, _, errors = run(capsys, monkeypatch, *arguments)
    lines = [line for line in errors.splitlines() if not line.endswith("is finished") and line[:6] != "help: "]
    assert code == 2 or not always, lines
    if code == 2:
        assert len(lines) == 1, errors[:1000]
        assert lines[0].startswith("error: ")
        assert len(lines[0]) < 1000
    return lines


def test_truncated_or_replaced_scores_are_refused(folder, capsys, monkeypatch):
    scores = folder / "scores.json"
    content = scores.read_bytes()
    for broken in (*cut_at_several_lengths(content)[:-1], *BROKEN_FILES):
        scores.write_bytes(broken)
        (line,) = error_lines(capsys, monkeypatch, "train", "--resume", folder)
        assert str(scores) in line
    scores.write_bytes(content)
    assert run(capsys, monkeypatch, "train", "--resume", folder)[0] == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("has_checksum", [False, True])
def test_scores_with_invalid_values_end_in_at_most_one_error_line(has_checksum, folder, capsys, monkeypatch):
    path = folder / "scores.json"
    scores = json.loads(path.read_text())
    del scores["sha256"]
    for path_of_value in value_paths(scores):
        for new in WRONG_VALUES:
            changed = replace_value(scores, path_of_value, new)
            if not isinstance(changed, dict):
                continue
            if has_checksum:  # a correct checksum of wrong values
                write_result(path, changed)
            else:
                path.write_text(json.dumps({**changed, "sha256": "0" * 64}))
            lines = error_lines(capsys, monkeypatch, "train", "--resume", folder, always=not has_checksum)
            assert not lines or not lines[0].startswith("error") or str(path) in lines[0]
        if path_of_value:
            write_result(path, remove_value(scores, path_of_value))
            error_lines(capsys, monkeypatch, "train", "--resume", folder, always=False)


def test_an_environment_with_invalid_values_is_refused(folder, capsys, monkeypatch):
    (folder / "scores.json").unlink()  # so that resuming needs it
    path = folder / "environment.json"
    content, about = path.read_bytes(), json.loads(path.read_text())
    for broken in (*cut_at_several_lengths(content)[:-1], *BROKEN_FILES):
        path.write_bytes(broken)
        (line,) = error_lines(capsys, monkeypatch, "train", "--resume", folder)
        assert str(path) in line
    for key in ("threads", "data", "kinfold", "ranks"):
        for new in WRONG_VALUES:
            if (key, new) in (("data", None), ("kinfold", "x")):
                continue  # data that was never recorded; any version
            path.write_text(json.dumps(about | {key: new}))
            error_lines(capsys, monkeypatch, "train", "--resume", folder)


def test_a_checkpoint_list_with_invalid_values_is_refused(folder, capsys, monkeypatch):
    (folder / "scores.json").unlink()
    path = folder / "checkpoints" / "list.json"
    content, checkpoints = path.read_bytes(), json.loads(path.read_text())
    for broken in (*cut_at_several_lengths(content)[:-1], *BROKEN_FILES):
        path.write_bytes(broken)
        (line,) = error_lines(capsys, monkeypatch, "train", "--resume", folder)
        assert f"{path} is damaged" in line
    for path_of_value in value_paths(checkpoints):
        for new in WRONG_VALUES:
            if (new == [] and not path_of_value) or (path_of_value[-1:] == ("sha256",) and new is None):
                continue  # no checkpoint yet
            path.write_text(json.dumps(replace_value(checkpoints, path_of_value, new)))
            (line,) = error_lines(capsys, monkeypatch, "train", "--resume", folder)
            assert "checkpoints" in line


@pytest.mark.slow
def test_a_configuration_with_invalid_values_ends_in_at_most_one_error_line(folder, capsys, monkeypatch):
    path = folder / "configuration.toml"
    content, tables = path.read_bytes(), tomllib.loads(path.read_text())
    deep = [
        b"a = " + b"[" * 100_000,
        b".".join([b"a"] * 5000) + b" = 1",
        b"\xff",
        b"a = " + b"9" * 5000,
        b"[[",
        b"seed=1\n" * 2,
    ]
    for broken in (*deep, *(cut for cut in cut_at_several_lengths(content)[1:] if not_toml(cut))):
        path.write_bytes(broken)
        (line,) = error_lines(capsys, monkeypatch, "train", "--resume", folder)
        assert str(path) in line
    for path_of_value in value_paths(tables):
        for new in (10**30, float("nan"), "x", {"a": {}}):
            if path_of_value:
                path.write_text(to_toml(replace_value(tables, path_of_value, new)))
                error_lines(capsys, monkeypatch, "train", "--resume", folder, always=False)


def not_toml(content):
    try:
        tomllib.loads(content.decode())
    except ValueError:
        return True
    return False


def test_the_log_ends_at_the_first_line_that_is_not_an_event(folder, capsys, monkeypatch):
    from kinfold.training import Run

    path = folder / "log.jsonl"
    events = Run.open(folder).events
    content = path.read_bytes()
    for bad in (b"[" * 100_000, b"null", b"[]", b'{"event": 3, "step": 1}', b'{"event": "step", "step": "x"}', b"\xff"):
        path.write_bytes(content + bad + b"\n" + content)
        assert Run.open(folder).events == events


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "-inf", "1" + "0" * 400])
@pytest.mark.parametrize("key", ["training.save_seconds", "optimizer.weight_decay", "optimizer.clip", "memory.weight"])
def test_a_setting_that_is_not_a_usable_number_is_refused_before_training(key, value, tmp_path, capsys, monkeypatch):
    sizes = ["--set", "memory.size=8"] if key.startswith("memory") else []
    (line,) = error_lines(
        capsys, monkeypatch, "train", "glyphs", "--set", f"{key}={value}", *sizes, "--out", tmp_path / "r"
    )
    assert key in line
    assert not (tmp_path / "r").exists()
