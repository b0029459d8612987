"""Variational embeddings: what varies within classes is modeled apart from what does not (DVML).

Lin et al., "Deep Variational Metric Learning", ECCV 2018. With features y (B, width):

    z          = W y + b                          invariant within a class: the embedding
    m, log s^2 = linear functions of y            distribution of what varies within the class
    u          = z + m + s e,  e ~ N(0, 1)         a synthetic embedding of the same class
    y'         = D(u)                             two layers

    J = L(z) + synthetic_weight L_1(u) + reconstruction_weight mean (y' - sg(y))^2
        + variance_weight mean over items of KL(N(m, s^2) || N(0, 1)) / dim

Only z is used after training. Weights 1, 0.1, 1 and 1 are those that are quoted for the paper. Not as published: the
paper trains in two phases, and the KL is a sum over dimensions there.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from kinfold.models.ensemble import Ensemble, ObjectiveTerm, check_not_negative, promote_half
from kinfold.models.initialization import initialize
from kinfold.models.linear_maps import LinearMapKind


class VariationalOutput(NamedTuple):
    """Output of `VariationalHead`.

    Attributes:
        embeddings: z, (B, dim).
        parts: u, (B, 1, dim).
        errors: Mean squared errors of the reconstruction, (B,).
        divergences: KL divided by dim, (B,).
    """

    embeddings: Tensor
    parts: Tensor
    errors: Tensor
    divergences: Tensor


class VariationalHead(Ensemble):
    """The head of DVML. Formulas: see the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings.
        hidden: Hidden units of the decoder.
        synthetic_weight: Weight of the loss of synthetic embeddings.
        reconstruction_weight: Weight of the reconstruction of the features.
        variance_weight: Weight of the KL divergence.
        representation_weight: Weight of the loss of z.

    Raises:
        ValueError: A weight is negative.

    Examples:
        >>> head = VariationalHead(width=8, dim=4)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 1, 4]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        hidden: int = 512,
        synthetic_weight: float = 0.1,
        reconstruction_weight: float = 1.0,
        variance_weight: float = 1.0,
        representation_weight: float = 1.0,
    ) -> None:
        check_not_negative(
            synthetic_weight=synthetic_weight,
            reconstruction_weight=reconstruction_weight,
            variance_weight=variance_weight,
        )
        super().__init__(1, dim, representation_weight)
        self.part_weight = synthetic_weight
        self.reconstruction_weight = reconstruction_weight
        self.variance_weight = variance_weight
        self.embed = nn.Linear(width, dim)
        self.mean = nn.Linear(width, dim)
        self.log_variance = nn.Linear(width, dim)
        self.decoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def initialize(self, features: Tensor, how: LinearMapKind) -> None:
        """Initialize z from the principal components of the features (N, width)."""
        initialize(self.embed, features, how)

    def forward(self, features: Tensor) -> VariationalOutput | Tensor:
        return self.output(features) if self.training else self.embed(features)

    def output(self, features: Tensor) -> VariationalOutput:
        embeddings = self.embed(features)
        mean, log_variance = promote_half(self.mean(features)), promote_half(self.log_variance(features)).clamp(-20, 20)
        # the training loop seeds the global generator for every step, as for dropout
        synthetic = embeddings + mean + (log_variance / 2).exp() * torch.randn_like(mean)
        errors = (promote_half(self.decoder(synthetic)) - features.detach()).square().mean(dim=1)
        divergences = (log_variance.exp() + mean.square() - 1 - log_variance).mean(dim=1) / 2
        return VariationalOutput(embeddings, synthetic[:, None], errors, divergences)

    def terms(self, output: VariationalOutput) -> dict[str, ObjectiveTerm]:
        return {
            "reconstruction": ObjectiveTerm(self.reconstruction_weight, output.errors.mean()),
            "variance": ObjectiveTerm(self.variance_weight, output.divergences.mean()),
        }
