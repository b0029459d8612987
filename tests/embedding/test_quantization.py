"""Quantized embeddings: codes, search with exact rescoring, and the table of sizes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfold.embedding import Quantized, choose_size, compare_sizes, quantize
from kinfold.metrics import evaluate, neighbors


def embeddings(count=200, width=32, classes=10, noise=0.6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    return torch.randn(classes, width, generator=generator)[labels] + noise * torch.randn(
        count, width, generator=generator
    ), labels


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 20))
def test_int8_errs_by_half_a_step_and_binary_keeps_signs(seed, dim):
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(seed))
    cut = torch.nn.functional.normalize(rows[:, :dim])
    small = quantize(rows, "int8", dim)
    assert ((small.decode() - cut).abs() <= torch.from_numpy(small.scales) / 254 + 1e-6).all()
    signs = quantize(rows, "binary", dim).decode()
    assert torch.equal(signs > 0, cut > 0)
    assert torch.allclose(quantize(rows, "float32", dim).decode(), cut, atol=1e-6)


def test_bytes_are_those_of_the_codes():
    rows, _ = embeddings(width=20)
    assert [quantize(rows, precision).bytes_per_item for precision in ("float32", "int8", "binary")] == [80, 20, 3]
    assert quantize(rows, "binary", 8).codes.shape == (200, 1)


@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_search_with_all_items_as_candidates_is_exact(precision):
    rows, _ = embeddings()
    small = quantize(rows, precision, 16)
    values, positions = small.search(rows[:7], rows, k=5, candidates=200)
    expected_values, expected = neighbors(rows[:7], rows, k=5)
    assert torch.equal(positions, expected.cpu())
    assert torch.allclose(values, expected_values.cpu().float(), atol=1e-6)


def test_rescoring_a_few_candidates_finds_more_than_the_codes_alone():
    rows, _ = embeddings(noise=2.0)
    small = quantize(rows, "binary")
    exact = neighbors(rows[:50], rows, k=1)[1].flatten().cpu()
    query_signs = quantize(rows[:50], "binary").decode()
    alone = neighbors(query_signs, small.decode(), k=2)[1][:, 1].cpu()
    second = neighbors(rows[:50], rows, k=2)[1][:, 1].cpu()
    rescored = small.search(rows[:50], rows, k=2, candidates=40)[1]
    assert (rescored[:, 0] == exact).all()
    assert (rescored[:, 1] == second).float().mean() > (alone == second).float().mean()


def test_the_table_has_the_scores_of_evaluate_and_the_smallest_good_size_is_chosen():
    rows, labels = embeddings(noise=0.8)
    table = compare_sizes(rows, labels, dims=[32, 16, 2])
    assert [(row.dim, row.precision) for row in table[:3]] == [(32, "float32"), (32, "int8"), (32, "binary")]
    assert table[0].score == pytest.approx(evaluate(rows, labels, metrics=["recall@1"])["recall@1"])
    assert not table[0].worse
    two_bits = table[-1]
    assert two_bits.worse
    assert two_bits.score < table[0].low
    chosen = choose_size(table)
    assert not chosen.worse
    assert all(row.worse or row.bytes >= chosen.bytes for row in table)
    assert all(row.low <= row.score <= row.high for row in table)
    with pytest.raises(ValueError, match="every size"):
        choose_size([two_bits])


def test_wrong_options_are_refused():
    rows, _ = embeddings()
    with pytest.raises(ValueError, match="did you mean 'int8'"):
        quantize(rows, "int9")
    with pytest.raises(ValueError, match="from 1 to that"):
        quantize(rows, "int8", 99)
    with pytest.raises(ValueError, match="expected exact embeddings"):
        quantize(rows, "int8").search(rows[:2], np.zeros((3, 3)), k=1)


@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_a_file_holds_what_was_saved(tmp_path, precision):
    rows, labels = embeddings()
    small = quantize(rows, precision, 12)
    small.save(tmp_path / "small.npz", labels.numpy())
    assert torch.equal(Quantized.load(tmp_path / "small.npz").decode(), small.decode())
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="does not hold quantized embeddings"):
        Quantized.load(tmp_path / "other.npz")
