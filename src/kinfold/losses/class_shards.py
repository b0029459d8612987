"""Class vectors that are sharded over processes: each process holds those of some classes, and their gradient."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from kinfold.distributed import World


@dataclass(frozen=True)
class ClassShard:
    """Which of all classes this process holds.

    Attributes:
        world: The processes.
        first: Number of the first class of this process.
        total: Number of classes of all processes.
    """

    world: "World"
    first: int
    total: int

    @classmethod
    def split(cls, total: int, world: "World") -> "ClassShard":
        """Return the part of this process: consecutive classes, as many as in every other part or one more."""
        return cls(world, total * world.rank // world.size, total)

    @property
    def sizes(self) -> list[int]:
        """Number of classes of every process."""
        bounds = [self.total * rank // self.world.size for rank in range(self.world.size + 1)]
        return [high - low for low, high in pairwise(bounds)]

    @property
    def rows(self) -> slice:
        """The classes of this process among all."""
        return slice(self.first, self.first + self.sizes[self.world.rank])

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate rows (c, ...) of the classes of every process, in the order of the classes, without a graph."""
        return self.world.gather(rows.detach(), self.sizes)

    def add_up(self, values: Tensor) -> Tensor:
        """Sum over the processes; the gradient of each part is that of the sum."""
        total = values.detach().clone()
        self.world.sum_in_place(total)
        return total + (values - values.detach())  # adds zero, whose gradient is that of the values

    def combine_logsumexp(self, parts: Tensor) -> Tensor:
        """log sum exp over the processes of (B,), without a graph."""
        return self.world.gather(parts[None], [1] * self.world.size).logsumexp(dim=0)
