"""What a step minimizes for an ensemble head: one loss per part, one of the whole embedding, and regularizers."""

from collections.abc import Sequence

from torch import Tensor, nn

from kinfold.losses import Loss, Mined
from kinfold.models.ensemble import Ensemble, EnsembleOutput
from kinfold.pairs import Relation
from kinfold.training.loop.item_groups import ItemGroups
from kinfold.training.loop.objective import Objective, find_random_modules, get_inner_loss


class EnsembleObjective(Objective):
    """part_weight sum_k L_k(part k) + representation_weight L(embeddings) + sum of weight * term of the ensemble.

    A part without items, or without a positive pair where the loss compares items with each other, adds a
    differentiable zero.

    Args:
        ensemble: The head, which assigns items to parts and has terms of its own.
        whole: The loss of the whole embedding.
        parts: One loss per part, of the same kind as `whole`. Proxies are as wide as what they are compared with.

    Raises:
        ValueError: The number of losses is not the number of parts, or a loss has reduction="none".
    """

    def __init__(self, ensemble: Ensemble, whole: Loss | Mined, parts: Sequence[Loss | Mined]) -> None:
        super().__init__(whole)
        if len(parts) != ensemble.parts:
            raise ValueError(f"an ensemble of {ensemble.parts} parts needs as many losses, got {len(parts)}")
        self.parts = nn.ModuleList(parts)
        for loss in (whole, *parts):
            if get_inner_loss(loss).reduction == "none":
                raise ValueError(
                    "the losses of an ensemble are added up: reduction must be 'mean' or 'sum', not 'none'"
                )
        for loss in parts:
            # a part may get items of a single class, whatever the sampler
            get_inner_loss(loss).warn_missing_pairs = False
        self.groups = None if ensemble.grouping is None else ItemGroups(ensemble.grouping)
        self._ids: Tensor | None = None
        self._ensemble = (ensemble,)  # in a tuple: its parameters belong to the model, not to this module
        # modules of `whole` come first and draw the same numbers as without parts
        self._random_modules = find_random_modules(self)
        self._logged: dict[str, float | Tensor] = {}

    @property
    def logged(self) -> dict[str, float | Tensor]:
        """Every term of the last batch before its weight, and the share of the items that each part learned from."""
        return self._logged

    def forward(self, output: EnsembleOutput, labels: Tensor, ids: Tensor, step: int) -> Tensor:  # type: ignore[override]
        self._ids = ids
        return super().forward(output, labels, ids, step)  # type: ignore[arg-type]

    def compute_batch_loss(  # type: ignore[override]
        self, output: EnsembleOutput, labels: Tensor, ids: Tensor | None = None
    ) -> Tensor:
        """Return the objective of a batch; `output` holds the embeddings of the parts too."""
        (ensemble,) = self._ensemble
        groups = None
        if self.groups is not None:
            groups = self.groups.get(self._ids, labels)
        assignment = ensemble.assignment(output) if groups is None else ensemble.assign_groups(groups)
        relation = Relation.from_labels(labels)
        selected = ensemble.select_pairs(output, relation)
        terms = {}
        value = output.embeddings[:0].sum() + output.parts[:0].sum()  # a differentiable zero
        for number, loss in enumerate(self.parts if ensemble.part_weight else ()):
            rows, part_labels = output.parts[:, number], ensemble.relabel(number, labels, groups)
            if assignment is not None:
                assigned = assignment[:, number]
                rows, part_labels = rows[assigned], part_labels[assigned]
                terms[f"occupancy-{number + 1}"] = assigned.double().mean()
            if _can_learn(loss, part_labels):  # type: ignore[arg-type]  # a ModuleList does not keep the type
                options = {} if selected is None else {"tuples": selected[number]}
                part_loss = loss(rows, part_labels, **options)
                value = value + ensemble.part_weight * part_loss
            else:
                part_loss = rows[:0].sum()
            terms[f"loss-part-{number + 1}"] = part_loss
        if ensemble.representation_weight:
            terms["loss-whole"] = self.loss(output.embeddings, labels)
            value = value + ensemble.representation_weight * terms["loss-whole"]
        for name, term in {**ensemble.terms(output), **ensemble.labeled_terms(output, relation)}.items():
            terms[name] = term.value
            if term.weight:
                value = value + term.weight * term.value
        self._logged = {name: term.detach() for name, term in terms.items()}
        return value


def _can_learn(loss: Loss | Mined, labels: Tensor) -> bool:
    """Return whether there is an item for a loss with proxies, or a positive pair for all others."""
    if get_inner_loss(loss).proxies is not None:
        return labels.shape[0] > 0
    return len(labels.unique()) < len(labels)  # type: ignore[no-untyped-call]
