"""The same runs on a Ray cluster, which is a real one on this machine."""

import ipaddress
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from kinfold.experiments import Bench, Interrupted, run_bench
from kinfold.experiments.workers.ray_cluster import RayCluster
from tests.cli.runs import run as command
from tests.experiments.test_runner_failures import faulty
from tests.experiments.tiny import TWELVE_RUNS, read_results, run_inline, stat_scores, suite, write_suite


def on_cluster(tiny_suite, folder, jobs=2, **options):
    state = run_bench(tiny_suite, folder, lambda key: RayCluster("local", jobs, 1), **options)
    Bench.open(folder).write()
    return state


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'a bench on a cluster needs ray: pip install "kinfold\[cluster\]"'):
        RayCluster("local", 1, 1)


def test_a_cluster_needs_at_least_one_job_and_thread():
    for jobs, threads in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            RayCluster("local", jobs, threads)


def descendants(process):
    """The process ids of a process and of all that it started, directly or not."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    family = {process}
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return family


def listening_addresses(process):
    """(name, address) of every TCP socket on which a process or one that it started listens, as the kernel reports."""
    addresses = set()
    for number in descendants(process):
        with suppress(OSError):
            name = Path(f"/proc/{number}/comm").read_text().strip()
            sockets = {str(link.readlink()) for link in Path(f"/proc/{number}/fd").iterdir() if link.is_symlink()}
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{number}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # 0A: it listens
                        addresses.add((name, _address(fields[1].partition(":")[0])))
    return addresses


def _address(digits):
    """Read an address from the 32-bit integers of the kernel, which have the byte order of this machine."""
    integers = [bytes.fromhex(digits[start : start + 8]) for start in range(0, len(digits), 8)]
    packed = b"".join(integer[::-1] if sys.byteorder == "little" else integer for integer in integers)
    address = ipaddress.ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address


def test_addresses_are_read_as_the_kernel_writes_them():
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.create_server((host, 0), family=family):
            assert ipaddress.ip_address(host) in {address for _, address in listening_addresses(os.getpid())}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
def test_a_local_cluster_gives_the_same_results_and_no_other_machine_can_reach_it(tmp_path):
    pytest.importorskip("ray")
    before, addresses = dict(os.environ), set()

    def watch(state, outcome):
        addresses.update(listening_addresses(os.getpid()))

    tiny_suite = suite(tmp_path)
    state = on_cluster(tiny_suite, tmp_path / "cluster", jobs=1, watch=watch)
    assert (state.completed, state.failed) == (2, {})
    run_inline(tiny_suite, tmp_path / "here")
    assert read_results(tmp_path / "cluster") == read_results(tmp_path / "here")
    assert {"gcs_server", "raylet"} <= {name for name, _ in addresses}
    assert {(name, address) for name, address in addresses if not address.is_loopback} == set()
    assert {key: os.environ.get(key) for key in before} == before


def test_a_ray_that_listens_elsewhere_is_ended_and_refused(monkeypatch):
    """As a later version of Ray may, which takes its address from somewhere else."""
    calls = []
    ray = SimpleNamespace(
        __version__="9.9",
        is_initialized=lambda: False,
        init=lambda **options: calls.append("init"),
        shutdown=lambda: calls.append("shutdown"),
        util=SimpleNamespace(get_node_ip_address=lambda: "192.0.2.7"),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", SimpleNamespace(ENABLE_RAY_CLUSTER=True))
    with pytest.raises(RuntimeError, match=r"Ray 9.9 would listen on 192.0.2.7, where other machines could reach it"):
        RayCluster("local", 1, 1)
    assert calls == ["init", "shutdown"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
def test_a_task_that_hangs_on_a_cluster_is_ended_and_tried_again(tmp_path, faults):
    pytest.importorskip("ray")
    tiny_suite = suite(tmp_path, method=[faulty("hanging-once", mark=str(tmp_path / "mark"))])
    lost = []

    def watch(state, outcome):
        if outcome is not None and outcome.lost:
            lost.append(outcome.error)

    state = run_bench(tiny_suite, tmp_path / "bench", lambda key: RayCluster("local", 1, 1, timeout=60), watch=watch)
    assert len(lost) == 1
    assert "it made no progress for 60 seconds (--timeout), or its process" in lost[0]
    assert (state.completed, state.failed) == (2, {})


@pytest.mark.slow
def test_a_cluster_gives_the_results_of_processes(tmp_path, capsys, monkeypatch):
    pytest.importorskip("ray")
    file = write_suite(tmp_path, **TWELVE_RUNS)
    for options in ("--out", tmp_path / "here"), ("--out", tmp_path / "cluster", "--cluster", "local"):
        code, _, errors = command(capsys, monkeypatch, "bench", file, "--jobs", 2, *options)
        assert code == 0, errors
        assert "20/20" in errors  # twelve runs and eight looks at the test classes
    assert read_results(tmp_path / "cluster") == read_results(tmp_path / "here")
    assert not (tmp_path / "cluster" / "log.txt").exists()  # no process of our own


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
def test_runs_that_fail_on_a_cluster_are_reported_and_the_others_finish(tmp_path, faults):
    pytest.importorskip("ray")
    methods = [faulty("raising"), faulty("out-of-memory"), faulty("killed"), faulty("leaving"), {"name": "good"}]
    state = on_cluster(suite(tmp_path, method=methods), tmp_path / "bench")
    result = {name.split("/")[2]: why for name, why in state.failed.items()}
    assert result["raising"] == "RuntimeError: no such luck"
    assert result["out-of-memory"].startswith("out of memory: use smaller batches")
    assert "was killed, most likely because memory ran out" in result["killed"]
    assert result["leaving"] == "it ended its process with exit code 3"
    assert set(result) == {"raising", "out-of-memory", "killed", "leaving"}
    assert state.completed == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_on_a_cluster_that_is_stopped_saves_and_goes_on(tmp_path, number):
    """Stopped in the middle of a training, which is saved where it was."""
    pytest.importorskip("ray")
    long = {"training": {"steps": 1500, "save_every": 1_000_000}, "evaluation": {"every": 1_000_000}}
    tiny_suite = suite(tmp_path, base=long)
    folder = tmp_path / "bench"

    def watch(state, outcome):
        for log in folder.glob("runs/*/*/*/*/log.jsonl"):
            if len(log.read_text().splitlines()) > 5:
                os.kill(os.getpid(), number)

    with pytest.raises(Interrupted):
        on_cluster(tiny_suite, folder, jobs=1, watch=watch)
    before, saved = stat_scores(folder), [*folder.rglob("checkpoints/*.safetensors")]
    assert before == {}
    assert saved
    assert not [*(folder / "records").rglob("*.json")]
    run_inline(tiny_suite, folder)
    run_inline(tiny_suite, tmp_path / "alone")
    assert read_results(folder) == read_results(tmp_path / "alone")
