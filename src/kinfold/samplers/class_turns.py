"""Turns of the classes in an epoch: a class comes again only when all others have come."""

import torch
from torch import Tensor


class ClassTurns:
    """Which classes are due. A batch takes those first, and others only when no more are due.

    Args:
        count: Number of classes.

    Attributes:
        due: Whether each class is due, boolean (count,).

    Examples:
        >>> turns = ClassTurns(3)
        >>> turns.mark_used(torch.tensor([0, 2]))
        >>> turns.mark_used(torch.tensor([1, 2]))
        >>> turns.due
        tensor([ True,  True, False])
    """

    def __init__(self, count: int) -> None:
        self.due = torch.ones(count, dtype=torch.bool)

    def mark_used(self, classes: Tensor) -> None:
        """Record the classes of a batch."""
        ahead = classes[~self.due[classes]]  # these have begun the next round
        self.due[classes] = False
        if not bool(self.due.any()):
            self.due[:] = True
            self.due[ahead] = False
