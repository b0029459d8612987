"""What adapt takes: tables, torch datasets and paths become the dataset that an array is."""

import numpy as np
import pyarrow
import pytest
import torch

import kinfold

LABELS = np.repeat(np.arange(3), 6)  # too few classes to climb, so that a call takes a moment
ROWS = np.random.default_rng(0).normal(size=(18, 8)).astype(np.float32)


@pytest.mark.parametrize("kind", ["table", "torch dataset", "path"])
def test_every_input_becomes_the_dataset_of_the_array(kind, tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=ROWS, labels=LABELS)
    data = {
        "table": pyarrow.table({"embedding": [*ROWS], "label": LABELS}),
        "torch dataset": torch.utils.data.TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS)),
        "path": tmp_path / "x.npz",
    }[kind]
    adaptation = kinfold.adapt(data, folder=tmp_path / "run")
    assert "3 training classes are too few" in adaptation.verdict
    torch.testing.assert_close(adaptation.embed(ROWS), torch.nn.functional.normalize(torch.from_numpy(ROWS)))
    if kind == "path":
        assert len(kinfold.Run.open(tmp_path / "run").splits()["train"]) == 18
