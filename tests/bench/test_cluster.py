"""The same cells on a Ray cluster, which is a real one on this machine."""

import os
import signal
import sys

import pytest

from kinfold.bench import Bench, Interrupted, run
from kinfold.bench.cluster import Cluster
from tests.bench.test_failures import faulty
from tests.bench.tiny import TWELVE, made, marks, results, suite, suite_file
from tests.cli.runs import run as command


def on_cluster(given, folder, jobs=2, **options):
    state = run(given, folder, lambda place: Cluster("local", jobs, 1), **options)
    Bench.open(folder).write()
    return state


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'a bench on a cluster needs ray: pip install "kinfold\[cluster\]"'):
        Cluster("local", 1, 1)


def test_a_cluster_needs_room_for_one_at_least():
    for jobs, threads in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            Cluster("local", jobs, threads)


@pytest.mark.slow
def test_a_cluster_gives_the_results_of_processes(tmp_path, capsys, monkeypatch):
    pytest.importorskip("ray")
    file = suite_file(tmp_path, **TWELVE)
    for options in ("--out", tmp_path / "here"), ("--out", tmp_path / "cluster", "--cluster", "local"):
        code, _, errors = command(capsys, monkeypatch, "bench", file, "--jobs", 2, *options)
        assert code == 0, errors
        assert "12/12" in errors
    assert results(tmp_path / "cluster") == results(tmp_path / "here")
    assert not (tmp_path / "cluster" / "log.txt").exists()  # no process of our own


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
def test_cells_that_go_wrong_on_a_cluster_are_reported_and_the_others_finish(tmp_path, faults):
    pytest.importorskip("ray")
    methods = [faulty("raising"), faulty("out-of-memory"), faulty("killed"), faulty("leaving"), {"name": "good"}]
    state = on_cluster(suite(tmp_path, method=methods), tmp_path / "bench")
    found = {name.split("/")[2]: why for name, why in state.failed.items()}
    assert found["raising"] == "RuntimeError: no such luck"
    assert found["out-of-memory"].startswith("out of memory: take smaller batches")
    assert "was ended from outside, most likely for want of memory" in found["killed"]
    assert found["leaving"] == "it ended its process with exit code 3"
    assert set(found) == {"raising", "out-of-memory", "killed", "leaving"}
    assert state.done == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_on_a_cluster_that_is_stopped_saves_and_goes_on(tmp_path, number):
    """Stopped in the middle of a training, which is saved where it was."""
    pytest.importorskip("ray")
    long = {"training": {"steps": 1500, "save_every": 1_000_000}, "evaluation": {"every": 1_000_000}}
    given = suite(tmp_path, base=long)
    folder = tmp_path / "bench"

    def watch(state, outcome):
        for log in folder.glob("runs/*/*/*/*/log.jsonl"):
            if len(log.read_text().splitlines()) > 5:
                os.kill(os.getpid(), number)

    with pytest.raises(Interrupted):
        on_cluster(given, folder, jobs=1, watch=watch)
    before, saved = marks(folder), [*folder.rglob("checkpoints/*.safetensors")]
    assert before == {}
    assert saved
    assert not [*(folder / "records").rglob("*.json")]
    made(given, folder)
    made(given, tmp_path / "alone")
    assert results(folder) == results(tmp_path / "alone")
