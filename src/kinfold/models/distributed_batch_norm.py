"""Batch norm over the batches of all processes. Unlike torch's SyncBatchNorm it also runs on the CPU."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from kinfold.distributed import World


def synchronize_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm layer by one whose statistics are over all processes, in place.

    Parameters, buffers and keys stay the same. With one process the results do not change.

    Args:
        model: Any module.

    Returns:
        The model.

    Raises:
        ValueError: A layer is a variant of batch norm that cannot be replaced.

    Examples:
        >>> model = synchronize_batch_norm(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        >>> [type(layer).__name__ for layer in model]
        ['Linear', 'DistributedBatchNorm']
    """
    if isinstance(model, _BatchNorm):
        return _replace(model)
    for name, child in [*model.named_children()]:
        setattr(model, name, synchronize_batch_norm(child))
    return model


class DistributedBatchNorm(_BatchNorm):
    """Normalize (B, C, ...) by mean and variance of each channel over the batches of all processes, of any sizes."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002  # torch's name
        if input.ndim < 2:
            raise ValueError(f"expected a batch of shape (B, {self.num_features}, ...), got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or World.current().size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        batch = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean, variance, count = _compute_statistics(batch)
        if self.training and self.running_mean is not None:
            self._update_running_statistics(mean.detach(), variance.detach(), count)
        scale = (variance + self.eps).rsqrt()
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale
        shift = shift if self.bias is None else shift + self.bias
        shape = (1, -1, *[1] * (input.ndim - 2))
        # x scale + shift keeps one copy of the batch for the backward pass, as torch's layer does
        return torch.addcmul(shift.view(shape), batch, scale.view(shape)).to(input.dtype)

    def _update_running_statistics(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_((variance * (count / (count - 1))).to(self.running_var.dtype), factor)


def _compute_statistics(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiable mean and variance (C,) over all processes, and the number of values per channel.

    Every process sends its mean and variance, which are then combined: sums of squares would lose precision.
    """
    dims = [0, *range(2, batch.ndim)]
    local_count = batch.numel() // max(1, batch.shape[1])
    if local_count:
        variance, mean = torch.var_mean(batch, dims, correction=0)
    else:  # a process without items has weight zero
        mean = variance = batch.sum(dims)
    sent = torch.stack([mean, variance, torch.full_like(mean, local_count)])
    world = World.current()
    means, variances, counts = world.gather(sent[None], [1] * world.size).unbind(1)  # (world size, C) each
    counts = counts.detach()
    count = counts.sum(dim=0)
    if count[0] < 2:
        raise ValueError("batch norm needs more than one value per channel over all ranks when training")
    shares = counts / count
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0), count


def _replace(layer: _BatchNorm) -> nn.Module:
    if isinstance(layer, DistributedBatchNorm):
        return layer
    if type(layer) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        raise ValueError(
            f"{type(layer).__name__} is a variant of batch norm that cannot be replaced; "
            "batch_norm='frozen-statistics' needs no other processes"
        )
    replacement = DistributedBatchNorm(
        layer.num_features, layer.eps, layer.momentum, affine=False, track_running_stats=False
    )
    replacement.affine, replacement.track_running_stats = layer.affine, layer.track_running_stats
    # the same tensors, so that an existing optimizer continues to train them
    for name in ("weight", "bias"):
        replacement.register_parameter(name, getattr(layer, name))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        replacement.register_buffer(name, getattr(layer, name))
    replacement.training = layer.training
    return replacement
