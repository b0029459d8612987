"""Properties of the embedding space: spectra, density, uniformity, alignment.

The study of Roth et al. (ICML 2020) measured these on training classes. They are defined for any set.
"""

import math

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.rows import normalize_rows

_ROWS_PER_CHUNK = 1 << 16
_ROWS_PER_BLOCK = 2048


def spectrum(embeddings: Tensor) -> Tensor:
    """Compute the singular values of embeddings, without centering.

    Args:
        embeddings: (N, d).

    Returns:
        (min(N, d),) float64, largest first.
    """
    rows, d = embeddings.shape
    if rows <= 4 * d:
        direct: Tensor = torch.linalg.svdvals(embeddings.double())
        return direct
    # R of a QR decomposition has the same singular values, and can be updated chunk by chunk
    upper = embeddings.new_zeros(0, d, dtype=torch.float64)
    for start in range(0, rows, _ROWS_PER_CHUNK):
        block = torch.cat([upper, embeddings[start : start + _ROWS_PER_CHUNK].double()])
        upper = torch.linalg.qr(block, mode="r").R
    values: Tensor = torch.linalg.svdvals(upper)
    return values


def class_spectrum(embeddings: Tensor, labels: Tensor, num_values: int = 35) -> Tensor:
    """Compute the largest singular values within a class, averaged over the classes of at least two items.

    Args:
        embeddings: (N, d).
        labels: Integer labels, (N,).
        num_values: The number of singular values, at most d.

    Returns:
        (num_values,) float64, largest first.
    """
    num_values = min(num_values, embeddings.shape[1])
    total = torch.zeros(num_values, dtype=torch.float64, device=embeddings.device)
    classes = 0
    order = torch.argsort(labels, stable=True)
    sizes = torch.unique(labels, return_counts=True)[1]
    for members in torch.split(order, sizes.tolist()):
        if members.shape[0] > 1:
            values = torch.linalg.svdvals(embeddings[members].double())[:num_values]
            total[: values.shape[0]] += values
            classes += 1
    return total / max(1, classes)


def spectral_decay(singular_values: Tensor, drop: int = 0) -> float:
    """Return rho = KL(uniform || spectrum) of the values without the `drop` largest; 0 is a flat spectrum.

    The values are divided by their sum. rho@1 drops none, rho@2 the largest one. Shares below the float64 epsilon count
    as the epsilon.
    """
    values = singular_values[drop:]
    if values.shape[0] == 0:
        raise ValueError(
            f"rho@{drop + 1} leaves out {drop} of {singular_values.shape[0]} singular values: none is left"
        )
    total = float(values.sum())
    if total == 0.0:
        return 0.0
    share = (values / total).clamp(min=torch.finfo(torch.float64).eps)
    return float(-(share * values.shape[0]).log().mean())


def alignment(embeddings: Tensor, labels: Tensor) -> float:
    """Return the mean squared distance of positive pairs on the unit sphere (Wang and Isola, ICML 2020)."""
    unit = normalize_rows(embeddings).double()
    sums, sizes = _class_sums(unit, labels)
    lengths = torch.zeros_like(sizes).index_add_(0, _codes(labels), unit.square().sum(dim=1))
    # sum over ordered pairs of |x - y|^2 = 2 n sum |x|^2 - 2 |sum x|^2
    squared = 2.0 * (sizes * lengths - sums.square().sum(dim=1))
    pairs = float((sizes * (sizes - 1)).sum())
    return float(squared.sum()) / pairs if pairs else math.nan


def uniformity(embeddings: Tensor, temperature: float = 2.0, world: World | None = None) -> float:
    """Return log mean over pairs of exp(-t |x - y|^2) on the unit sphere (Wang and Isola, ICML 2020).

    A zero row stays in the center, at distance one from the sphere.
    """
    unit, world = normalize_rows(embeddings), world or World()
    n = unit.shape[0]
    if n < 2:
        return math.nan
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    half = unit.any(dim=1).to(unit.dtype) / 2  # half of the squared length, which is one or zero
    starts = [(i, j) for i in range(0, n, _ROWS_PER_BLOCK) for j in range(i, n, _ROWS_PER_BLOCK)]
    for i, j in starts[world.rank :: world.size]:
        product = torch.addmm(
            half[j : j + _ROWS_PER_BLOCK], unit[i : i + _ROWS_PER_BLOCK], unit[j : j + _ROWS_PER_BLOCK].T, beta=-1.0
        )
        kernel = product.sub_(half[i : i + _ROWS_PER_BLOCK, None]).mul_(2.0 * temperature).exp_()  # -t |x - y|^2
        if i == j:
            kernel.fill_diagonal_(0.0)
        total += kernel.sum(dtype=torch.float64) * (1.0 if i == j else 2.0)
    world.sum_in_place(total)
    return math.log(float(total) / (n * (n - 1)))


def intra(embeddings: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of the mean cosine distance within; classes of one item are left out."""
    unit = normalize_rows(embeddings).double()
    sums, sizes = _class_sums(unit, labels)
    lengths = torch.zeros_like(sizes).index_add_(0, _codes(labels), unit.square().sum(dim=1))
    has_pairs = sizes > 1
    if not bool(has_pairs.any()):
        return math.nan
    similarity = (sums.square().sum(dim=1) - lengths)[has_pairs] / (sizes * (sizes - 1))[has_pairs]
    return float((1.0 - similarity).mean())


def inter(embeddings: Tensor, labels: Tensor) -> float:
    """Return the mean cosine distance between the directions of class means, over ordered pairs of classes."""
    sums, _ = _class_sums(normalize_rows(embeddings).double(), labels)
    means = normalize_rows(sums)
    count = means.shape[0]
    if count < 2:
        return math.nan
    similarity = (means.sum(dim=0).square().sum() - means.square().sum()) / (count * (count - 1))
    return float(1.0 - similarity)


def density(embeddings: Tensor, labels: Tensor) -> float:
    """Return intra / inter, the pi_ratio of Roth et al. (ICML 2020)."""
    return intra(embeddings, labels) / max(inter(embeddings, labels), 1e-8)


def _codes(labels: Tensor) -> Tensor:
    codes: Tensor = torch.unique(labels, return_inverse=True)[1]
    return codes


def _class_sums(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    codes = _codes(labels)
    sizes = torch.bincount(codes).double()
    sums = torch.zeros(sizes.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    return sums.index_add_(0, codes, rows), sizes
