"""Codes as the output of a network: those of `quantize`, in files of every format."""

import numpy as np
import pytest
import torch

from kinfold.embedding import quantize
from kinfold.models import create
from kinfold.models.code_output import CodeOutput
from kinfold.models.export import DeployedModel, ExportError, export
from tests.models.test_export import FORMATS, answers


def embeddings(count=40, dim=21):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dim", [21, 16, 5])
@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_codes_are_those_of_quantize(precision, dim):
    rows = embeddings()
    expected = quantize(rows, precision, dim)
    scales = torch.from_numpy(expected.scales) if precision == "int8" else None
    codes = CodeOutput(dim, precision, scales)(rows)
    assert codes.numpy().dtype == expected.codes.dtype
    if precision == "float32":
        assert torch.allclose(codes, torch.from_numpy(expected.codes), atol=1e-6)
    else:
        assert np.array_equal(codes.numpy(), expected.codes)


def test_values_beyond_the_scale_are_cut():
    codes = CodeOutput(2, "int8", torch.tensor([0.1, 1.0]))(torch.tensor([[-3.0, 4.0]]))
    assert codes.tolist() == [[-127, 102]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMATS.values())
@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_a_file_returns_codes_for_any_batch_size(name, precision, tmp_path):
    network = create("features", dim=21, backbone_options={"width": 12})
    rows = embeddings(dim=12)
    with torch.no_grad():
        expected = quantize(network(rows), precision, 13)
    output = CodeOutput(13, precision, torch.from_numpy(expected.scales) if precision == "int8" else None)
    written = export(DeployedModel(network, None, unit=True, output=output), tmp_path / name, rows)
    assert (written.metadata["dim"], written.metadata["precision"]) == ("13", precision)
    computed = np.asarray(answers(tmp_path / name, rows[:7]))
    assert computed.dtype == expected.codes.dtype
    if precision == "float32":
        assert np.allclose(computed, expected.codes[:7], atol=1e-5)
    else:
        assert np.mean(computed != expected.codes[:7]) < 0.02


@pytest.mark.parametrize("codes", [torch.int8, torch.uint8])
def test_a_file_with_other_codes_is_refused(codes, tmp_path, monkeypatch):
    network = create("features", dim=8, backbone_options={"width": 12})
    output = CodeOutput(8, "binary") if codes == torch.uint8 else CodeOutput(8, "int8", torch.ones(8))
    change = (lambda rows: rows ^ 1) if codes == torch.uint8 else (lambda rows: rows + 2)
    monkeypatch.setattr(
        "kinfold.models.export._read_torch", lambda path: lambda rows: change(output(network(rows))).to(codes)
    )
    with pytest.raises(ExportError, match="differs from the original"):
        export(DeployedModel(network, None, unit=False, output=output), tmp_path / "x.pt2", embeddings(dim=12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, "int7"), "int7"),
        ((4, "int8"), "int8 codes need scales"),
        ((4, "binary", torch.ones(4)), "other precisions have none"),
        ((4, "int8", torch.ones(3)), "expected 4 positive scales"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        CodeOutput(*arguments)
