"""A loss under test, with the batches that it is called with and ways to call it."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

CLASSES, PER_CLASS = 6, 4


class Skip(Exception):  # noqa: N818  # not an error
    """The check has no meaning for this loss, or cannot run here."""


class Fault(Exception):  # noqa: N818  # of the loss, not of the check
    """The loss does not do what the check asks."""


@dataclass(frozen=True)
class LossProbe:
    """A loss and a batch to call it with.

    Every call uses a new copy, so that no state goes from one to another. Random draws of the loss begin from the same
    global seed unless a check changes it.

    Args:
        loss: Called as loss(embeddings, labels); not changed.
        dim: Dimensions of the embeddings.
        device: A second device, or None.
        reason: Why there is no second device.
    """

    loss: nn.Module
    dim: int = 16
    device: torch.device | None = None
    reason: str = ""
    labels: Tensor = field(default_factory=lambda: torch.arange(CLASSES * PER_CLASS) % CLASSES)

    @property
    def embeddings(self) -> Tensor:
        """The batch: float64 (24, dim), 6 classes of 4 items in turn."""
        return make_rows(len(self.labels), self.dim)

    @property
    def has_parameters(self) -> bool:
        """Whether the loss has parameters, as class vectors."""
        return any(True for _ in self.loss.parameters())

    def copy(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> nn.Module:
        """Copy the loss, with parameters and buffers in this type and place."""
        return copy.deepcopy(self.loss).to(device=device, dtype=dtype)

    def call(self, embeddings: Tensor, labels: Tensor | None = None, *, seed: int = 0) -> Tensor:
        """Return the value of the loss, computed by a new copy."""
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        return self.run(self.copy(dtype, embeddings.device), embeddings, labels, seed=seed)

    def run(self, loss: nn.Module, embeddings: Tensor, labels: Tensor | None = None, *, seed: int = 0) -> Tensor:
        """Call a copy of the loss; Fault if it raises or returns no scalar."""
        labels = (self.labels if labels is None else labels).to(embeddings.device)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            try:
                value = loss(embeddings, labels)
            except Exception as error:
                raise Fault(f"{type(error).__name__}: {_first_line(error)}") from error
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise Fault(f"returns {shape} instead of one number")
        return value.reshape(())

    def differentiate(self, embeddings: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return value and gradient; Fault if there is none."""
        leaf = embeddings.detach().clone().requires_grad_()
        value = self.call(leaf, labels)
        return value.detach(), backward(value, leaf)

    def is_random(self) -> bool:
        """Whether the value depends on the global random state."""
        values = [self.call(self.embeddings, seed=seed) for seed in range(4)]
        return any(not equal(value, values[0]) for value in values)

    def draws(self) -> bool:
        """Whether the value depends on random draws, also of a generator of its own."""
        loss = self.copy(torch.float64)
        first, second = (self.run(loss, self.embeddings) for _ in range(2))
        return self.is_random() or not equal(first, second)


def make_rows(count: int, dim: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw embeddings (count, dim)."""
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def backward(value: Tensor, leaf: Tensor, *, keep_graph: bool = False) -> Tensor:
    """Return the gradient of a value; Fault if there is none."""
    if not value.requires_grad:
        raise Fault(f"returns {value.item():.3g} without a gradient: backward() raises")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, retain_graph=keep_graph)
    except Exception as error:
        raise Fault(f"backward raises {type(error).__name__}: {_first_line(error)}") from error
    return torch.zeros_like(leaf) if gradient is None else gradient


def require_finite(value: Tensor, gradient: Tensor) -> None:
    """Raise Fault unless value and gradient are finite."""
    if not bool(value.isfinite()):
        raise Fault(f"the value is {value.item()}")
    if not bool(gradient.isfinite().all()):
        raise Fault(f"the gradient has {int((~gradient.isfinite()).sum())} entries that are not finite")


def require_close(actual: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Raise Fault if the largest difference exceeds the tolerance, relative to the largest entry."""
    if actual.numel() == 0:
        return
    scale = max(float(expected.detach().abs().max()), 1e-6)
    difference = float((actual.detach().double() - expected.detach().double()).abs().max()) / scale
    if not difference <= tolerance:
        size = f"{difference:.1e}" if math.isfinite(difference) else "not finite"
        raise Fault(f"{what}: the relative difference is {size}")


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two values are equal or both NaN."""
    return bool(torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else "no message"


Check = Callable[[LossProbe], str | None]
