"""Heads: modules from pooled features to embeddings."""

from torch import Tensor, nn


def identity(width: int, dim: int) -> nn.Module:
    """Return the pooled features unchanged, to evaluate them or to train the backbone alone.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings; must equal `width`.

    Raises:
        ValueError: `dim` differs from `width`.

    Examples:
        >>> identity(8, 8)
        Identity()
    """
    if dim != width:
        raise ValueError(f"head 'identity' changes nothing: model.dim must be {width}, the width of the features")
    return nn.Identity()


def linear(width: int, dim: int, bias: bool = True) -> nn.Linear:
    """Create a linear layer, as in most papers. It can be initialized from the principal components of features.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings.
        bias: Add a bias.

    Examples:
        >>> linear(1280, 128)
        Linear(in_features=1280, out_features=128, bias=True)
    """
    return nn.Linear(width, dim, bias=bias)


def mlp(width: int, dim: int, hidden: int | None = None, batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    """Create two linear layers with a ReLU between them.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings.
        hidden: Hidden units; `width` if left out.
        batch_norm: Add batch norm before the ReLU.
        dropout: Probability of dropout after the ReLU.

    Raises:
        ValueError: `hidden` is less than 1.

    Examples:
        >>> len(mlp(64, 16, hidden=32))
        3
    """
    hidden = width if hidden is None else hidden
    if hidden < 1:
        raise ValueError(f"hidden must be at least 1, got {hidden}")
    between: list[nn.Module] = [nn.BatchNorm1d(hidden)] if batch_norm else []
    between.append(nn.ReLU(inplace=True))
    if dropout:
        between.append(nn.Dropout(dropout))
    return nn.Sequential(nn.Linear(width, hidden), *between, nn.Linear(hidden, dim))


class Residual(nn.Module):
    """A linear layer plus a small network whose output starts at zero.

    It starts as the linear layer alone, which can be initialized as such, and learns what a linear map cannot express.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings.
        hidden: Hidden units of the network; `width` if left out.
        dropout: Probability of dropout after the ReLU.

    Raises:
        ValueError: `hidden` is less than 1.

    Examples:
        >>> import torch
        >>> head, rows = Residual(8, 4), torch.ones(2, 8)
        >>> torch.equal(head(rows), head.linear(rows))
        True
    """

    def __init__(self, width: int, dim: int, hidden: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, dim)
        self.correction = mlp(width, dim, hidden, dropout=dropout)
        last = [module for module in self.correction.modules() if isinstance(module, nn.Linear)][-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return embeddings (B, dim) of features (B, width)."""
        embeddings: Tensor = self.linear(features) + self.correction(features)
        return embeddings
