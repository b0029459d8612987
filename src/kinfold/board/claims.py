"""Published numbers that a board shows beside the measured ones."""

from dataclasses import dataclass
from pathlib import Path

from kinfold.files.documents import check_shape, read_toml

_SHAPE = {"claim": [{"method": str, "data": str, "metric": str, "value": float, "source": str}]}


@dataclass(frozen=True)
class Claim:
    """A number that somebody published.

    Attributes:
        method: The method, as the suite names it.
        data: The data set, as the suite names it.
        metric: The metric.
        value: The number, in the unit of the metric: 0.634 for 63.4 %.
        source: Where it was published.
    """

    method: str
    data: str
    metric: str
    value: float
    source: str


def read_claims(path: Path | str) -> list[Claim]:
    """Read claims from a TOML file with one `[[claim]]` table for each number.

    Args:
        path: The file.

    Returns:
        The claims.

    Raises:
        ValueError: The file is missing, or a table lacks one of method, data, metric, value and source.
    """
    path = Path(path)
    tables = read_toml(path)
    check_shape(tables, _SHAPE, path)
    for number, table in enumerate(tables["claim"], start=1):
        unknown = table.keys() - _SHAPE["claim"][0].keys()
        if unknown:
            raise ValueError(f"claim {number} of {path} has an unknown key {min(unknown)!r}")
    return [Claim(**table) for table in tables["claim"]]
