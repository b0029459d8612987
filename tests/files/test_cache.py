"""Values in the cache of a folder."""

import os

import pytest
import torch

from kinfold.files.cache import load_or_compute


def test_a_damaged_value_is_computed_again(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"values": torch.arange(3)}

    for key in ("a", "a", "b"):
        assert load_or_compute(tmp_path, "x", key, compute)["values"].tolist() == [0, 1, 2]
    assert len(calls) == 2
    (tmp_path / "cache" / "x.safetensors").write_bytes(b"nonsense")
    load_or_compute(tmp_path, "x", "b", compute)
    load_or_compute(tmp_path, "x", "b", compute)
    assert len(calls) == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x.safetensors"]
    whole = (tmp_path / "cache" / "x.safetensors").read_bytes()
    (tmp_path / "cache" / "x.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert load_or_compute(tmp_path, "x", "b", compute)["values"].tolist() == [0, 1, 2]
    assert len(calls) == 4


@pytest.mark.parametrize("name", ["cache", "cache/x.safetensors"])
def test_no_link_is_followed(name, tmp_path):
    victim, run = tmp_path / "victim", tmp_path / "run"
    for folder in (victim, run, *([run / "cache"] if name != "cache" else [])):
        folder.mkdir()
    os.symlink(victim if name == "cache" else victim / "file", run / name)
    with pytest.raises(ValueError, match="is a symbolic link"):
        load_or_compute(run, "x", "key", lambda: {"values": torch.arange(3)})
    assert not [*victim.iterdir()]
