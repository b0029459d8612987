"""The size of embeddings that was chosen for a run, kept in its folder, so that exports have it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.embedding.kept import embed_items
from kinfold.embedding.quantization import Precision, SizeRow, choose_size, compare_sizes, quantize
from kinfold.files.documents import read_result, write_result
from kinfold.models.code_output import CodeOutput

FILE = "size.json"
_SHAPE = {"metric": str, "split": str, "rows": [{str: object}], "chosen": {str: object}, "scales": [float]}


@dataclass(frozen=True)
class StoredSize:
    """The smallest size of the embeddings of a run that is not significantly worse than the full one.

    Attributes:
        rows: The score of every dimension and precision.
        chosen: The row that was chosen.
        metric: What was measured.
        split: The classes that it was measured on.
        scales: int8: what 127 stands for in each dimension; otherwise empty.
    """

    rows: Sequence[SizeRow]
    chosen: SizeRow
    metric: str
    split: str
    scales: Sequence[float]

    @property
    def precision(self) -> Precision:
        """Precision of the chosen size."""
        return self.chosen.precision

    def create_output(self) -> CodeOutput:
        """Return the module that turns embeddings of the run into codes of the chosen size."""
        scales = torch.tensor(self.scales) if self.precision == "int8" else None
        return CodeOutput(self.chosen.dim, self.precision, scales)


def choose_run_size(
    run: EmbeddingRun,
    dims: Sequence[int] | None = None,
    *,
    metric: str = "recall@1",
    split: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> StoredSize:
    """Measure sizes on classes of a run that were not trained on, and store the smallest that is good enough.

    Args:
        run: A run that compares by cosine.
        dims: Dimensions; if left out all and halves of it.
        metric: A retrieval metric.
        split: "test" or "validation"; None takes the test classes where they may be looked at, else validation.
        progress: Called with a stage and the share that is finished.

    Raises:
        ValueError: The split was trained on, or the run does not compare by cosine.
    """
    from kinfold.calibration.stored import select_unseen  # which imports this package

    if run.distance != "cosine":
        raise ValueError(f"sizes are of cosines, but the run {run.folder} compares by {run.distance} distance")
    name, dataset, _ = select_unseen(run, split)
    embeddings = embed_items(run, dataset, progress)
    rows = compare_sizes(embeddings, dataset.labels, dims, metric=metric)
    chosen = choose_size(rows)
    scales = quantize(embeddings, chosen.precision, chosen.dim).scales.tolist()
    result = StoredSize(rows, chosen, metric, name, scales)
    table = {**asdict(result), "fingerprint": fingerprint_run(run)}
    write_result(Path(run.folder) / FILE, table, Path(run.folder))
    return result


def read_run_size(run: EmbeddingRun) -> StoredSize | None:
    """Return the size that was chosen for a run; None where there is none.

    Raises:
        ValueError: It is damaged, or of other weights.
    """
    path = Path(run.folder) / FILE
    if not path.is_file():
        return None
    table: dict[str, Any] = read_result(path, _SHAPE, Path(run.folder))
    if table.get("fingerprint") != fingerprint_run(run):
        raise ValueError(f"{path} is of other weights than the run has now: run `kinfold compress {run.folder}` again")
    rows = [SizeRow(**row) for row in table["rows"]]
    return StoredSize(rows, SizeRow(**table["chosen"]), table["metric"], table["split"], table["scales"])
