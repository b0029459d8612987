"""One training step: the gradient of the loss of the global batch, whatever the ranks, the precision or the memory."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from kinfold.data import Batch
from kinfold.distributed import World
from kinfold.seeding import derive_generator
from kinfold.training import mixup
from kinfold.training.config.settings import MixupConfig
from kinfold.training.objective import Objective

PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_DROPOUT, _MIXUP, _LOSS = 1, 2, 3  # what a derived number is drawn for


# what a model gives in training: embeddings (B, d), or a named tuple of tensors of B rows each, embeddings first
Output: TypeAlias = Any


@dataclass(frozen=True)
class StepOutput:
    """The loss of the global batch, its embeddings and items, of all ranks in their order, and what else was logged."""

    loss: float
    embeddings: Tensor
    indices: Tensor
    logged: dict[str, float]


class Step:
    """Called with this rank's part of a batch, leaves the gradient of the whole batch in `.grad` on every rank.

    micro_batch: the network sees so many items at a time. First all embeddings are made without a graph, then the loss
    gives the gradient of each, then the network runs again, part by part, with that gradient (Gao et al., 2021). The
    sum of plain gradients of the parts would be that of another loss, one that compares items within a part only.
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
        ranks: World | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.model = model
        self.objective = objective
        self.seed = seed
        self.device = torch.device(device)
        self.precision = precision
        self.micro_batch = micro_batch
        self.mixing = mixing
        self.ranks = World.current() if ranks is None else ranks
        self.scaler = scaler or torch.amp.GradScaler(self.device.type, enabled=False)
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        if mixing is not None:
            mixup.check_layers(mixing, getattr(model, "backbone", model))
        if micro_batch is not None and any(_takes_statistics(module) for module in model.modules()):
            warnings.warn(
                "batch norm takes its statistics from each micro-batch, so that the gradient is not quite that of the "
                "whole batch; batch_norm = 'frozen-statistics' makes it exact",
                stacklevel=2,
            )

    def __call__(self, batch: Batch, step: int, sizes: list[int] | None = None) -> StepOutput:
        """`sizes`: how many items each rank has in this step, where that is known already."""
        images, labels, indices = (part.to(self.device, non_blocking=True) for part in batch)
        images = images.to(self.dtype)
        if self.ranks.size > 1 and sizes is None:
            sizes = [size for (size,) in self.ranks.gather_integers([labels.shape[0]])]
        labels, indices = self.ranks.gather(labels, sizes), self.ranks.gather(indices, sizes)
        self.objective.seed(self.seed, step, _LOSS)
        # as many parts on every rank, or ranks that speak within the network (batch norm) would wait for ever
        parts = 1 if self.micro_batch is None else -(-max(sizes or [images.shape[0]]) // self.micro_batch)
        if parts > 1:
            value, output = self._cached(images, labels, indices, step, sizes, parts)
        else:
            value, output = self._plain(images, labels, indices, step, sizes)
        if self.ranks.size > 1:
            self.ranks.average_gradients([*self.model.parameters(), *self.objective.parameters()])
        embeddings = output if isinstance(output, Tensor) else output[0]
        logged = {name: float(value) for name, value in self.objective.logged.items()}
        return StepOutput(value.item(), embeddings.detach(), indices, logged)

    def _plain(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None
    ) -> tuple[Tensor, Output]:
        if self.mixing is None:
            output = self._gathered(self._embed(images, step, 0), sizes)
            value = self.objective(output, labels, indices, step)
        else:
            output, value = self._mixed(images, labels, indices, step, sizes)
        self.scaler.scale(value).backward()
        return value, output

    def _mixed(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None
    ) -> tuple[Output, Tensor]:
        assert self.mixing is not None
        # each rank mixes among its own items, at the layer and with the share that all ranks draw alike
        mix = mixup.draw(self.mixing, images.shape[0], derive_generator(self.seed, step, _MIXUP))
        before = 0 if sizes is None else sum(sizes[: self.ranks.rank])
        partner = self.ranks.gather(mix.partner.to(self.device) + before, sizes)
        with mix.within(getattr(self.model, "backbone", self.model)):
            shown = mix.mixed(images) if mix.layer == "input" else images
            output = self._gathered(self._embed(shown, step, 0), sizes)
        other = self.objective.plain(output, labels[partner])
        own = self.objective(output, labels, indices, step)
        return output, mix.share * own + (1 - mix.share) * other

    def _cached(
        self, images: Tensor, labels: Tensor, indices: Tensor, step: int, sizes: list[int] | None, count: int
    ) -> tuple[Tensor, Output]:
        parts = torch.tensor_split(images, count)
        with torch.no_grad(), _unchanged(self.model):
            found = [self._embed(part, step, place) for place, part in enumerate(parts)]
        own = each(lambda *rows: torch.cat(rows).requires_grad_(), *found)
        output = self._gathered(own, sizes)
        value = self.objective(output, labels, indices, step)
        self.scaler.scale(value).backward()
        gradients = [torch.tensor_split(_gradient(field), count) for field in _fields(own)]
        for place, part in enumerate(parts):
            fields = zip(_fields(self._embed(part, step, place)), gradients, strict=True)
            graphs = [(field, asked[place]) for field, asked in fields if field.requires_grad]
            torch.autograd.backward([field for field, _ in graphs], [asked for _, asked in graphs])
        return value, output

    def _gathered(self, output: Output, sizes: list[int] | None) -> Output:
        return each(lambda rows: self.ranks.gather(rows, sizes), output)

    def _embed(self, images: Tensor, step: int, part: int) -> Output:
        # dropout and the like know only the global generator, which the loop guards: it depends on the step alone
        number = derive_generator(self.seed, step, _DROPOUT, self.ranks.rank, part).initial_seed()
        torch.default_generator.manual_seed(number)  # torch.manual_seed keeps a note of every call for a GPU to come
        if self.device.type == "cuda":
            torch.cuda.manual_seed(number)
        half = PRECISIONS.get(self.precision)
        with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
            return self.model(images)


def each(function: Callable[..., Tensor], *outputs: Output) -> Output:
    """The function of every field of the outputs, in an output of the same kind.

    >>> each(torch.add, torch.tensor(1), torch.tensor(2))
    tensor(3)
    """
    if isinstance(outputs[0], Tensor):
        return function(*outputs)
    return type(outputs[0])(*map(function, *outputs))


def _fields(output: Output) -> list[Tensor]:
    return [output] if isinstance(output, Tensor) else [*output]


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Buffers, such as running statistics, end as they began."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)


def _takes_statistics(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
