"""`kinfold compress`: a table of sizes, and the chosen codes in a file."""

import json
import subprocess
import sys

import numpy as np

from kinfold.embedding import Quantized


def run(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "kinfold", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_smallest_good_size_is_written(tmp_path):
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
