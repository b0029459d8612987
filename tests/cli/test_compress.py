"""`kinfold compress`: a table of sizes, and the chosen codes in a file."""

import json

import numpy as np
import pytest

from kinfold.embedding import Quantized
from tests.cli.runs import run as run_command


@pytest.fixture
def run(capsys, monkeypatch):
    """A function that runs a command and returns what it printed."""

    def run_here(*arguments):
        code, printed, errors = run_command(capsys, monkeypatch, *arguments)
        assert code == 0, errors
        return printed

    return run_here


def test_the_smallest_good_size_is_written(tmp_path, run):
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 10
    rows = generator.normal(size=(10, 32))[labels] + 0.3 * generator.normal(size=(200, 32))
    np.savez(tmp_path / "rows.npz", embeddings=rows.astype(np.float32), labels=labels)
    table = json.loads(run("compress", tmp_path / "rows.npz", "--json", "--out", tmp_path / "small.npz"))
    assert [row["dim"] for row in table["rows"]] == [32, 32, 32, 16, 16, 16]
    chosen = table["chosen"]
    small = Quantized.load(tmp_path / "small.npz")
    assert (small.dim, small.precision, small.bytes_per_item) == (chosen["dim"], chosen["precision"], chosen["bytes"])
    assert len(small.decode()) == 200
    assert "smallest that is not significantly worse" in run("compress", tmp_path / "rows.npz", "--dims", "32")


def test_the_size_of_a_run_is_stored_and_exported(tmp_path, run):
    import torch

    import kinfold
    from kinfold.data import Rows, create_dataset
    from kinfold.embedding import quantize, read_run_size

    generator = np.random.default_rng(0)
    labels = np.arange(240) % 12
    rows = (generator.normal(size=(12, 32))[labels] + 0.3 * generator.normal(size=(240, 32))).astype(np.float32)
    split = np.where(labels < 6, "train", "test")
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels, split=split)
    recipe = {
        "data": {"name": "features", "root": str(tmp_path / "rows.npz"), "validation": 0.0},
        "model": {"backbone": "features", "dim": 24, "init": "pca"},
        "sampler": {"name": "random", "batch_size": 20},
        "training": {"steps": 0},
        "evaluation": {"selection": "last"},
    }
    trained = kinfold.train(recipe, tmp_path / "run", dataset=create_dataset("points", Rows(rows), labels, split))
    assert read_run_size(trained) is None
    table = json.loads(run("compress", tmp_path / "run", "--dims", "24,12,8", "--json"))
    size = read_run_size(trained)
    assert size is not None
    assert size.chosen.bytes == table["chosen"]["bytes"] < 4 * 24
    assert size.split == "test"
    run("export", tmp_path / "run", "--out", tmp_path / "small.pt2")
    run("export", tmp_path / "run", "--out", tmp_path / "full.pt2", "--full")
    inputs = torch.from_numpy(rows[split == "test"])
    codes = torch.export.load(tmp_path / "small.pt2").module()(inputs)
    expected = quantize(trained.embed(inputs.numpy()), size.precision, size.chosen.dim).codes
    assert codes.shape == expected.shape
    assert np.mean(codes.numpy() != expected) < 0.02
    assert torch.export.load(tmp_path / "full.pt2").module()(inputs).shape == (120, 24)


def test_a_size_of_other_weights_is_refused(tmp_path, run):
    import pytest

    import kinfold
    from kinfold.data import Rows, create_dataset
    from kinfold.embedding import choose_run_size, read_run_size

    labels = np.arange(80) % 8
    rows = np.random.default_rng(0).normal(size=(8, 6))[labels].astype(np.float32)
    rows += np.random.default_rng(1).normal(size=rows.shape).astype(np.float32) / 9
    dataset = create_dataset("points", Rows(rows), labels, np.where(labels < 4, "train", "test"))
    recipe = {
        "model": {"backbone": "features", "dim": 4, "init": "random"},
        "training": {"steps": 0},
        "data": {"validation": 0.0},
    }
    recipe |= {"sampler": {"name": "random", "batch_size": 20}, "evaluation": {"selection": "last"}}
    runs = [kinfold.train({**recipe, "seed": seed}, tmp_path / str(seed), dataset=dataset) for seed in (0, 1)]
    choose_run_size(runs[0], [4, 2])
    (runs[1].folder / "size.json").write_bytes((runs[0].folder / "size.json").read_bytes())
    with pytest.raises(ValueError, match="other weights than the run has now"):
        read_run_size(runs[1])
    with pytest.raises(ValueError, match="training classes say nothing about new classes"):
        choose_run_size(runs[0], [4], split="train")
