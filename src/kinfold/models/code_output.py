"""Small embeddings as the output of a network: the first dimensions, as float32, int8 or packed bits."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.pairs import normalize

CodePrecision = Literal["float32", "int8", "binary"]


class CodeOutput(nn.Module):
    """Cut embeddings to their first dimensions, scale them to length one, and store fewer bits.

    It computes the codes of `kinfold.embedding.quantize`, with scales that are fixed beforehand. int8 values beyond
    them become -127 or 127.

    Args:
        dim: Dimensions to keep.
        precision: "float32"; "int8", 127 steps on each side of zero; or "binary", the signs, eight dimensions in a
            byte, the first one in the highest bit.
        scales: int8: what 127 stands for in each dimension, (dim,).

    Raises:
        ValueError: The precision is unknown, or scales are missing or given in vain.

    Examples:
        >>> CodeOutput(2, "int8", torch.tensor([1.0, 0.8]))(torch.tensor([[0.6, -0.8, 7.0]]))
        tensor([[  76, -127]], dtype=torch.int8)
        >>> CodeOutput(3, "binary")(torch.tensor([[1.0, -1.0, 1.0]]))
        tensor([[160]], dtype=torch.uint8)
    """

    def __init__(self, dim: int, precision: CodePrecision = "float32", scales: Tensor | None = None) -> None:
        super().__init__()
        registry.check_known("precision", precision, get_args(CodePrecision))
        if (precision == "int8") != (scales is not None):
            raise ValueError("int8 codes need scales, and other precisions have none")
        if scales is not None and (scales.shape != (dim,) or not (scales > 0).all()):
            raise ValueError(f"expected {dim} positive scales, got {tuple(scales.shape)}")
        self.dim, self.precision = dim, precision
        self.scales: Tensor | None
        self.register_buffer("scales", None if scales is None else scales.float())
        powers = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.float32)
        self.powers: Tensor | None
        self.register_buffer("powers", powers if precision == "binary" else None)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return codes of embeddings (B, d): float32 (B, dim), int8 (B, dim), or uint8 (B, ceil(dim / 8))."""
        rows = normalize(embeddings[:, : self.dim])
        if self.scales is not None:
            return (rows / self.scales * 127).round().clamp(-127, 127).to(torch.int8)
        if self.powers is not None:
            bits = nn.functional.pad((rows > 0).to(torch.float32), (0, -self.dim % 8))
            return (bits.view(-1, -(-self.dim // 8), 8) * self.powers).sum(dim=2).to(torch.uint8)
        return rows
