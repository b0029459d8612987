"""What the embedding space looks like: spectra, density, uniformity, alignment.

The study of Roth et al. (ICML 2020) measured these on training classes; they say something about any set.
"""

import math

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.query_gallery import normalize_rows

_ROWS_AT_ONCE = 1 << 16
_BLOCK = 2048


def spectrum(embeddings: Tensor) -> Tensor:
    """Singular values (min(N, d),) of the embeddings, not centred, largest first, float64."""
    rows, d = embeddings.shape
    if rows <= 4 * d:
        few: Tensor = torch.linalg.svdvals(embeddings.double())
        return few
    # R of a QR decomposition has the singular values of the whole, and is put together from blocks
    upper = embeddings.new_zeros(0, d, dtype=torch.float64)
    for start in range(0, rows, _ROWS_AT_ONCE):
        block = torch.cat([upper, embeddings[start : start + _ROWS_AT_ONCE].double()])
        upper = torch.linalg.qr(block, mode="r").R
    found: Tensor = torch.linalg.svdvals(upper)
    return found


def class_spectrum(embeddings: Tensor, labels: Tensor, values: int = 35) -> Tensor:
    """The largest singular values (values,) within a class, averaged over the classes of at least two items."""
    values = min(values, embeddings.shape[1])
    total = torch.zeros(values, dtype=torch.float64, device=embeddings.device)
    classes = 0
    order = torch.argsort(labels, stable=True)
    sizes = torch.unique(labels, return_counts=True)[1]
    for members in torch.split(order, sizes.tolist()):
        if members.shape[0] > 1:
            found = torch.linalg.svdvals(embeddings[members].double())[:values]
            total[: found.shape[0]] += found
            classes += 1
    return total / max(1, classes)


def spectral_decay(singular_values: Tensor, drop: int = 0) -> float:
    """rho: KL(uniform || spectrum) of the values without the `drop` largest, summing to one; 0 is a flat spectrum.

    rho@1 drops none, rho@2 the largest one. A vanishing value counts as the smallest that float64 can tell from zero.
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
    """Mean squared distance of positive pairs on the unit sphere (Wang and Isola, ICML 2020); lower is tighter."""
    unit = normalize_rows(embeddings).double()
    sums, sizes = _class_sums(unit, labels)
    lengths = torch.zeros_like(sizes).index_add_(0, _codes(labels), unit.square().sum(dim=1))
    # sum over ordered pairs of |x - y|^2 = 2 n sum |x|^2 - 2 |sum x|^2
    squared = 2.0 * (sizes * lengths - sums.square().sum(dim=1))
    pairs = float((sizes * (sizes - 1)).sum())
    return float(squared.sum()) / pairs if pairs else math.nan


def uniformity(embeddings: Tensor, temperature: float = 2.0, world: World | None = None) -> float:
    """log mean over pairs of exp(-t |x - y|^2) on the unit sphere (Wang and Isola, ICML 2020); lower is more even.

    A zero row stays in the center, at distance one from the sphere.
    """
    unit, world = normalize_rows(embeddings), world or World()
    n = unit.shape[0]
    if n < 2:
        return math.nan
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    half = unit.any(dim=1).to(unit.dtype) / 2  # of the squared length, which is one or zero
    starts = [(i, j) for i in range(0, n, _BLOCK) for j in range(i, n, _BLOCK)]
    for i, j in starts[world.rank :: world.size]:
        product = torch.addmm(half[j : j + _BLOCK], unit[i : i + _BLOCK], unit[j : j + _BLOCK].T, beta=-1.0)
        kernel = product.sub_(half[i : i + _BLOCK, None]).mul_(2.0 * temperature).exp_()  # -t |x - y|^2
        if i == j:
            kernel.fill_diagonal_(0.0)
        total += kernel.sum(dtype=torch.float64) * (1.0 if i == j else 2.0)
    world.sum_in_place(total)
    return math.log(float(total) / (n * (n - 1)))


def intra(embeddings: Tensor, labels: Tensor) -> float:
    """Mean over classes of the mean cosine distance within; classes of one item are left out."""
    unit = normalize_rows(embeddings).double()
    sums, sizes = _class_sums(unit, labels)
    lengths = torch.zeros_like(sizes).index_add_(0, _codes(labels), unit.square().sum(dim=1))
    kept = sizes > 1
    if not bool(kept.any()):
        return math.nan
    similarity = (sums.square().sum(dim=1) - lengths)[kept] / (sizes * (sizes - 1))[kept]
    return float((1.0 - similarity).mean())


def inter(embeddings: Tensor, labels: Tensor) -> float:
    """Mean cosine distance between the directions of class means, over ordered pairs of classes."""
    sums, _ = _class_sums(normalize_rows(embeddings).double(), labels)
    means = normalize_rows(sums)
    count = means.shape[0]
    if count < 2:
        return math.nan
    similarity = (means.sum(dim=0).square().sum() - means.square().sum()) / (count * (count - 1))
    return float(1.0 - similarity)


def density(embeddings: Tensor, labels: Tensor) -> float:
    """intra / inter, the study's pi_ratio: larger went with better generalisation."""
    return intra(embeddings, labels) / max(inter(embeddings, labels), 1e-8)


def _codes(labels: Tensor) -> Tensor:
    codes: Tensor = torch.unique(labels, return_inverse=True)[1]
    return codes


def _class_sums(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    codes = _codes(labels)
    sizes = torch.bincount(codes).double()
    sums = torch.zeros(sizes.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    return sums.index_add_(0, codes, rows), sizes
