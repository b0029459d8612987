"""What parts of an objective that depend on the whole training set have in common."""

from typing import Protocol, TypeGuard

from torch import Tensor, nn


class TrainingSetState(Protocol):
    """A module whose state follows from the embeddings of all training items, such as groups or a tree of classes.

    Training updates it before the first step of an epoch for which it is due.
    """

    def is_due(self, epoch: int) -> bool:
        """Return whether the state is to be updated before this epoch."""

    def update(self, embeddings: Tensor, labels: Tensor, seed: int) -> None:
        """Compute the state anew.

        Args:
            embeddings: Embeddings of all training items, (N, d), in evaluation mode.
            labels: Their labels, (N,).
            seed: Seed of random draws.
        """


def is_training_set_state(module: nn.Module) -> TypeGuard[TrainingSetState]:
    """Return whether a module has the methods of `TrainingSetState`.

    Examples:
        >>> from kinfold.losses.class_hierarchy import ClassHierarchy
        >>> is_training_set_state(ClassHierarchy(3)), is_training_set_state(nn.Identity())
        (True, False)
    """
    return callable(getattr(module, "is_due", None)) and callable(getattr(module, "update", None))
