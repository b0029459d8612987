"""How deep a ranking has to be known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RankDepth:
    """The part of a ranking that a metric needs. `a | b` is the part that two metrics need together.

    Args:
        fixed: All relevant items down to this rank.
        beyond_relevant: All relevant items down to rank n + beyond_relevant, n the number of relevant items of the
            query; None if this is not needed.
        first: The first relevant item alone, down to this rank.
        full: All relevant items, however deep.
    """

    fixed: int = 0
    beyond_relevant: int | None = None
    first: int = 0
    full: bool = False

    def __or__(self, other: "RankDepth") -> "RankDepth":
        beyond = [depth.beyond_relevant for depth in (self, other) if depth.beyond_relevant is not None]
        return RankDepth(
            max(self.fixed, other.fixed),
            max(beyond) if beyond else None,
            max(self.first, other.first),
            self.full or other.full,
        )

    def resolve(self, relevant: int, size: int) -> tuple[int, int]:
        """Return the depths for all relevant items and for the first one.

        Args:
            relevant: The largest number of relevant items of a query.
            size: The number of gallery rows.
        """
        beyond = 0 if self.beyond_relevant is None else relevant + self.beyond_relevant
        all_items = size if self.full else min(size, max(1, self.fixed, beyond))
        return all_items, max(all_items, min(size, self.first))
