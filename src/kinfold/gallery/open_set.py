""" "None of these": which similarity to the nearest item of a gallery is enough to give its label.

A gallery that was calibrated keeps probes: embeddings of classes that are neither trained on nor in the gallery. The
share of the probes of a class whose nearest item reaches a threshold is the loss of that class, and the classes are
the units of conformal risk control. So for the gallery as it is, an item of a class drawn as the probe classes were is
given a label with a mean probability of at most the stated rate. More items can only raise the nearest similarity of a
probe: the threshold is computed again whenever the gallery changes, and printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.calibration import ProbabilityMap, control_rate, smallest_certifiable_rate
from kinfold.calibration.probability import fit_probability
from kinfold.calibration.risk_control import find_threshold
from kinfold.html_table import render_html_table
from kinfold.optional import import_optional

MAX_PROBES = 4096
PROBES_PER_CLASS = 20


@dataclass(frozen=True)
class OpenSetThreshold:
    """The threshold of a gallery as it is now.

    Args:
        far: The stated rate at which items of unknown classes are given a label.
        threshold: The nearest item must have at least this similarity.
        kind: "guarantee", or "estimate" where the probe classes are too few.
        smallest_far: The smallest rate that the probe classes can certify.
        probe_classes: Classes of probes that are not in the gallery.
        gallery_classes, gallery_items: The size of the gallery.
        probability: The map from the similarity of the nearest item to the probability that its label is right.
    """

    far: float
    threshold: float
    kind: Literal["guarantee", "estimate"]
    smallest_far: float
    probe_classes: int
    gallery_classes: int
    gallery_items: int
    probability: ProbabilityMap

    def describe(self) -> str:
        """Return what is stated, in one sentence."""
        rate = (
            f"at most {self.far:g}" if self.kind == "guarantee" else f"about {self.far:g} (estimate, not a guarantee)"
        )
        return (
            f"threshold {self.threshold:.4f} for {self.gallery_items:,} items of {self.gallery_classes:,} classes; "
            f"items of unknown classes are given a label with probability {rate}, by {self.probe_classes:,} probe "
            f"classes, which certify no rate below {self.smallest_far:.3g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all but the map for JSON."""
        return {name: value for name, value in vars(self).items() if name != "probability"}


@dataclass(frozen=True)
class Identification:
    """The answer for one query.

    Args:
        label: The label of the nearest item, or None for "none of these".
        probability: The probability that the label of the nearest item is right, where half of the queries are of
            classes in the gallery.
        similarity: That of the nearest item.
        nearest: The label of the nearest item in any case.
        id: The id of the nearest item.
    """

    label: str | None
    probability: float
    similarity: float
    nearest: str
    id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON."""
        return {**vars(self)}


class Identifications(Sequence[Identification]):
    """Answers for several queries, and the threshold that they were given at.

    Args:
        answers: One for each query.
        threshold: The threshold with its statement.
    """

    def __init__(self, answers: list[Identification], threshold: OpenSetThreshold) -> None:
        self._answers = answers
        self.threshold = threshold

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, index: Any) -> Any:
        return self._answers[index]

    @property
    def labels(self) -> list[str | None]:
        """The label of each query, None for "none of these"."""
        return [answer.label for answer in self._answers]

    def __repr__(self) -> str:
        known = sum(label is not None for label in self.labels)
        return f"<Identifications of {len(self)} queries: {known} with a label; {self.threshold.describe()}>"

    def _repr_html_(self) -> str:
        rows = [
            [
                number,
                answer.label or "none of these",
                f"{answer.probability:.3f}",
                f"{answer.similarity:.4f}",
                answer.nearest,
            ]
            for number, answer in enumerate(self._answers[:50])
        ]
        header = ["query", "label", "probability", "similarity", "nearest"]
        return render_html_table(repr(self)[1:-1], header, rows)

    def plot(self) -> Any:
        """Draw the similarity of each query to its nearest item, and the threshold.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        figure = figure_module.Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        axes.plot([answer.similarity for answer in self._answers], "o")
        axes.axhline(self.threshold.threshold, linestyle="--", color="black", label="threshold")
        axes.set(xlabel="query", ylabel="similarity to the nearest item")
        axes.legend()
        return figure

    def table(self) -> str:
        """Return one line for each query: label, probability, similarity, nearest item."""
        lines = ["query  probability  similarity  label"]
        for number, answer in enumerate(self._answers):
            label = answer.label if answer.label is not None else f"none of these (nearest: {answer.nearest})"
            lines.append(f"{number:5}  {answer.probability:11.3f}  {answer.similarity:10.4f}  {label}")
        return "\n".join(lines)


def draw_probes(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return positions of the probes: up to 20 items of each class, and 4,096 in all; every class keeps one."""
    count = len(torch.unique(labels))
    most = max(1, min(PROBES_PER_CLASS, MAX_PROBES // max(1, count)))
    order = torch.randperm(len(labels), generator=generator)
    ordered = order[labels[order].argsort(stable=True)]
    sizes = torch.bincount(torch.unique(labels, return_inverse=True)[1])
    position = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return ordered[position < most].sort().values


def compute_threshold(
    probes: Tensor, classes: Tensor, nearest: Tensor, far: float, size: tuple[int, int], may_guarantee: bool
) -> OpenSetThreshold:
    """Return the threshold of a gallery.

    Args:
        probes: Unit vectors of classes that are not in the gallery, (P, d).
        classes: Their classes, numbers from 0 without gaps, (P,).
        nearest: The similarity of the nearest item of the gallery, (P,).
        far: The rate.
        size: Classes and items of the gallery.
        may_guarantee: False for probe classes on which the model was selected.
    """
    count = int(classes.max()) + 1
    smallest = smallest_certifiable_rate(count)
    certified = may_guarantee and far >= smallest - 1e-12
    sizes = torch.bincount(classes, minlength=count).double()
    weights = 1.0 / sizes[classes]
    threshold = control_rate(nearest, classes, far) if certified else find_threshold(nearest, weights, far * count)
    return OpenSetThreshold(
        far,
        threshold,
        "guarantee" if certified else "estimate",
        smallest,
        count,
        *size,
        _fit(probes, classes, nearest, weights),
    )


def _fit(probes: Tensor, classes: Tensor, nearest: Tensor, weights: Tensor) -> ProbabilityMap:
    """Fit the probability that the label of the nearest item is right.

    A probe stands for an unknown class with its nearest item of the gallery, and for a class of the gallery with the
    nearest of the first six probes of its class beside itself, which is right where it is nearer than all of the
    gallery.
    """
    genuine = torch.full_like(nearest, -1.0)
    for number in torch.unique(classes).tolist():
        members = (classes == number).nonzero().squeeze(1)
        if len(members) > 1:
            scores = (probes[members] @ probes[members].T).double().fill_diagonal_(-1.0)
            scores[:, 6:] = -1.0
            genuine[members] = scores.amax(dim=1)
    has_genuine = genuine > -1.0
    known_score = torch.maximum(genuine, nearest)[has_genuine]
    scores = torch.cat([known_score, nearest])
    right = torch.cat([genuine[has_genuine] > nearest[has_genuine], torch.zeros(len(nearest), dtype=torch.bool)])
    if not bool(right.any()):
        return ProbabilityMap(np.array([-1.0, 1.0]), np.array([1e-6, 1e-6]))
    known_weight = weights[has_genuine] / weights[has_genuine].sum() / 2
    all_weights = torch.cat([known_weight, weights / weights.sum() / 2])
    fitted = fit_probability(scores, right, all_weights)
    # fit_probability balances right and wrong: undo it, so that known and unknown are balanced instead
    share = float(all_weights[right].sum())
    return ProbabilityMap(fitted.scores, fitted(fitted.scores, prior=min(max(share, 1e-6), 1 - 1e-6)))
