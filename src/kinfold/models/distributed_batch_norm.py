"""Batch norm over the batches of all ranks. Unlike torch's SyncBatchNorm it also runs on the CPU."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from kinfold.distributed import World


def synchronize_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm layer by one whose statistics are over all ranks, in place; returns the model.

    Parameters, buffers and keys stay the same ones. With one process nothing changes.

    >>> [type(layer).__name__ for layer in synchronize_batch_norm(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))]
    ['Linear', 'DistributedBatchNorm']
    """
    if isinstance(model, _BatchNorm):
        return _replaced(model)
    for name, child in [*model.named_children()]:
        setattr(model, name, synchronize_batch_norm(child))
    return model


class DistributedBatchNorm(_BatchNorm):
    """(B, C, ...) normalised by mean and variance of each channel over the batches of all ranks, of whatever sizes."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002  # torch's name of it
        if input.ndim < 2:
            raise ValueError(f"expected a batch of shape (B, {self.num_features}, ...), got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name of it
        by_batch = self.training or self.running_mean is None
        if not by_batch or World.current().size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        exact = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean, variance, count = _statistics(exact)
        if self.training and self.running_mean is not None:
            self._remember(mean.detach(), variance.detach(), count)
        scale = (variance + self.eps).rsqrt()
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale
        shift = shift if self.bias is None else shift + self.bias
        shape = (1, -1, *[1] * (input.ndim - 2))
        # x scale + shift keeps one copy of the batch for the backward pass, as torch's own layer does
        return torch.addcmul(shift.view(shape), exact, scale.view(shape)).to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_((variance * (count / (count - 1))).to(self.running_var.dtype), factor)


def _statistics(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance (C,) over all ranks, with their graph, and the count of values per channel.

    Every rank sends its own mean and variance, which are then joined: sums of squares would cancel.
    """
    over = [0, *range(2, batch.ndim)]
    own = batch.numel() // max(1, batch.shape[1])
    if own:
        variance, mean = torch.var_mean(batch, over, correction=0)
    else:  # a rank without items takes part with weight zero
        mean = variance = batch.sum(over)
    sent = torch.stack([mean, variance, torch.full_like(mean, own)])
    ranks = World.current()
    means, variances, counts = ranks.gather(sent[None], [1] * ranks.size).unbind(1)  # (ranks, C) each
    counts = counts.detach()
    count = counts.sum(dim=0)
    if count[0] < 2:
        raise ValueError("batch norm needs more than one value per channel over all ranks when training")
    shares = counts / count
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0), count


def _replaced(layer: _BatchNorm) -> nn.Module:
    if isinstance(layer, DistributedBatchNorm):
        return layer
    if type(layer) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        raise ValueError(
            f"{type(layer).__name__} does more than batch norm, or does it in its own way, and cannot be replaced; "
            "batch_norm='frozen-statistics' needs no other ranks"
        )
    made = DistributedBatchNorm(layer.num_features, layer.eps, layer.momentum, affine=False, track_running_stats=False)
    made.affine, made.track_running_stats = layer.affine, layer.track_running_stats
    # the very tensors, so that an optimiser made before goes on training them
    for name in ("weight", "bias"):
        made.register_parameter(name, getattr(layer, name))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        made.register_buffer(name, getattr(layer, name))
    made.training = layer.training
    return made
