"""Functions that compute their own gradient, in fewer passes or less memory than autograd takes from plain operations.

All of them are given to autograd by the one class in this file. Second derivatives come from plain operations.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

Tensors: TypeAlias = Sequence[Tensor | None]
Outputs: TypeAlias = Tensor | tuple[Tensor, ...]
Wanted: TypeAlias = Sequence[bool]
"""Whether the gradient by an input is needed, for each input."""


class FastFunction(ABC):
    """A differentiable function of some tensors; an input may be None.

    Attributes:
        num_arguments: How many of the first inputs `compute_plainly` uses as they are given, None for all. The others
            are parameters that it reads from a module.
    """

    num_arguments: int | None = None

    @abstractmethod
    def compute(self, inputs: Any, wanted: Wanted) -> tuple[Outputs, Tensors]:
        """Return the values, and tensors that `differentiate` needs besides the inputs. Autograd is off."""

    @abstractmethod
    def differentiate(self, inputs: Any, kept: Any, outer: Any, wanted: Wanted) -> Tensors:
        """Return the gradient by each input, None for those that are not wanted. Autograd is off.

        Args:
            inputs: Those of `compute`.
            kept: The tensors that `compute` returned.
            outer: Gradients by the values.
            wanted: Whether the gradient by an input is needed.
        """

    @abstractmethod
    def compute_plainly(self, *inputs: Any) -> Outputs:
        """Return the same values from plain operations, for second derivatives and for `torch.func`."""

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Compute the values, with a graph."""
        return self.compute_plainly(*inputs) if is_transformed() else _Fast.apply(self, *inputs)  # type: ignore[no-untyped-call]


class _Fast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: FastFunction, *inputs: Tensor | None) -> Outputs:
        outputs, kept = function.compute(inputs, ctx.needs_input_grad[1:])
        ctx.save_for_backward(*inputs, *kept)
        ctx.function = function
        return outputs

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        function, wanted = ctx.function, ctx.needs_input_grad[1:]
        inputs, kept = ctx.saved_tensors[: len(wanted)], ctx.saved_tensors[len(wanted) :]
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            return None, *_differentiate_plainly(function, inputs, outer, wanted)
        return None, *function.differentiate(inputs, kept, outer, wanted)


def _differentiate_plainly(function: FastFunction, inputs: Tensors, outer: Sequence[Tensor], wanted: Wanted) -> Tensors:
    # Views, because one input may have been computed from another: its gradient must not pass on to that one here.
    number = len(inputs) if function.num_arguments is None else function.num_arguments
    leaves = [*(None if t is None else t.view_as(t) for t in inputs[:number]), *inputs[number:]]
    requested = [tensor for tensor, is_wanted in zip(leaves, wanted, strict=True) if tensor is not None and is_wanted]
    outputs = function.compute_plainly(*leaves)
    slopes = iter(torch.autograd.grad(outputs, requested, outer, create_graph=True, allow_unused=True))
    return [next(slopes) if is_wanted else None for is_wanted in wanted]
