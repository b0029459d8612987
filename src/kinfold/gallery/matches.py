"""What a search in a gallery returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kinfold.html_table import render_html_table
from kinfold.optional import import_optional


@dataclass(frozen=True)
class Match:
    """An item of a gallery that is near a query.

    Attributes:
        id, label, path: What the gallery knows of it; empty where it was not given.
        similarity: The cosine of its embedding and that of the query.
        row: Its position in the gallery when the search was made.
    """

    id: str
    label: str
    path: str
    similarity: float
    row: int

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON."""
        return {**vars(self)}


class Matches(Sequence[list[Match]]):
    """The nearest items of each query, the closest first.

    Args:
        similarities: Cosines, float64 (Q, k).
        rows: Positions in the gallery, (Q, k); -1 where an approximate search found fewer.
        items: The items of each query.
    """

    def __init__(self, similarities: Tensor, rows: Tensor, items: list[list[Match]]) -> None:
        self.similarities = similarities
        self.rows = rows
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    @property
    def labels(self) -> list[list[str]]:
        """The labels of the nearest items of each query."""
        return [[match.label for match in matches] for matches in self._items]

    @property
    def ids(self) -> list[list[str]]:
        """The ids of the nearest items of each query."""
        return [[match.id for match in matches] for matches in self._items]

    def __repr__(self) -> str:
        first = ", ".join(
            f"{match.label or match.id} {match.similarity:.3f}" for match in (self[0] if len(self) else [])
        )
        return f"<Matches of {len(self):,} queries, {self.rows.shape[1]} each; the first: {first}>"

    def _repr_html_(self) -> str:
        rows = [
            [query, rank, f"{match.similarity:.4f}", match.label, match.id]
            for query, matches in enumerate(self._items[:20])
            for rank, match in enumerate(matches, start=1)
        ]
        return render_html_table(repr(self)[1:-1], ["query", "rank", "similarity", "label", "id"], rows)

    def plot(self, query: int = 0) -> Any:
        """Draw the similarities of the nearest items of a query.

        Args:
            query: Its number.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        matches = self._items[query]
        figure = figure_module.Figure(figsize=(6, 0.8 + 0.3 * len(matches)), layout="constrained")
        axes = figure.subplots()
        names = [f"{rank}: {match.label or match.id}" for rank, match in enumerate(matches, start=1)]
        axes.barh(names, [match.similarity for match in matches])
        axes.invert_yaxis()
        axes.set(xlabel="cosine similarity", title=f"query {query}")
        return figure

    def table(self) -> str:
        """Return one line for each query and neighbor: query, rank, similarity, label, id."""
        lines = ["query  rank  similarity  label  id"]
        for query, matches in enumerate(self._items):
            for rank, match in enumerate(matches, start=1):
                lines.append(f"{query:5}  {rank:4}  {match.similarity:10.4f}  {match.label}  {match.id}")
        return "\n".join(lines)
