"""Inter-class characteristics: an auxiliary embedding explains what classes share, apart from the classes (MIC).

Roth et al., "MIC: Mining Interclass Characteristics for Improved Metric Learning", ICCV 2019. Every few epochs the
training items are put into groups by k-means on their embeddings after each class is standardized, so that groups are
about what classes have in common. An auxiliary embedding learns from these groups, and an adversary keeps the two
embeddings apart.

    z = W y + b,   a = normalize(V y + c)
    J = L(z with classes) + auxiliary_weight L_1(a with groups)
        - adversary_weight mean_i |normalize(z_i) * R(a_i)|^2, with the gradients of z and a reversed

The regression R, two layers with unit output, learns to predict z from a; z and a learn to be unpredictable. Only z
is used after training. Weights and the number of groups are ours where the paper tuned them for each data set.
"""

from torch import Tensor, nn

from kinfold.models.ensemble import (
    Ensemble,
    ItemGrouping,
    ObjectiveTerm,
    PartsOutput,
    check_not_negative,
    normalize_parts,
)
from kinfold.models.gradient_reversal import reverse_gradient
from kinfold.models.initialization import initialize
from kinfold.models.linear_maps import LinearMapKind


class InterclassHead(Ensemble):
    """A linear head with an auxiliary one for what classes share. Formulas: see the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of both embeddings.
        groups: Number of groups of the auxiliary embedding.
        every: Epochs between two groupings.
        auxiliary_weight: Weight of the loss of the auxiliary embedding.
        adversary_weight: Weight of the adversary.
        hidden: Hidden units of the regression.
        representation_weight: Weight of the loss of z.

    Raises:
        ValueError: A weight is negative, or a number is out of its range.

    Examples:
        >>> import torch
        >>> head = InterclassHead(width=8, dim=4)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 1, 4]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        groups: int = 30,
        every: int = 1,
        auxiliary_weight: float = 0.3,
        adversary_weight: float = 0.3,
        hidden: int = 128,
        representation_weight: float = 1.0,
    ) -> None:
        check_not_negative(auxiliary_weight=auxiliary_weight, adversary_weight=adversary_weight)
        super().__init__(1, dim, representation_weight)
        self.part_weight = auxiliary_weight
        self.adversary_weight = adversary_weight
        self.grouping = ItemGrouping(groups, every, within_class=True)
        self.embed = nn.Linear(width, dim)
        self.auxiliary = nn.Linear(width, dim)
        self.regression = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def initialize(self, features: Tensor, how: LinearMapKind) -> None:
        """Initialize z from the principal components of the features (N, width)."""
        initialize(self.embed, features, how)

    def forward(self, features: Tensor) -> PartsOutput | Tensor:
        return self.output(features) if self.training else self.embed(features)

    def output(self, features: Tensor) -> PartsOutput:
        return PartsOutput(self.embed(features), normalize_parts(self.auxiliary(features))[:, None])

    def count_classes(self, num_classes: int) -> int:
        assert self.grouping is not None
        return self.grouping.count

    def relabel(self, part: int, labels: Tensor, groups: Tensor | None) -> Tensor:
        return labels if groups is None else groups

    def terms(self, output: PartsOutput) -> dict[str, ObjectiveTerm]:
        embeddings = reverse_gradient(normalize_parts(output.embeddings))
        predicted = normalize_parts(self.regression(reverse_gradient(output.parts[:, 0])))
        value = -(embeddings * predicted).square().sum(dim=1).mean()
        return {"adversary": ObjectiveTerm(self.adversary_weight, value)}
