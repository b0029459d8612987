"""Several processes train as one: the same gradient for every loss, and the same run from end to end."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import kinfold
from kinfold.files.state import read_state
from kinfold.training import train
from tests import torchrun
from tests.problems import LOSSES
from tests.training.tiny import dataset, difference, lines, recipe, write_files

# batch norm in training mode, a batch that three ranks cannot share evenly, a last evaluation; a bank, a memory, draws
RUNS: dict[str, dict[str, Any]] = {
    "images": {
        "variant": "images",
        "training": {"precision": "float64", "steps": 12},
        "sampler": {"batch_size": 20},
        "mixup": None,
    },
    "gc": {"variant": "gc", "training": {"precision": "float64"}},
    "sampled classes": {"variant": "sampled classes", "training": {"precision": "float64"}},
    # each rank holds the vectors of some classes; the run is stopped and resumed
    "sharded classes": {
        "variant": "proxy-anchor",
        "training": {"precision": "float64", "shard_classes": True},
        "stop": 7,
    },
    "sharded sampled classes": {
        "variant": "sampled classes",
        "training": {"precision": "float64", "shard_classes": True},
        "stop": 5,
    },
    "levels": {"variant": "levels", "training": {"precision": "float64"}},
    "memory": {"variant": "memory with draws", "training": {"precision": "float64", "micro_batch": 6}},
}


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def launched(request, tmp_path_factory):
    """Reports of all ranks and the folder of their runs. Starting processes is slow: all tests share them."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "runs.json").write_text(json.dumps(RUNS))
    torchrun.run(request.param, "tests.training.rank_run", folder, timeout=300)
    reports = json.loads((folder / f"{request.param}.json").read_text())
    assert len(reports) == request.param
    return reports, folder


def test_every_loss_has_the_gradient_of_one_process(launched):
    for on_rank in launched[0]:
        names = {name.rsplit(" [")[0] for name in on_rank["losses"]}
        assert set(LOSSES) < names
        assert {f"margin, one beta, {miner}" for miner in kinfold.list("miners") if miner != "sampled-triplets"} < names
        for name, differences in on_rank["losses"].items():
            assert differences["size"] > 1e-4, f"{name}: nothing to compare"
            assert differences["gradient"] < 1e-10, name
            assert differences["loss"] < 1e-10, name


def test_parameters_of_a_loss_have_the_gradient_of_one_process(launched):
    for on_rank in launched[0]:
        for name, owned in (("proxy-anchor", "loss.proxies"), ("margin", "loss.beta"), ("softmax", "loss.proxies")):
            compared = [entry["by name"] for key, entry in on_rank["losses"].items() if key.startswith(f"{name} [")]
            assert len(compared) == 2
            assert all(owned in by_name for by_name in compared)


def test_a_gather_that_keeps_only_local_gradients_is_detected(launched):
    ranks = len(launched[0])
    for on_rank in launched[0]:
        differences = on_rank["local gradient"]["by name"]
        # the network gets 1 / ranks of its gradient, proxies their whole gradient
        assert differences["loss.proxies"] < 1e-10
        network = max(difference for name, difference in differences.items() if not name.startswith("loss."))
        assert network == pytest.approx(1 - 1 / ranks)


def test_micro_batches_and_float32_agree_with_one_process(launched):
    for on_rank in launched[0]:
        for size, differences in on_rank["micro-batch"].items():
            assert differences["gradient"] < 1e-10, size
        for name, differences in on_rank["float32"].items():
            assert differences["gradient"] < 1e-4, name


def test_mixed_items_have_the_same_weights_on_all_ranks(launched):
    assert max(on_rank["mixup"] for on_rank in launched[0]) < 1e-12


def test_ranks_with_unequal_numbers_of_micro_batches_do_not_deadlock(launched):
    assert all(on_rank["batch norm in micro-batches"] for on_rank in launched[0])


def test_fewer_items_than_ranks_are_embedded(launched):
    assert all(on_rank["few items"] for on_rank in launched[0])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_several_ranks_equals_that_of_one_process(name, launched):
    reports, folder = launched
    several = folder / f"{name} on {len(reports)}"
    changes = {key: value for key, value in RUNS[name].items() if key not in ("variant", "stop")}
    variant = RUNS[name]["variant"]
    alone = train(recipe(variant, **changes), folder / f"{name} alone", dataset=dataset(variant))
    weights = [read_state(run / "model.safetensors")["model"] for run in (several, alone.folder)]
    assert weights[0].keys() == weights[1].keys()
    for key, expected in weights[1].items():
        torch.testing.assert_close(weights[0][key], expected, atol=1e-10, rtol=1e-10, msg=key)
    scores = [json.loads((run / "scores.json").read_text()) for run in (several, alone.folder)]
    for split in ("validation", "test"):
        assert scores[0].pop(split) == scores[1].pop(split)
    assert scores[0].pop("train_space") == pytest.approx(scores[1].pop("train_space"), abs=1e-10)
    for sums in scores:  # weights agree to 1e-10, not to the bit
        del sums["sha256"], sums["model_sha256"]
    assert scores[0] == scores[1]
    for line, expected in zip(lines(several), lines(alone.folder), strict=True):
        assert line == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("sharded")])
def test_checkpoints_of_sharded_classes_have_the_state_of_all_classes(name, launched):
    reports, folder = launched
    changes = {key: value for key, value in RUNS[name].items() if key not in ("variant", "stop")}
    variant = RUNS[name]["variant"]
    alone = train(recipe(variant, **changes), folder / f"{name} alone for its state", dataset=dataset(variant))
    states = [
        read_state(max((run / "checkpoints").glob("*.safetensors")))
        for run in (folder / f"{name} on {len(reports)}", alone.folder)
    ]
    for part in ("objective", "optimizer"):
        several, single = (dict(list_tensors(state[part])) for state in states)
        assert several.keys() == single.keys()
        assert any("exp_avg" in key for key in single) == (part == "optimizer")
        for key, expected in single.items():
            torch.testing.assert_close(several[key], expected, atol=1e-10, rtol=1e-10, msg=key)


def list_tensors(state, prefix=""):
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, dict | list):
            yield from list_tensors(value, f"{prefix}{key}.")
        elif isinstance(value, torch.Tensor):
            yield f"{prefix}{key}", value


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_a_run_that_can_be_resumed(tmp_path):
    changes = {"training": {"steps": 600, "save_every": 50}, "evaluation": {"every": 200}}
    path = write_files(tmp_path, **changes)
    folders = [tmp_path / "stopped", tmp_path / "expected"]
    command = torchrun.command(2, "kinfold", "train")
    environment = torchrun.ENVIRONMENT
    process = subprocess.Popen(
        [*command, path, "--out", folders[0]], env=environment, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 120
    while not (folders[0] / "log.jsonl").exists() or len(lines(folders[0])) < 120:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"continue with: kinfold train --resume {folders[0]}" in errors
    for arguments in (["--resume", folders[0]], [path, "--out", folders[1]]):
        subprocess.run([*command, *arguments], env=environment, check=True, capture_output=True, timeout=180)
    assert difference(*folders) == ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_no_thread_of_the_process_group_outlives_it(tmp_path):
    # one that does takes the GIL while Python shuts down, and aborts a rank that has finished its work
    torchrun.run(2, "tests.training.leave_run", tmp_path)
    for rank in range(2):
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        assert report["during"] > report["before"]
        assert report["after"] == report["before"]
