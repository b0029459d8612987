"""Weights from files: what fits is loaded exactly, what does not is named, and nothing in a file is executed."""

import os
import pickle
from collections import OrderedDict

import pytest
import torch
from safetensors import torch as safetensors

from kinfold import models
from kinfold.models.weight_files import read_weights


@pytest.fixture(scope="module")
def published():
    """As the files of papers are: another network's weights, with a classifier, without counters of batches."""
    backbone = models.create("bn-inception", seed=5).backbone
    weights = {key: value for key, value in backbone.state_dict().items() if "num_batches" not in key}
    weights["conv1_7x7_s2_bn.running_mean"] = torch.arange(64.0)
    return weights | {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}


def loads(path, published, name="bn-inception"):
    state = models.create(name, weights=path).backbone.state_dict()
    return all(torch.equal(state[key], value) for key, value in published.items() if "last_linear" not in key)


def test_pth_and_safetensors_files_are_loaded(published, tmp_path):
    torch.save(published, tmp_path / "w.pth")
    torch.save(OrderedDict(published), tmp_path / "w.pt")
    safetensors.save_file(published, tmp_path / "w.safetensors")
    for name in ("w.pth", "w.pt", "w.safetensors"):
        assert loads(tmp_path / name, published)
        assert loads(str(tmp_path / name), published)


def test_habits_of_published_files_are_tolerated(published, tmp_path):
    torch.save({"state_dict": {f"module.{key}": value for key, value in published.items()}}, tmp_path / "parallel.pth")
    assert loads(tmp_path / "parallel.pth", published)
    torch.save({key: v[None] if "_bn." in key else v for key, v in published.items()}, tmp_path / "early.pth")
    assert loads(tmp_path / "early.pth", published)
    torch.save({key: v.half() if v.ndim == 4 else v for key, v in published.items()}, tmp_path / "half.pth")
    backbone = models.create("bn-inception", weights=tmp_path / "half.pth").backbone
    assert torch.equal(backbone.conv2_3x3.weight, published["conv2_3x3.weight"].half().float())


def test_the_head_does_not_depend_on_the_weights(published, tmp_path):
    torch.save(published, tmp_path / "w.pth")
    loaded = models.create("bn-inception", weights=tmp_path / "w.pth")
    assert torch.equal(loaded.head.weight, models.create("bn-inception").head.weight)


def refused(weights, tmp_path, name="bn-inception"):
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth does not fit") as problem:
        models.create(name, weights=tmp_path / "w.pth")
    return str(problem.value)


def test_missing_unexpected_and_misshapen_keys_are_named(published, tmp_path):
    missing = {key: value for key, value in published.items() if not key.startswith("inception_5b")}
    message = refused(missing, tmp_path)
    assert "missing: inception_5b_1x1.weight, inception_5b_1x1.bias" in message
    assert "and 38 more" in message  # seven convolutions of six entries each, four of them shown
    assert "bn_inception-52deb4733.pth" in message
    assert "list_weight_shapes(backbone) lists its 414 keys" in message
    assert "unexpected:" not in message
    message = refused(published | {"inception_6a_1x1.weight": torch.zeros(1)}, tmp_path)
    assert "unexpected: inception_6a_1x1.weight." in message
    assert "missing:" not in message
    message = refused(published | {"conv2_3x3.weight": torch.zeros(192, 64, 1, 1)}, tmp_path)
    assert "of another shape: conv2_3x3.weight is 192 x 64 x 1 x 1, not 192 x 64 x 3 x 3" in message


def test_a_file_that_does_not_fit_changes_nothing(published, tmp_path):
    torch.save(published | {"conv2_3x3.weight": torch.zeros(1)}, tmp_path / "w.pth")
    backbone = models.create("bn-inception").backbone
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit"):
        models.load_weights(backbone, tmp_path / "w.pth")
    assert all(torch.equal(before[key], value) for key, value in backbone.state_dict().items())


def test_the_file_of_another_network_is_refused(published, tmp_path):
    message = refused(published, tmp_path, name="resnet50")
    assert "missing: conv1.weight" in message
    assert "torchvision's resnet50" in message


def test_the_manifest_lists_keys_and_shapes_without_counters():
    manifest = models.list_weight_shapes(models.create("conv4", backbone_options={"width": 64}).backbone)
    assert manifest["block1.0.weight"] == (8, 1, 3, 3)
    assert manifest["block4.1.running_var"] == (64,)
    assert len(manifest) == 4 * 5


class Malicious:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_file_that_would_run_code_is_refused_and_does_not_run_it(tmp_path):
    mark = tmp_path / "executed"
    torch.save({"conv1.weight": Malicious(mark)}, tmp_path / "bad.pth")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Malicious(mark)))
    for name in ("bad.pth", "raw.pth"):
        with pytest.raises(ValueError, match="is refused: it is damaged, or holds more than tensors"):
            models.create("resnet50", weights=tmp_path / name)
    assert not mark.exists()
    pickle.loads((tmp_path / "raw.pth").read_bytes())
    assert mark.exists()  # it would have


def test_an_error_explains_why_a_file_holds_no_weights(tmp_path):
    with pytest.raises(ValueError, match=r"there is no weight file .*imagenett"):
        models.create("resnet50", weights="imagenett")
    (tmp_path / "w.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"\.safetensors, \.pth or \.pt files, got w\.bin"):
        models.create("resnet50", weights=tmp_path / "w.bin")
    (tmp_path / "w.safetensors").write_bytes(b"not a header")
    with pytest.raises(ValueError, match="is no safetensors file"):
        models.create("resnet50", weights=tmp_path / "w.safetensors")
    for content in ([torch.zeros(1)], {"a": 1}, {}):
        torch.save(content, tmp_path / "odd.pth")
        with pytest.raises(ValueError, match=r"holds no plain dictionary of tensors|does not fit"):
            models.create("resnet50", weights=tmp_path / "odd.pth")
    for damaged in (b"", b"junk", b"PK\x03\x04junk"):
        (tmp_path / "cut.pth").write_bytes(damaged)
        with pytest.raises(ValueError, match="is refused: it is damaged"):
            models.create("resnet50", weights=tmp_path / "cut.pth")


def test_a_whole_embedder_survives_a_round_trip(tmp_path):
    embedder = models.create("conv4", dim=5, seed=1)
    torch.save(embedder.state_dict(), tmp_path / "w.pth")
    again = models.create("conv4", dim=5, seed=2)
    again.load_state_dict(read_weights(tmp_path / "w.pth"))
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(embedder.eval()(images), again.eval()(images))
