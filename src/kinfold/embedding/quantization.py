"""Smaller embeddings: fewer dimensions, int8 or one bit for each, and search that rescores exactly.

`compare_sizes` measures every combination; `quantize` makes one; `Quantized.search` proposes candidates by the small
vectors and ranks them by the exact ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from kinfold import registry
from kinfold.data.items import Array
from kinfold.files.atomic import write_atomic
from kinfold.metrics import examine, neighbors
from kinfold.metrics.intervals import bootstrap
from kinfold.pairs import Labels, normalize

Precision = Literal["float32", "int8", "binary"]
BITS: dict[str, int] = {"float32": 32, "int8": 8, "binary": 1}


@dataclass(frozen=True, eq=False)
class Quantized:
    """Embeddings in fewer dimensions and bits, compared by cosine.

    Attributes:
        codes: float32 (N, dim), int8 (N, dim), or uint8 (N, ceil(dim / 8)) with eight dimensions in each byte.
        precision: "float32", "int8" or "binary".
        dim: Dimensions, the first ones of the embeddings.
        scales: int8: what 127 stands for in each dimension, (dim,); otherwise empty.
    """

    codes: Array
    precision: Precision
    dim: int
    scales: Array

    @property
    def bytes_per_item(self) -> int:
        """Bytes of one item."""
        return int(self.codes.dtype.itemsize * self.codes.shape[1])

    def save(self, path: Path | str, labels: Array | None = None) -> None:
        """Write codes and what is needed to read them, with labels where they are given, to an .npz file."""
        columns: dict[str, Array] = {"codes": self.codes, "scales": self.scales}
        columns |= {"precision": np.array(self.precision), "dim": np.array(self.dim)}
        columns |= {} if labels is None else {"labels": labels}
        save: Any = np.savez  # its stub takes keywords for options
        write_atomic(Path(path), lambda file: save(file, **columns))

    @staticmethod
    def load(path: Path | str) -> "Quantized":
        """Read what `save` wrote.

        Raises:
            ValueError: The file holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                columns = {name: file[name] for name in ("codes", "scales", "precision", "dim")}
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{path} does not hold quantized embeddings: {error}") from None
        precision: Any = str(columns["precision"])
        return Quantized(columns["codes"], precision, int(columns["dim"]), columns["scales"])

    def decode(self) -> Tensor:
        """Return the embeddings that the codes stand for, float32 (N, dim); +1 and -1 for binary ones."""
        if self.precision == "int8":
            return torch.from_numpy(self.codes.astype(np.float32) * (self.scales / 127))
        if self.precision == "binary":
            bits = np.unpackbits(self.codes, axis=1, count=self.dim)
            return torch.from_numpy(2 * bits.astype(np.float32) - 1)
        return torch.from_numpy(self.codes)

    def search(self, queries: Tensor, exact: Tensor, k: int = 10, candidates: int = 100) -> tuple[Tensor, Tensor]:
        """Find nearest items: candidates by the codes, ranked by the cosine of the exact embeddings.

        Args:
            queries: Embeddings of the queries, (Q, d); their first `dim` entries are compared with the codes.
            exact: Embeddings of the items, (N, d). Only the candidates' rows are read.
            k: Items to return.
            candidates: Items that the codes propose. As many as there are items give the exact result.

        Returns:
            Exact cosine similarities and positions, (Q, k), the nearest first.

        Raises:
            ValueError: Shapes do not fit.
        """
        if len(exact) != len(self.codes) or queries.shape[1] != exact.shape[1]:
            raise ValueError(
                f"expected exact embeddings ({len(self.codes)}, {queries.shape[1]}), got {tuple(exact.shape)}"
            )
        candidates = min(max(k, candidates), len(self.codes))
        proposed = neighbors(queries[:, : self.dim], self.decode(), k=candidates)[1].cpu()
        rows = normalize(exact[proposed].double())  # (Q, candidates, d)
        scores = torch.einsum("qd,qcd->qc", normalize(queries.double()), rows)
        values, order = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :k].float(), proposed.gather(1, order[:, :k])


def quantize(embeddings: Tensor, precision: Precision = "int8", dim: int | None = None) -> Quantized:
    """Cut embeddings to their first dimensions, scale them to length one, and store fewer bits.

    Args:
        embeddings: (N, d).
        precision: "float32"; "int8", 127 steps on each side of zero, up to the largest value of each dimension; or
            "binary", the sign.
        dim: Dimensions to keep; all if left out.

    Raises:
        ValueError: An option is wrong.

    Examples:
        >>> quantize(torch.tensor([[0.6, -0.8], [1.0, 0.0]]), "int8").codes.tolist()
        [[76, -127], [127, 0]]
    """
    if precision not in get_args(Precision):
        near = registry.suggest(precision, BITS)
        raise ValueError(f"unknown precision {precision!r}{near}; there are {', '.join(BITS)}")
    dim = embeddings.shape[1] if dim is None else dim
    if not 1 <= dim <= embeddings.shape[1]:
        raise ValueError(f"the embeddings have {embeddings.shape[1]} dimensions, so dim is from 1 to that; got {dim}")
    rows = normalize(embeddings[:, :dim].float()).numpy()
    none = np.zeros(0, dtype=np.float32)
    if precision == "float32":
        return Quantized(rows, precision, dim, none)
    if precision == "binary":
        return Quantized(np.packbits(rows > 0, axis=1), precision, dim, none)
    scales = np.maximum(np.abs(rows).max(axis=0), np.finfo(np.float32).tiny)
    return Quantized(np.rint(rows / scales * 127).astype(np.int8), precision, dim, scales.astype(np.float32))


@dataclass(frozen=True)
class SizeRow:
    """The score of one dimension and precision.

    Attributes:
        dim: Dimensions.
        precision: Of each.
        bytes: Of one item.
        score: The metric.
        low, high: Ends of its 95 % bootstrap interval over classes.
        loss_low: Lower end of the 95 % interval of its difference to the full embedding.
        worse: Whether the difference is significantly below zero.
    """

    dim: int
    precision: Precision
    bytes: int
    score: float
    low: float
    high: float
    loss_low: float
    worse: bool


def compare_sizes(
    embeddings: Tensor,
    labels: Labels,
    dims: Sequence[int] | None = None,
    precisions: Sequence[Precision] = ("float32", "int8", "binary"),
    metric: str = "recall@1",
) -> list[SizeRow]:
    """Measure every dimension and precision, the largest first.

    Queries and gallery have the same precision. Intervals are over classes, and differences are paired by query.

    Args:
        embeddings: (N, d), compared by cosine.
        labels: Their classes, which training should not have seen.
        dims: Dimensions; if left out d and its halves down to 16.
        precisions: Precisions.
        metric: A retrieval metric.

    Returns:
        One row for each. `choose_size` takes the smallest that is not significantly worse.

    Raises:
        ValueError: The metric has no value for each query, or no class has two items.
    """
    width = embeddings.shape[1]
    if dims is None:
        dims = [width, *(width >> shift for shift in range(1, 12) if width >> shift >= 16)]

    def evaluate(dim: int, precision: Precision) -> tuple[int, Tensor, Tensor]:
        small = quantize(embeddings, precision, dim)
        result = examine(small.decode(), labels, metrics=[metric])
        if metric not in result.per_query:
            raise ValueError(f"{metric} has no value for each query, and sizes are compared by query: take recall@1")
        return small.bytes_per_item, result.per_query[metric], result.query_class

    _, full, query_class = evaluate(width, "float32")
    if full.isnan().all():
        raise ValueError(f"{metric} has no value: no class has two items that could find each other")
    rows = []
    for dim in sorted({*dims}, reverse=True):
        for precision in precisions:
            size, values, _ = evaluate(dim, precision)
            intervals = bootstrap({"score": values, "difference": values - full}, query_class, "classes")
            low, high = intervals["score"]
            worse = intervals["difference"][1] < 0
            score = float(values[~values.isnan()].mean())
            rows.append(SizeRow(dim, precision, size, score, low, high, intervals["difference"][0], worse))
    return rows


def choose_size(rows: Sequence[SizeRow]) -> SizeRow:
    """Return the smallest of the rows that are not significantly worse than the full embedding.

    Raises:
        ValueError: All are worse.
    """
    good = [row for row in rows if not row.worse]
    if not good:
        raise ValueError("every size is significantly worse than the full embedding; add larger dims or float32")
    return min(good, key=lambda row: (row.bytes, -row.score))
