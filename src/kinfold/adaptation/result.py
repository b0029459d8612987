"""The result of an adaptation: its table, its verdict and the run of the winner."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.ladder import LadderRow
from kinfold.data import Dataset
from kinfold.pairs import normalize
from kinfold.training import Run


@dataclass(frozen=True, repr=False)
class Adaptation:
    """A finished adaptation; `kinfold.adapt` returns it, and `Adaptation.open` reads it from its folder.

    Attributes:
        folder: The folder of the run that the winner was fitted in.
        steps: The steps of the ladder.
        winner: Name of the step that the run holds.
        verdict: What to do, in a sentence or two.
        test: Metric -> input, adapted, gain, low and high end of its 95 % interval over classes, on the test classes;
            empty where there are none.
        dataset: The dataset, where the configuration of the run does not name it.
    """

    folder: Path
    steps: Sequence[LadderRow]
    winner: str
    verdict: str
    test: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dataset: Dataset | None = None

    @staticmethod
    def open(folder: Path | str, dataset: Dataset | None = None) -> "Adaptation":
        """Read a finished adaptation.

        Raises:
            ValueError: The folder holds none, or it is not finished.
        """
        files = AdaptationFolder(folder)
        if not files.finished:
            raise ValueError(f"{files.run} holds no finished adaptation; kinfold adapt begins or continues one")
        table = files.read_final()
        rows = [LadderRow(**_null_to_nan(row)) for row in table["steps"]]
        return Adaptation(files.run, rows, table["winner"], table["verdict"], table.get("test", {}), dataset)

    @property
    def improved(self) -> bool:
        """Whether a step was taken."""
        return any(row.taken for row in self.steps)

    @property
    def run(self) -> Run:
        """The run of the winner, fitted to all training classes."""
        return Run.open(self.folder, self.dataset)

    def embed(self, things: Any) -> Tensor:
        """Embed rows in the adapted space, (N, dim), of length one where they are compared by cosine."""
        embeddings = self.run.embed(things)
        return normalize(embeddings) if self.run.distance == "cosine" else embeddings

    def cells(self) -> list[list[str]]:
        """Return the ladder as rows of text, in percent; the first row is the header."""
        metrics = [*self.steps[0].metrics] if self.steps else []
        header = ["step", "best candidate", "score (95 %)", *metrics, "gain (95 %)", "p", "taken", "seconds"]
        return [header, *(_format_row(row, metrics) for row in self.steps)]

    def table(self) -> str:
        """Return the ladder as a table of text, in percent."""
        rows = self.cells()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Adaptation {str(self.folder)!r}: {self.winner}>\n{self.table()}\n{self.verdict}"


def _format_row(row: LadderRow, metrics: Sequence[str]) -> list[str]:
    if not row.candidate:
        return [row.step, row.note, "", *("" for _ in metrics), "", "", "", ""]
    gain = "" if math.isnan(row.gain) else f"{100 * row.gain:+.2f} ± {100 * row.gain_half_width:.2f}"
    tested = not math.isnan(row.p)
    return [
        row.step,
        row.candidate,
        f"{100 * row.score:.2f} ± {100 * row.half_width:.2f}",
        *(f"{100 * row.metrics[name]:.2f}" for name in metrics),
        gain,
        f"{row.p:.2g}" if tested else "",
        (f"no: lower {' and '.join(row.lower)}" if row.lower else "yes" if row.taken else "no") if tested else "",
        f"{row.seconds:.0f}",
    ]


def _null_to_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in row.items()}
