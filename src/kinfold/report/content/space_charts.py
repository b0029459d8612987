"""Charts of embedding spaces: curves over pairs and ranks, histograms of similarities, spectra."""

from collections.abc import Mapping, Sequence

from kinfold.report.charts import NEGATIVE, POSITIVE, Axis, Chart, Series, Values
from kinfold.report.content.embedding_spaces import EmbeddingSpace

MAX_SPECTRUM_RATIO = 30.0  # between singular values; beyond it the axis is logarithmic
_FRACTION = (0.0, 1.0)
CURVES = {
    "roc": ("ROC", Axis("false-positive rate", "log"), Axis("true-positive rate", limits=_FRACTION)),
    "precision-recall": ("precision-recall", Axis("recall"), Axis("precision", limits=_FRACTION)),
    "recall@k": ("recall@k", Axis("k", "log", integer=True), Axis("recall@k", limits=_FRACTION)),
}
SPECTRA = {
    "whole": ("singular values of the embedding space", ""),
    "classes": ("singular values within a class", "mean over classes"),
}


def describe_curves(spaces: Sequence[EmbeddingSpace], styles: Mapping[str, int]) -> list[Chart]:
    """Describe the curves of the spaces, those of the same data in one chart, and a histogram of each space."""
    charts = []
    for subject, group in _group_spaces(spaces).items():
        for key, (title, x, y) in CURVES.items():
            curves = {number: space.measurements["curves"].get(key) for number, space in group.items()}
            series = [
                Series(group[number].name, curve["x"], curve["y"], styles[group[number].method])
                for number, curve in curves.items()
                if curve is not None
            ]
            if series:
                name = f"{title} {next(iter(group.values())).data}"
                charts.append(Chart(name, title, x, y, series, subject=subject, spaces=[*group]))
    return [*charts, *(_describe_histogram(space, number) for number, space in enumerate(spaces) if _has_pairs(space))]


def describe_spectra(spaces: Sequence[EmbeddingSpace], styles: Mapping[str, int]) -> list[Chart]:
    """Describe the singular values of the spaces, those of the same data in one chart."""
    charts = []
    for subject, group in _group_spaces(spaces).items():
        for key, (title, note) in SPECTRA.items():
            series = [
                Series(space.name, [*range(1, len(values) + 1)], values, styles[space.method])
                for space in group.values()
                if (values := space.measurements["spectrum"][key])
            ]
            if series:
                x = Axis("rank of the singular value", integer=True)
                y = Axis("singular value", "log" if _needs_log_scale([one.y for one in series]) else "linear")
                name = f"spectrum {key} {next(iter(group.values())).data}"
                charts.append(Chart(name, title, x, y, series, subject=subject, note=note, spaces=[*group]))
    return charts


def _group_spaces(spaces: Sequence[EmbeddingSpace]) -> dict[str, dict[int, EmbeddingSpace]]:
    """Data and split -> spaces by their numbers."""
    groups: dict[str, dict[int, EmbeddingSpace]] = {}
    for number, space in enumerate(spaces):
        groups.setdefault(f"{space.data}, {space.split} classes", {})[number] = space
    return groups


def _has_pairs(space: EmbeddingSpace) -> bool:
    return space.measurements["histogram"] is not None


def _describe_histogram(space: EmbeddingSpace, number: int) -> Chart:
    histogram = space.measurements["histogram"]
    measure = "similarity" if space.distance in ("cosine", "dot") else "distance"
    series = [
        Series("positive pairs", histogram["edges"], histogram["positives"], POSITIVE),
        Series("negative pairs", histogram["edges"], histogram["negatives"], NEGATIVE),
    ]
    return Chart(
        f"similarities {space.data} {space.name}",
        "distances" if measure == "distance" else "similarities",
        Axis(f"{space.distance} {measure}"),
        Axis("share of pairs", limits=_FRACTION, include_zero=True),
        series,
        "histogram",
        subject=f"{space.name}, {space.data}, {space.split} classes",
        spaces=[number],
    )


def _needs_log_scale(lines: Sequence[Values]) -> bool:
    positive = [value for line in lines for value in line if value is not None and value > 0]
    return bool(positive) and max(positive) > MAX_SPECTRUM_RATIO * min(positive)
