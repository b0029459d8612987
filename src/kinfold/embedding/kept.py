"""Embeddings of images that a run keeps in its folder, so that an image is embedded once.

Searches, calibrations, galleries and reports of a run share them. An image is the same while its file has the same
path, size and modification time; one that is no file, while it has the same content.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from kinfold.data.dataset import Dataset
from kinfold.data.fingerprint import digest_items
from kinfold.embedding.encoders import EmbeddingRun
from kinfold.files.cache import load_cached, store_cached
from kinfold.files.checksums import digest_files

_NAME = "embeddings"  # of the cache file
_MOST_NUMBERS = 2**26  # kept of items beside those that were embedded last: 256 MiB in float32

Progress = Callable[[str, float], None]


def embed_items(
    run: EmbeddingRun,
    dataset: Dataset,
    progress: Progress | None = None,
    report: Callable[[str], object] | None = None,
) -> Tensor:
    """Embed the items of a dataset, or load the embeddings that the run keeps.

    Args:
        run: The run that embeds. Embeddings of features are not kept, because a head computes them as fast.
        dataset: The items.
        progress: Called with a stage and the share that is finished.
        report: Called with a message where embeddings cannot be kept.

    Returns:
        (N, dim) in the order of the dataset.

    Raises:
        ValueError: The run embeds items of another kind, or an image cannot be read.
    """
    if run.pipeline is None:
        return embed_unkept(run, dataset, progress)
    return KeptEmbeddings(run).embed(dataset, progress, report=report)


class KeptEmbeddings:
    """The embeddings that a run on images keeps, read once.

    Args:
        run: A run with weights.
    """

    def __init__(self, run: EmbeddingRun) -> None:
        self.run = run
        self._key = f"{digest_files(run.weight_files())} {run.pipeline!r}"
        self._rows: dict[bytes, int] = {}  # digest of an item -> its row, oldest first
        self._embeddings = torch.zeros(0, 0)
        entry = load_cached(run.folder, _NAME, self._key)
        if entry is not None and entry["digests"].numel() == 16 * len(entry["embeddings"]):
            content = entry["digests"].numpy().tobytes()
            self._rows = {content[16 * row : 16 * row + 16]: row for row in range(len(content) // 16)}
            self._embeddings = entry["embeddings"]

    def embed(
        self,
        dataset: Dataset,
        progress: Progress | None = None,
        *,
        keep: bool = True,
        report: Callable[[str], object] | None = None,
    ) -> Tensor:
        """Embed the items of a dataset; only those whose embeddings are not kept pass the network.

        Args:
            dataset: The items.
            progress: Called with a stage and the share that is finished.
            keep: Whether new embeddings are kept.
            report: Called with a message where they cannot be kept.

        Returns:
            (N, dim) in the order of the dataset.

        Raises:
            ValueError: The run embeds items of another kind, or an image cannot be read.
        """
        if not keep and not self._rows:
            return embed_unkept(self.run, dataset, progress)
        digests = digest_items(dataset)
        rows = torch.tensor([self._rows.get(digest, -1) for digest in digests], dtype=torch.int64)
        missing = rows < 0
        if not missing.any():
            return self._embeddings[rows]
        new = embed_unkept(self.run, dataset if missing.all() else dataset.where(missing), progress)
        embeddings = new.new_empty(len(rows), new.shape[1])
        embeddings[missing] = new
        embeddings[~missing] = self._embeddings[rows[~missing]].reshape(-1, new.shape[1])
        if keep:
            self._keep(digests, embeddings, report)
        return embeddings

    def keep(self, dataset: Dataset, embeddings: Tensor) -> None:
        """Keep embeddings of a dataset that were computed elsewhere, (N, dim)."""
        self._keep(digest_items(dataset), embeddings, None)

    def _keep(self, digests: list[bytes], embeddings: Tensor, report: Callable[[str], object] | None) -> None:
        """Keep the embeddings of some items; the oldest of other items are dropped where they are too many."""
        new = dict(zip(digests, embeddings, strict=True))
        older = [digest for digest in self._rows if digest not in new]
        older = older[max(0, len(older) - _MOST_NUMBERS // embeddings.shape[1]) :]
        self._embeddings = torch.stack([*(self._embeddings[self._rows[digest]] for digest in older), *new.values()])
        self._rows = {digest: row for row, digest in enumerate([*older, *new])}

        def warn(error: OSError) -> None:
            if report is not None:
                report(f"the embeddings are not kept for the next time: {error}")

        value = {
            "digests": torch.frombuffer(bytearray(b"".join(self._rows)), dtype=torch.uint8),
            "embeddings": self._embeddings,
        }
        store_cached(self.run.folder, _NAME, self._key, value, warn)


def embed_unkept(run: EmbeddingRun, dataset: Dataset, progress: Progress | None = None) -> Tensor:
    """Embed all items by the network, (N, dim).

    Args:
        run: The run that embeds.
        dataset: The items.
        progress: Called with a stage and the share that is finished.

    Raises:
        ValueError: The run embeds items of another kind, or an image cannot be read.
    """
    holds_features = getattr(dataset.items[0], "ndim", 0) == 1
    if holds_features != (run.pipeline is None):
        takes, has = ("images", "features") if holds_features else ("features", "images")
        raise ValueError(f"the run {run.folder} embeds {takes}, but {dataset.name} holds {has}")
    embeddings = run.embed(dataset, progress)
    if len(embeddings) != len(dataset):
        raise ValueError(
            f"{len(dataset) - len(embeddings):,} images of {dataset.name} cannot be read; "
            "`kinfold data check` names them: fix or remove them"
        )
    return embeddings
