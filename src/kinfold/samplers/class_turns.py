"""Whose turn it is: a class comes again in an epoch only when all the others have come."""

import torch
from torch import Tensor


class ClassTurns:
    """Classes that are due; a batch takes those first, and others only when no more are due.

    >>> turns = ClassTurns(3)
    >>> turns.mark_used(torch.tensor([0, 2]))
    >>> turns.mark_used(torch.tensor([1, 2]))
    >>> turns.due
    tensor([ True,  True, False])
    """

    def __init__(self, classes: int) -> None:
        self.due = torch.ones(classes, dtype=torch.bool)

    def mark_used(self, classes: Tensor) -> None:
        """Note the classes of a batch."""
        ahead = classes[~self.due[classes]]  # these have begun the next round
        self.due[classes] = False
        if not bool(self.due.any()):
            self.due[:] = True
            self.due[ahead] = False
