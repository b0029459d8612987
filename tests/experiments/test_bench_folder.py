"""A bench folder that somebody else made: no link leads out of it, and what cannot be trusted is named."""

import json
import os
import re
import shutil

import pytest

from kinfold.experiments import Bench
from kinfold.experiments.repeat import Repeat
from kinfold.files.documents import write_result
from kinfold.report.content.inputs import find_inputs
from tests.experiments.tiny import SPACE, run_inline, suite

SEARCHED = {"method": [{"name": "contrastive", "search": SPACE}], "trials": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    run_inline(suite(folder, **SEARCHED), folder / "bench")
    return folder


@pytest.fixture
def bench(finished, tmp_path):
    """A bench of which one repeat is left to make."""
    shutil.copytree(finished / "bench", tmp_path / "bench")
    tiny_suite = suite(finished, **SEARCHED, seeds=[0, 1])
    return tmp_path / "bench", tiny_suite


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


FILES = [".lock", "log.txt", "suite.toml", "results.csv", "table.md", "search/journal.log", "search/identity"]
RECORDS = ["records", "records/runs", "records/runs/tiny/contrastive/seed-0.json"]
RUNS = ["runs", "runs/tiny", "runs/tiny/contrastive/seed-0", "runs/tiny/contrastive/seed-0/fold-0", "search"]


@pytest.mark.parametrize("name", [*FILES, *RECORDS, *RUNS])
def test_no_link_is_followed_when_a_bench_goes_on(name, bench, tmp_path):
    folder, tiny_suite = bench
    victim = tmp_path / "victim"
    victim.mkdir()
    (folder / name).touch() if name in (".lock", "log.txt") else None
    shutil.move(folder / name, victim / "target")
    os.symlink(victim / "target", folder / name)
    before = contents(victim)
    with pytest.raises(ValueError, match=r"is a symbolic link, and no link is followed inside of"):
        run_inline(tiny_suite, folder)
    assert contents(victim) == before


@pytest.mark.parametrize("name", ["runs/tiny/contrastive/seed-1", "records/runs/tiny/contrastive/seed-1"])
def test_a_link_in_place_of_a_new_run_is_refused(name, bench, tmp_path):
    folder, tiny_suite = bench
    (tmp_path / "victim").mkdir()
    os.symlink(tmp_path / "victim", folder / name)
    with pytest.raises(ValueError, match=r"seed-1 is a symbolic link"):
        run_inline(tiny_suite, folder)
    assert not [*(tmp_path / "victim").iterdir()]


def test_a_bench_behind_links_is_not_reported_either(bench, tmp_path):
    folder, _ = bench
    shutil.move(folder / "runs", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "runs")
    for read in (lambda: Bench.open(folder).rows, lambda: find_inputs(folder)):
        with pytest.raises(ValueError, match="runs is a symbolic link"):
            read()
    repeat = tmp_path / "repeat"
    repeat.mkdir()
    os.symlink(tmp_path / "elsewhere" / "tiny" / "contrastive" / "seed-0" / "fold-0", repeat / "fold-0")
    with pytest.raises(ValueError, match="fold-0 is a symbolic link"):
        Repeat.open(repeat)


def test_the_log_of_workers_is_not_written_through_a_second_name(bench, tmp_path):
    folder, tiny_suite = bench
    (tmp_path / "victim").write_text("precious")
    os.link(tmp_path / "victim", folder / "log.txt")
    with pytest.raises(ValueError, match=r"log.txt has a second name"):
        run_inline(tiny_suite, folder)
    assert (tmp_path / "victim").read_text() == "precious"


RESULTS = ["runs/tiny/contrastive/seed-0/scores.json", "runs/tiny/contrastive/seed-0/fold-0/scores.json"]
RESULTS += ["records/runs/tiny/contrastive/seed-0.json", "records/runs/tiny/contrastive/seed-0/fold-0.json"]


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_that_was_changed_is_named(name, bench):
    folder, _ = bench
    path = folder / name
    text = path.read_text()
    key = '"inflated"' if name.endswith("scores.json") else '"seconds"'
    path.write_text(text.replace(key, '"map@r": 0.9,\n  ' + key, 1))
    with pytest.raises(
        ValueError, match=rf"{path} is damaged: its contents are not what was written \(sha256 differs\)"
    ):
        _ = Bench.open(folder).rows
    path.write_text(json.dumps({key: value for key, value in json.loads(text).items() if key != "sha256"}))
    with pytest.raises(ValueError, match=rf"{path} has no checksum"):
        _ = Bench.open(folder).rows


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_another_shape_is_named_though_its_checksum_is_right(name, bench):
    folder, _ = bench
    path = folder / name
    table = json.loads(path.read_text())
    for key in ("error", "seconds", "asked", "kind") if "records" in name else ("inflated", "validation"):
        for invalid in (float("inf"), [], [[1]], None if key != "error" else True):
            write_result(path, {**table, key: invalid})
            with pytest.raises(ValueError, match=rf"{path} is damaged: "):
                _ = Bench.open(folder).rows


@pytest.mark.parametrize("content", [b"", b"a = " + b"[" * 100_000, b"\xff", b"seeds = 3", b"[[method]]\nname = 3"])
def test_a_suite_that_cannot_be_read_is_named(content, bench):
    folder, _ = bench
    (folder / "suite.toml").write_bytes(content)
    with pytest.raises(ValueError, match=rf"the bench {folder} cannot be opened: "):
        Bench.open(folder)


@pytest.mark.parametrize("content", [b"{\n", b"[" * 100_000 + b"\n", b"null\n", b'{"op_code": 77}\n', b"\xff\n"])
def test_a_journal_that_cannot_be_read_is_named(content, bench):
    folder, tiny_suite = bench
    (folder / "search" / "journal.log").write_bytes(content * 2)
    with pytest.raises(ValueError, match=r"journal.log is damaged: it is not the journal of a search"):
        run_inline(tiny_suite, folder)


def test_a_value_in_the_journal_that_its_runs_did_not_reach_is_noticed(bench):
    folder, tiny_suite = bench
    journal = folder / "search" / "journal.log"
    (value,) = re.findall(r'"values": ?\[([0-9.]+)\]', journal.read_text())
    journal.write_text(journal.read_text().replace(value, "0.9875"))
    state, made_now = run_inline(tiny_suite, folder)
    assert made_now == []
    (why,) = state.failed.values()
    assert "journal.log says that trial 0 reached 0.9875, but the scores of its runs say" in why


def test_an_invalid_identity_is_reported(bench):
    folder, tiny_suite = bench
    (folder / "search" / "identity").write_text("x")
    with pytest.raises(ValueError, match="identity is damaged: it must hold 32 hexadecimal digits"):
        run_inline(tiny_suite, folder)
