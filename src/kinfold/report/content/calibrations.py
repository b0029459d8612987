"""Stored calibrations of runs: ROC and DET with the chosen points, probabilities, and reliability."""

from typing import Any

from kinfold.calibration import Calibration, read_calibration
from kinfold.report.charts import NEGATIVE, Axis, Chart, Series
from kinfold.report.content.inputs import ReportInputs
from kinfold.report.content.json_values import round_numbers
from kinfold.report.content.path_redaction import redact_paths

_FRACTION = (0.0, 1.0)
_FAR = Axis("false-accept rate", "log")


def read_calibrations(inputs: ReportInputs, missing: list[str]) -> dict[str, tuple[Calibration, int]]:
    """Return what `kinfold calibrate` stored: name -> calibration and number of the method.

    Args:
        inputs: The runs.
        missing: Gets a sentence for each calibration that cannot be used.
    """
    calibrations = {}
    for method in inputs.methods:
        for repeat in method.repeats:
            embedder = repeat.embedder
            if embedder is None:
                continue
            try:
                result = read_calibration(embedder)
            except (ValueError, OSError) as error:
                missing.append(f"the calibration of {method.label(repeat)} is not shown: {redact_paths(str(error))}")
                continue
            if result is not None:
                calibrations[method.label(repeat)] = (result, inputs.method_styles[method.name])
    return calibrations


def describe_calibration_charts(calibrations: dict[str, tuple[Calibration, int]]) -> list[Chart]:
    """Describe ROC, DET, probability and reliability; the chosen point of each run is a series of its own."""
    if not calibrations:
        return []
    roc, det, probability, reliability = [], [], [], []
    for name, (result, style) in calibrations.items():
        chosen = (
            f"{name}: chosen, from {result.threshold:.4f} on"
            if len(calibrations) > 1
            else (f"chosen: similarity from {result.threshold:.4f} on")
        )
        far, tar = round_numbers(result.curve["far"]), round_numbers(result.curve["tar"])
        rejected = round_numbers([1.0 - value for value in result.curve["tar"]])
        point = style + 1
        roc += [Series(name, far, tar, style), Series(chosen, [result.measured_far], [result.tar], point)]
        det += [Series(name, far, rejected, style), Series(chosen, [result.measured_far], [1.0 - result.tar], point)]
        scores = round_numbers(result.probability.scores.tolist())
        probability.append(Series(name, scores, round_numbers(result.probability.probabilities.tolist()), style))
        reliability.append(Series(name, result.reliability.predicted, result.reliability.observed, style))
    reliability.append(Series("perfect", [0.0, 1.0], [0.0, 1.0], NEGATIVE))
    every = "every class counts the same"
    return [
        Chart("calibration ROC", "ROC", _FAR, Axis("true-accept rate", limits=_FRACTION), roc, note=every),
        Chart("calibration DET", "DET", _FAR, Axis("false-reject rate", "log"), det, note=every),
        Chart(
            "calibration probability",
            "probability of the same class",
            Axis("cosine similarity"),
            Axis("probability", limits=_FRACTION),
            probability,
            note="if half of the pairs are of the same class",
        ),
        Chart(
            "calibration reliability",
            "reliability",
            Axis("predicted probability"),
            Axis("observed share", limits=_FRACTION),
            reliability,
            note="of classes that the probabilities were not fitted on",
        ),
    ]


def describe_calibrations(calibrations: dict[str, tuple[Calibration, int]]) -> list[dict[str, Any]]:
    """Return name, origin and sentences of each calibration."""
    return [
        {
            "name": name,
            "classes": f"{result.classes:,} {result.origin.get('split', '')} classes".replace("  ", " "),
            "sentences": result.describe(),
            "identification": [
                {"classes": point.gallery_classes, "threshold": point.threshold, "extrapolated": point.extrapolated}
                for point in result.identification
            ],
        }
        for name, (result, _) in calibrations.items()
    ]
