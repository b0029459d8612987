"""`Calibration`: a threshold with what is known about it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from kinfold.calibration.identification import IdentificationPoint
from kinfold.calibration.probability import ProbabilityMap, Reliability
from kinfold.data.items import Array
from kinfold.optional import import_optional

SHAPE = {
    "far": float,
    "threshold": float,
    "kind": str,
    "smallest_far": float,
    "classes": int,
    "items": int,
    "confidence": float,
    "measured_far": float,
    "far_interval": [float],
    "tar": float,
    "tar_interval": [float],
    "coverage": ({"splits": int, "mean_far": float, "exceeded": float}, None),
    "scores": [float],
    "probabilities": [float],
    "reliability": {"predicted": [float], "observed": [float], "weight": [float]},
    "curve": {"thresholds": [float], "far": [float], "tar": [float]},
    "identification": [{"gallery_classes": int, "threshold": float, "extrapolated": bool}],
    "origin": {str: object},
}


@dataclass(frozen=True, repr=False)
class Calibration:
    """A threshold for "same class or not" of two items of classes that were never seen.

    Args:
        far: The requested false-accept rate: the probability that an item of a class and an item of another class are
            taken for the same class, where both classes are drawn at random.
        threshold: Similarities of at least this value are accepted.
        kind: "guarantee" or "estimate"; see `calibrate`.
        smallest_far: The smallest rate that the classes at hand can certify.
        classes, items: What was calibrated on.
        confidence: For an estimate: the aimed share of calibrations that keep the rate.
        measured_far: The rate at the threshold among the classes at hand, and its interval over classes.
        far_interval: 95 % interval.
        tar: The share of positive pairs that are accepted, every class counting the same.
        tar_interval: 95 % interval.
        coverage: For an estimate: the same calibration on a random half of the classes, judged by the other half, many
            times: mean rate, and how often it exceeded `far`. None for a guarantee.
        probability: The map from a similarity to the probability that two items are of the same class.
        reliability: Predicted probabilities beside observed shares, for classes that the map was not fitted on.
        curve: False-accept and true-accept rates of these classes at thresholds around the chosen one, every class
            counting the same: lists "thresholds", ascending, "far" and "tar".
        identification: Estimated thresholds for galleries of several sizes.
        origin: Where the classes come from: split, run, fingerprint.
    """

    far: float
    threshold: float
    kind: Literal["guarantee", "estimate"]
    smallest_far: float
    classes: int
    items: int
    confidence: float
    measured_far: float
    far_interval: tuple[float, float]
    tar: float
    tar_interval: tuple[float, float]
    coverage: dict[str, float] | None
    probability: ProbabilityMap
    reliability: Reliability
    curve: dict[str, list[float]]
    identification: list[IdentificationPoint]
    origin: dict[str, Any]

    def accept(self, similarities: Any) -> Array:
        """Return which pairs are taken for the same class."""
        accepted: Array = np.asarray(similarities, dtype=np.float64) >= self.threshold
        return accepted

    def __repr__(self) -> str:
        return (
            f"<Calibration: accept from {self.threshold:.4f}, far {self.far:g} ({self.kind}, {self.classes} classes), "
            f"tar {self.tar:.3f}>"
        )

    def describe(self) -> list[str]:
        """Return what is stated, in sentences."""
        lines = [f"threshold {self.threshold:.6f}: pairs with at least this similarity are of the same class"]
        if self.kind == "guarantee":
            lines.append(
                f"guarantee: for two new classes, drawn as these {self.classes:,} were, the mean false-accept rate is "
                f"at most {self.far:g}; the smallest rate that can be certified is {self.smallest_far:.3g}"
            )
        else:
            lines.append(
                f"estimate, not a guarantee: {self.classes:,} classes certify no rate below {self.smallest_far:.3g}; "
                f"aim: the rate among new classes is at most {self.far:g} in {100 * self.confidence:g} % of cases"
                if self.far < self.smallest_far
                else "estimate, not a guarantee: the model was selected by its scores on these classes"
            )
            if self.coverage is not None:
                splits, mean, exceeded = (self.coverage[name] for name in ("splits", "mean_far", "exceeded"))
                lines.append(
                    f"measured on {splits:g} random halves of the classes: mean rate {mean:.2g} on the other half, "
                    f"above {self.far:g} in {100 * exceeded:.0f} % of them"
                )
        lines.append(
            f"at the threshold, among these classes: false-accept rate {self.measured_far:.3g} "
            f"({self.far_interval[0]:.2g} to {self.far_interval[1]:.2g}), true-accept rate {self.tar:.4f} "
            f"({self.tar_interval[0]:.4f} to {self.tar_interval[1]:.4f})"
        )
        lines.append(f"probabilities are off by {self.reliability.error:.3f} on the average for held-out classes")
        return lines

    def table(self) -> str:
        """Return the estimated thresholds of identification by the size of the gallery."""
        lines = ["gallery classes  threshold"]
        for point in self.identification:
            note = "  extrapolated" if point.extrapolated else ""
            lines.append(f"{point.gallery_classes:15,}  {point.threshold:9.4f}{note}")
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw ROC and DET with the chosen point, the probability of each score, and the reliability curve.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        figure = figure_module.Figure(figsize=(9, 7.5), layout="constrained")
        (roc, det), (probability, reliability) = figure.subplots(2, 2)
        rejected = 1.0 - np.array(self.curve["tar"])
        roc.plot(self.curve["far"], self.curve["tar"])
        det.plot(self.curve["far"], rejected)
        roc.plot(self.measured_far, self.tar, "o", color="black")
        det.plot(self.measured_far, 1.0 - self.tar, "o", color="black")
        roc.set(xscale="log", xlabel="false-accept rate", ylabel="true-accept rate", title="ROC")
        det.set(xscale="log", yscale="log", xlabel="false-accept rate", ylabel="false-reject rate", title="DET")
        probability.plot(self.probability.scores, self.probability.probabilities)
        probability.axvline(self.threshold, linestyle="--", color="black")
        title = f"threshold {self.threshold:.3f}"
        probability.set(xlabel="similarity", ylabel="probability of the same class", title=title)
        reliability.plot([0, 1], [0, 1], color="gray", linewidth=0.8)
        reliability.plot(self.reliability.predicted, self.reliability.observed, marker="o")
        reliability.set(xlabel="predicted", ylabel="observed, held-out classes", title="reliability")
        return figure

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.describe())
        return f"<p>{escape(repr(self)[1:-1])}</p><ul>{lines}</ul>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        table = {
            name: value
            for name, value in vars(self).items()
            if name not in ("probability", "reliability", "identification")
        }
        return {
            **table,
            "far_interval": [*self.far_interval],
            "tar_interval": [*self.tar_interval],
            "scores": self.probability.scores.tolist(),
            "probabilities": self.probability.probabilities.tolist(),
            "reliability": asdict(self.reliability),
            "identification": [asdict(point) for point in self.identification],
        }

    @staticmethod
    def from_dict(table: Mapping[str, Any]) -> "Calibration":
        """Read what `to_dict` returned, after its shape was checked."""
        rest = {name: table[name] for name in SHAPE if name not in ("scores", "probabilities")}
        rest["far_interval"] = (table["far_interval"][0], table["far_interval"][1])
        rest["tar_interval"] = (table["tar_interval"][0], table["tar_interval"][1])
        rest["reliability"] = Reliability(**table["reliability"])
        rest["identification"] = [IdentificationPoint(**point) for point in table["identification"]]
        probability = ProbabilityMap(np.array(table["scores"]), np.array(table["probabilities"]))
        return Calibration(probability=probability, **rest)
