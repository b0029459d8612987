"""Normalization of pixels: from bytes to the numbers that a network expects, on whole batches and any device."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalize:
    """Compute (x / 255 - mean) / std for every channel.

    Args:
        mean, std: One number per channel, in the order red, green, blue.
        bgr: Reverse the channels afterwards, for networks converted from Caffe.

    Raises:
        ValueError: `mean` and `std` have different lengths, or an entry of `std` is not positive.

    Examples:
        >>> batch = torch.tensor([128, 117, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
        >>> BN_INCEPTION(batch).flatten().tolist()
        [151.0, 0.0, 0.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    bgr: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError(
                f"mean and std must have one entry per channel and std > 0, got {self.mean} and {self.std}"
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalize uint8 images (B, C, H, W) to float32 of the same shape."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != len(self.mean):
            raise ValueError(
                f"expected uint8 images of shape (B, {len(self.mean)}, H, W), got {images.dtype} {tuple(images.shape)}"
            )
        mean = torch.tensor(self.mean, dtype=torch.float64)
        std = torch.tensor(self.std, dtype=torch.float64)
        if self.bgr:
            images, mean, std = images.flip(1), mean.flip(0), std.flip(0)
        # one multiplication and one addition per pixel: x * (1 / (255 std)) - mean / std
        factor = (1 / (255 * std)).to(images.device, torch.float32)[:, None, None]
        offset = (-mean / std).to(images.device, torch.float32)[:, None, None]
        # contiguous channels: three times faster than bytes with the channels last
        return images.contiguous().to(torch.float32).mul_(factor).add_(offset)


IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# BGR in 0..255 minus (104, 117, 128)
BN_INCEPTION = Normalize((128 / 255, 117 / 255, 104 / 255), (1 / 255, 1 / 255, 1 / 255), bgr=True)
# the same with the rounded numbers in the code of Roth et al. (ICML 2020)
STUDY_BN_INCEPTION = Normalize((0.502, 0.4588, 0.4078), (0.0039, 0.0039, 0.0039), bgr=True)
# one channel, to -1..1
SMALL_GRAY = Normalize((0.5,), (0.5,))
SMALL_COLOR = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# (x - 127) / 128
EFFICIENTNET_LITE = Normalize((127 / 255, 127 / 255, 127 / 255), (128 / 255, 128 / 255, 128 / 255))
