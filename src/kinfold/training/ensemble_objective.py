"""What a step minimises for an ensemble: a loss for every part, one for the whole, and terms of the ensemble's own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kinfold.losses import Loss, Mined
from kinfold.models.ensemble import Ensemble, EnsembleOutput
from kinfold.training.objective import Objective


class EnsembleObjective(Objective):
    """sum_k L_k(part k of its items) + representation_weight L(embeddings) + sum of weight x term.

    whole, parts: instances of one loss, with miners of their own; proxies are as wide as what they are compared with,
    and labels count the same classes in all of them. A part without items, or without two of one class where the loss
    compares items with each other, adds a zero with a graph.
    """

    def __init__(self, ensemble: Ensemble, whole: Loss | Mined, parts: Sequence[Loss | Mined]) -> None:
        super().__init__(whole)
        if len(parts) != ensemble.parts:
            raise ValueError(f"an ensemble of {ensemble.parts} parts needs as many losses, got {len(parts)}")
        self.parts = nn.ModuleList(parts)
        for loss in (whole, *parts):
            if inner(loss).reduction == "none":
                raise ValueError(
                    "the losses of an ensemble are added up: reduction must be 'mean' or 'sum', not 'none'"
                )
        for loss in parts:
            # a part may rightly see items of one class only, however the batch was drawn
            inner(loss).tell_of_missing_pairs = False
        self._ensemble = (ensemble,)  # in a tuple: its parameters are the model's, not this module's
        # all of them, each by its place; those of the whole come first and draw as they would without parts
        self._drawing = [
            module for module in self.modules() if isinstance(getattr(module, "generator", None), torch.Generator)
        ]
        self._logged: dict[str, float | Tensor] = {}

    @property
    def logged(self) -> dict[str, float | Tensor]:
        """Of the last batch: every term before its weight, and the share of the items that each part learned from."""
        return self._logged

    def plain(self, output: EnsembleOutput, labels: Tensor) -> Tensor:  # type: ignore[override]  # more than embeddings
        (ensemble,) = self._ensemble
        assignment = ensemble.assignment(output)
        found = {}
        value = output.embeddings[:0].sum() + output.parts[:0].sum()  # a graph, whatever is left out
        for number, loss in enumerate(self.parts):
            rows, own = output.parts[:, number], labels
            if assignment is not None:
                rows, own = rows[assignment[:, number]], labels[assignment[:, number]]
                found[f"occupancy-{number + 1}"] = assignment[:, number].double().mean()
            if teaches(loss, own):  # type: ignore[arg-type]  # a module list forgets what it holds
                part = loss(rows, own)
                value = value + part
            else:
                part = rows[:0].sum()
            found[f"loss-part-{number + 1}"] = part
        if ensemble.representation_weight:
            found["loss-whole"] = self.loss(output.embeddings, labels)
            value = value + ensemble.representation_weight * found["loss-whole"]
        for name, term in ensemble.terms(output).items():
            found[name] = term.value
            if term.weight:
                value = value + term.weight * term.value
        self._logged = {name: term.detach() for name, term in found.items()}
        return value


def teaches(loss: Loss | Mined, labels: Tensor) -> bool:
    """Whether items with these labels can teach a part: any item where it is compared with proxies, else two kin."""
    if inner(loss).proxies is not None:
        return labels.shape[0] > 0
    return len(labels.unique()) < len(labels)  # type: ignore[no-untyped-call]


def inner(loss: Loss | Mined) -> Loss:
    return loss.loss if isinstance(loss, Mined) else loss
