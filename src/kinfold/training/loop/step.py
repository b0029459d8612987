"""One training step: the gradient of the loss of the global batch, on any number of processes and in any precision."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from kinfold.data import Batch
from kinfold.devices import seed_global_generators
from kinfold.distributed import World
from kinfold.embedding.compute import AUTOCAST_TYPES
from kinfold.seeding import derive_generator
from kinfold.training.config.settings import MixupConfig
from kinfold.training.loop import mixup
from kinfold.training.loop.objective import Objective

_DROPOUT, _MIXUP, _LOSS = 1, 2, 3  # tell the draws of a step from each other

# What a model returns in training: embeddings (B, d), or a named tuple of tensors of B rows each, embeddings first.
ModelOutput: TypeAlias = Any


@dataclass(frozen=True)
class StepOutput:
    """The result of one step.

    Attributes:
        loss: The loss of the global batch.
        embeddings: Those of the global batch, in the order of the process ranks, (B, d).
        indices: Positions of its items in the dataset, (B,).
        logged: Further values by name, for the log.
    """

    loss: float
    embeddings: Tensor
    indices: Tensor
    logged: dict[str, float]


class Step:
    """Computes the gradient of a global batch.

    Called with this process' part of a batch, it leaves the gradient of the whole batch in `.grad` on every process.

    With `micro_batch`, embeddings are first computed without gradients. The loss gives the gradient of each embedding.
    Then the network runs again, part by part, with that gradient (Gao et al., 2021). Summing the gradients of separate
    parts would be the gradient of another loss, which compares items within a part only.

    Args:
        model: The network.
        objective: What is minimized.
        seed: Seed of dropout, mixup and the draws of the loss.
        device: Where the step is computed.
        precision: "float32", "bfloat16", "float16" or "float64".
        micro_batch: Items that pass the network at a time.
        mixing: Settings of manifold mixup.
        world: The processes that train together; by default those of torch.distributed.
        scaler: Gradient scaler of float16.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        micro_batch: int | None = None,
        mixing: MixupConfig | None = None,
        world: World | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.model = model
        self.objective = objective
        self.seed = seed
        self.device = torch.device(device)
        self.precision = precision
        self.micro_batch = micro_batch
        self.mixing = mixing
        self.world = World.current() if world is None else world
        self.scaler = scaler or torch.amp.GradScaler(self.device.type, enabled=False)
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        if mixing is not None:
            mixup.check_layers(mixing, getattr(model, "backbone", model))
        if micro_batch is not None and any(_updates_statistics(module) for module in model.modules()):
            warnings.warn(
                "batch norm computes its statistics from each micro-batch, so the gradient is only approximately that "
                "of the whole batch; batch_norm = 'frozen-statistics' makes it exact",
                stacklevel=2,
            )

    def __call__(self, batch: Batch, step: int, sizes: list[int] | None = None) -> StepOutput:
        """Compute the gradients of one step.

        Args:
            batch: This process' part of the batch.
            step: The number of the step, from 0.
            sizes: Items of each process in this step, where that is known.
        """
        images, labels, indices = (part.to(self.device, non_blocking=True) for part in batch)
        images = images.to(self.dtype)
        if self.world.size > 1 and sizes is None:
            sizes = [size for (size,) in self.world.gather_integers([labels.shape[0]])]
        labels, indices = self.world.gather(labels, sizes), self.world.gather(indices, sizes)
        self.objective.seed(self.seed, step, _LOSS)
        # the same number of parts on every process: processes that communicate within the network (batch norm) would
        # otherwise wait for ever
        parts = 1 if self.micro_batch is None else -(-max(sizes or [images.shape[0]]) // self.micro_batch)
        if parts > 1:
            value, output = self._backward_in_parts(images, labels, indices, step, sizes, parts)
        else:
            value, output = self._backward(images, labels, indices, step, sizes)
        if self.world.size > 1:
            self.world.average_gradients([*self.model.parameters(), *self.objective.parameters()])
        embeddings = output if isinstance(output, Tensor) else output[0]
        logged = {name: float(value) for name, value in self.objective.logged.items()}
        return StepOutput(value.item(), embeddings.detach(), indices, logged)

    def _backward(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None
    ) -> tuple[Tensor, ModelOutput]:
        if self.mixing is None:
            output = self._gather(self._embed(images, step, 0), sizes)
            value = self.objective(output, labels, indices, step)
        else:
            value, output = self._compute_mixed(images, labels, indices, step, sizes)
        self.scaler.scale(value).backward()
        return value, output

    def _compute_mixed(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None
    ) -> tuple[Tensor, ModelOutput]:
        assert self.mixing is not None
        # each process mixes its own items; layer and share are the same on all
        mix = mixup.draw_mix(self.mixing, images.shape[0], derive_generator(self.seed, step, _MIXUP))
        offset = 0 if sizes is None else sum(sizes[: self.world.rank])
        partner = self.world.gather(mix.partner.to(self.device) + offset, sizes)
        with mix.hook(getattr(self.model, "backbone", self.model)):
            inputs = mix.apply(images) if mix.layer == "input" else images
            output = self._gather(self._embed(inputs, step, 0), sizes)
        partner_loss = self.objective.compute_batch_loss(output, labels[partner])
        item_loss = self.objective(output, labels, indices, step)
        return mix.share * item_loss + (1 - mix.share) * partner_loss, output

    def _backward_in_parts(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None, count: int
    ) -> tuple[Tensor, ModelOutput]:
        parts = torch.tensor_split(images, count)
        with torch.no_grad(), _keep_buffers(self.model):
            outputs = [self._embed(part, step, index) for index, part in enumerate(parts)]
        local = map_fields(lambda *rows: torch.cat(rows).requires_grad_(), *outputs)
        output = self._gather(local, sizes)
        value = self.objective(output, labels, indices, step)
        self.scaler.scale(value).backward()
        gradients = [torch.tensor_split(_get_gradient(field), count) for field in _list_fields(local)]
        for index, part in enumerate(parts):
            fields = zip(_list_fields(self._embed(part, step, index)), gradients, strict=True)
            pairs = [(field, gradient[index]) for field, gradient in fields if field.requires_grad]
            torch.autograd.backward([field for field, _ in pairs], [gradient for _, gradient in pairs])
        return value, output

    def _gather(self, output: ModelOutput, sizes: list[int] | None) -> ModelOutput:
        return map_fields(lambda rows: self.world.gather(rows, sizes), output)

    def _embed(self, images: Tensor, step: int, part: int) -> ModelOutput:
        # dropout draws from the global generator, which the loop restores: its draws depend on the step alone
        number = derive_generator(self.seed, step, _DROPOUT, self.world.rank, part).initial_seed()
        seed_global_generators(number, self.device)
        half = AUTOCAST_TYPES.get(self.precision)
        with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
            return self.model(images)


def map_fields(function: Callable[..., Tensor], *outputs: ModelOutput) -> ModelOutput:
    """Apply a function to every field of model outputs; the result has their type.

    Examples:
        >>> map_fields(torch.add, torch.tensor(1), torch.tensor(2))
        tensor(3)
    """
    if isinstance(outputs[0], Tensor):
        return function(*outputs)
    return type(outputs[0])(*map(function, *outputs))


def _list_fields(output: ModelOutput) -> list[Tensor]:
    return [output] if isinstance(output, Tensor) else [*output]


def _get_gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


@contextmanager
def _keep_buffers(model: nn.Module) -> Iterator[None]:
    """Restore buffers, such as running statistics, at the end."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)


def _updates_statistics(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
