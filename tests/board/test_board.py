"""Boards: entries from benches, what is refused, groups, claims, and entries that are run again."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from kinfold.board import Board, Claim, read_claims, read_entries, replay_entry
from kinfold.experiments import Bench
from kinfold.files.documents import read_json, write_result
from tests.cli.runs import run
from tests.experiments.tiny import feature_file, run_inline, suite

METHODS = [
    {"name": "contrastive", "search": {"optimizer.lr": {"values": [0.01, 0.02]}}},
    {"name": "triplet", "loss": {"name": "triplet"}},
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    run_inline(suite(folder, method=METHODS, seeds=[0, 1, 2], trials=1), folder / "tiny")
    return folder / "tiny"


@pytest.fixture
def copy(tmp_path):
    """A bench of one repeat that a test may damage."""
    run_inline(suite(tmp_path, seeds=[0]), tmp_path / "copy")
    return tmp_path / "copy"


def test_entries_hold_the_scores_of_the_bench_and_the_chosen_settings(bench):
    opened = Bench.open(bench)
    entry, other = read_entries(opened)
    assert entry.values == opened.values("tiny", "separated", "map@r")["contrastive"]
    assert entry.starts == opened.values("tiny", "separated", "map@r", "start")["contrastive"]
    assert entry.tables["optimizer"]["lr"] in (0.01, 0.02)
    assert (entry.name, entry.backbone, entry.trials, other.trials) == ("tiny/tiny/contrastive", "features", 1, 0)
    assert len(entry.files) == 6
    assert entry.seconds > 0
    assert entry.data_fingerprint == other.data_fingerprint


def test_the_table_and_the_page_show_every_entry(bench, tmp_path):
    board = Board.open([bench], [Claim("triplet", "tiny", "map@r", 0.5, "a <paper>")])
    text = board.table("markdown")
    mean = 100 * np.mean([*board.find_entry("tiny/tiny/triplet").values.values()])
    assert f"{mean:.1f} ± " in text
    assert "(a &lt;paper&gt;)" in text
    assert f"{mean - 50:+.1f}" in text
    page, markdown = board.write(tmp_path / "out")[::-1]
    assert markdown.read_text() == text
    html = page.read_text()
    for entry in board.entries:
        assert entry.digest in html
        assert f"--replay {entry.name}" in html
    assert "a &lt;paper&gt;" in html
    assert "<script" not in html
    assert repr(board) == "Board(2 methods, 1 panel)"


def test_a_changed_configuration_is_refused(copy):
    path = copy / "runs/tiny/contrastive/seed-0/fold-0/configuration.toml"
    path.write_text(path.read_text().replace("steps = 4", "steps = 5"))
    with pytest.raises(ValueError, match=r"the configuration in .* is not what its scores were measured with"):
        Board.open([copy])


@pytest.mark.parametrize("part", ["data", "code"])
def test_another_fingerprint_of_data_or_code_is_refused(copy, part):
    path = copy / "runs/tiny/contrastive/seed-0/fold-0/environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: "0" * 32}))
    with pytest.raises(ValueError, match=rf"the {part} in .* is not what its scores were measured with"):
        Board.open([copy])


def test_runs_that_changed_after_the_test_are_refused(copy):
    path = copy / "runs/tiny/contrastive/seed-0/fold-0/scores.json"
    table = read_json(path, {str: object})
    write_result(path, {**table, "step": 3})
    with pytest.raises(ValueError, match="changed after their test scores were measured"):
        Board.open([copy])


def test_scores_without_provenance_are_refused(copy):
    repeat = copy / "runs/tiny/contrastive/seed-0"
    path = repeat / "fold-0/scores.json"
    table = read_json(path, {str: object})
    write_result(path, {key: value for key, value in table.items() if key != "provenance"})
    Bench.open(copy).open_repeat("tiny", "contrastive", 0).test()
    with pytest.raises(ValueError, match="earlier version"):
        Board.open([copy])


def test_benches_are_put_together_if_their_data_is_the_same(bench, copy, tmp_path):
    with pytest.raises(ValueError, match="both have contrastive on tiny"):
        Board.open([bench, copy])
    entries = read_entries(Bench.open(bench))
    renamed = suite(tmp_path, method=[{"name": "mine", "loss": {"name": "contrastive"}}], seeds=[0, 1])
    run_inline(renamed, tmp_path / "mine")
    board = Board.open([bench, tmp_path / "mine"])
    assert [*board.panels[0].entries] == ["contrastive", "triplet", "mine"]
    assert len(entries) == 2


def test_one_name_for_different_data_is_refused(bench, tmp_path):
    settings = suite(tmp_path, method=[{"name": "mine"}])
    path = feature_file(tmp_path)
    arrays = dict(np.load(path))
    np.savez(path, embeddings=arrays["embeddings"] + 1, labels=arrays["labels"])
    run_inline(settings, tmp_path / "mine")
    with pytest.raises(ValueError, match="different data under the name 'tiny'"):
        Board.open([bench, tmp_path / "mine"])


def test_a_replay_is_identical_and_other_data_is_refused(bench, tmp_path, monkeypatch):
    # the test of the command starts processes
    monkeypatch.setattr("kinfold.board.replay.run_bench", lambda settings, folder: run_inline(settings, folder)[0])
    entry = Board.open([bench]).find_entry("tiny/tiny/contrastive")
    result = replay_entry(entry, tmp_path / "again", seeds=[1])
    assert result.is_identical
    assert result.is_same_code
    assert result.now == {1: entry.values[1]}
    changed = replace(entry, values={seed: value + 0.02 for seed, value in entry.values.items()})
    moved = replay_entry(changed, tmp_path / "again", seeds=[1])
    assert not moved.is_identical
    assert not moved.agrees(0.01)
    assert moved.agrees(0.03)
    path = feature_file(tmp_path / "elsewhere")
    arrays = dict(np.load(path))
    np.savez(path, embeddings=arrays["embeddings"][::-1], labels=arrays["labels"])
    with pytest.raises(ValueError, match="the data is not what"):
        replay_entry(entry, tmp_path / "other", root=path)


def test_a_seed_that_the_entry_does_not_have_is_refused(bench, tmp_path):
    entry = Board.open([bench]).entries[0]
    with pytest.raises(ValueError, match="has the seeds 0, 1, 2; got 7"):
        replay_entry(entry, tmp_path / "again", seeds=[7])


def test_the_command_writes_the_board_and_replays_an_entry(bench, tmp_path, capsys, monkeypatch):
    def command(*arguments):
        return run(capsys, monkeypatch, "board", bench, "--out", tmp_path / "board", *arguments)

    assert "board.md, board.html" in command()[1]
    names = json.loads(command("--json")[1])["entries"]
    assert [entry["name"] for entry in names] == ["tiny/tiny/contrastive", "tiny/tiny/triplet"]
    code, output, _ = command("--replay", "tiny/tiny/triplet")
    assert code == 0
    assert "agrees; identical, with the same code" in output
    code, _, errors = command("--replay", "tiny/tiny/tripet")
    assert code == 2
    assert "tiny/tiny/triplet" in errors
    assert command("--seeds", "1")[0] == 2


def test_claims_are_read_and_wrong_ones_refused(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text('[[claim]]\nmethod = "m"\ndata = "d"\nmetric = "recall@1"\nvalue = 0.6\nsource = "s"\n')
    assert read_claims(path) == [Claim("m", "d", "recall@1", 0.6, "s")]
    path.write_text('[[claim]]\nmethod = "m"\ndata = "d"\nmetric = "recall@1"\nvalue = "0.6"\nsource = "s"\n')
    with pytest.raises(ValueError, match="value"):
        read_claims(path)
    path.write_text('[[claim]]\nmethod = "m"\ndata = "d"\nmetric = "r"\nvalue = 0.6\nsource = "s"\nyear = 1\n')
    with pytest.raises(ValueError, match="unknown key 'year'"):
        read_claims(path)
