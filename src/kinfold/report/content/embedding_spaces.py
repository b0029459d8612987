"""The embedding spaces that a report shows: which runs, which classes, and their measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfold.data import Dataset
from kinfold.data.items import Array
from kinfold.embedding.kept import embed_items
from kinfold.experiments.repeat import Repeat
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.metrics import Distance
from kinfold.registry import suggest
from kinfold.report.content.datasets import RunDatasets
from kinfold.report.content.inputs import ReportInputs, ReportMethod, ReportRepeat
from kinfold.report.content.json_values import encode_array, round_number
from kinfold.report.content.path_redaction import name_item, redact_paths
from kinfold.report.content.result_tables import get_main_metric, rank_mean, read_scores
from kinfold.report.content.space_measurements import measure_space
from kinfold.report.content.thumbnails import Thumbnails
from kinfold.training import Run
from kinfold.tsne import has_tsne

ALL = "all"  # methods
MORE_METHODS = 3  # beside the best one, on the first dataset
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """The measurements of one embedding space.

    Args:
        name: Method and seed.
        method: Name of the method.
        data: Name of the dataset.
        split: Split whose classes are shown.
        distance: How embeddings are compared.
        dataset: Items of that split.
        identity: Digest of the dataset and the background of its images.
        measurements: Result of `measure_space`.
        background: Color behind transparent images.
    """

    name: str
    method: str
    data: str
    split: str
    distance: Distance
    dataset: Dataset
    identity: str
    measurements: dict[str, Any]
    background: str = "white"


def choose_repeats(inputs: ReportInputs, chosen: Sequence[str] = ()) -> list[tuple[ReportMethod, ReportRepeat]]:
    """Choose the best method of every dataset and some more of the first, each with its first usable seed.

    Args:
        inputs: The runs.
        chosen: Names of methods, which are shown on every dataset instead; "all" for all methods.

    Raises:
        ValueError: A name is unknown.
    """
    names = [*dict.fromkeys(method.name for method in inputs.methods)]
    for name in chosen:
        if name not in (*names, ALL):
            raise ValueError(f"there is no method {name!r}{suggest(name, names)}; there are {', '.join(names)}")
    choices: list[tuple[ReportMethod, ReportRepeat]] = []
    metric = get_main_metric(inputs) if any(method.runs for method in inputs.methods) else ""
    for index, data in enumerate(inputs.data):
        methods = [method for method in inputs.methods if method.data == data and method.runs]
        methods.sort(key=lambda method: rank_mean(_average(method, metric), metric))
        if chosen:
            methods = [method for method in methods if ALL in chosen or method.name in chosen]
        for method in methods if chosen else methods[: 1 + MORE_METHODS if index == 0 else 1]:
            usable = [repeat for repeat in method.repeats if repeat.embedder is not None]
            complete = [repeat for repeat in usable if repeat.complete]
            choices.append((method, (complete or usable)[0]))
    return choices


def open_space(
    method: ReportMethod,
    repeat: ReportRepeat,
    datasets: RunDatasets,
    points: int,
    missing: list[str],
    progress: Progress | None = None,
) -> EmbeddingSpace | None:
    """Measure the embedding space of a repeat, or load it from the cache of the run.

    Args:
        method: The method.
        repeat: Its repeat.
        datasets: Where to get the data.
        points: How many items the map shows at most.
        missing: Remarks of the report; what to know about this space is added.
        progress: Called with a stage and the share that is finished.

    Returns:
        The space; None if it cannot be shown.
    """
    name, run = method.label(repeat), repeat.embedder
    assert run is not None
    try:
        splits = datasets.load_splits(run)
        split, remark = _choose_split([*splits], repeat.complete)
        dataset = splits[split]
        identity = f"{datasets.identify(dataset)} {run.background}"  # the background changes the images
        key = f"{digest_files(_list_weight_files(run))} {identity} {run.distance} {points} {has_tsne()}"
        measurements = load_or_compute(
            run.folder,
            f"report-space-{split}-{points}",
            key,
            lambda: _measure(run, dataset, points, _prefix(progress, name)),
        )
    except (ValueError, OSError, ImportError) as error:
        missing.append(f"no map of {name}: {redact_paths(str(error))}")
        return None
    if remark:
        missing.append(f"{name}: {remark}")
    if measurements["pairs"]:
        missing.append(f"{method.data}: curves and histograms are of some pairs only: {measurements['pairs']}")
    if isinstance(run, Repeat) and len(run.runs) > 1:
        name = f"{name}, {len(run.runs)} folds side by side"
    return EmbeddingSpace(
        name, method.name, method.data, split, run.distance, dataset, identity, measurements, run.background
    )


def request_thumbnails(spaces: Sequence[EmbeddingSpace], thumbnails: Thumbnails) -> None:
    """Ask for the images of queries and their neighbors, then of the map, then of the neighbors on the map."""

    def request(space: EmbeddingSpace, items: Sequence[int]) -> None:
        thumbnails.request(space.identity, space.dataset, items, space.background)

    for space in spaces:
        for entry in (*space.measurements["best"], *space.measurements["worst"]):
            request(space, [entry["query"], *entry["neighbors"]])
    for space in spaces:
        request(space, space.measurements["shown"].tolist())
    for space in spaces:
        request(space, space.measurements["neighbors"].T.flatten().tolist())  # the first neighbor of all points first


def describe_space(space: EmbeddingSpace, thumbnails: Thumbnails) -> dict[str, Any]:
    """Describe an embedding space for the page, with the thumbnails that were drawn."""
    measurements, data = space.measurements, space.dataset
    shown = measurements["shown"].numpy()
    near = measurements["neighbors"].numpy().astype(np.int64)
    labels = data.labels.numpy()
    used_labels = _list_used_labels(space)
    codes = np.full(len(data.classes), -1)
    codes[used_labels] = np.arange(len(used_labels))
    points = np.full(len(data), -1)
    points[shown] = np.arange(len(shown))
    near_codes = codes[labels[near]]
    sprites = thumbnails.get_sprites(space.identity, len(data))
    layout = measurements["layout"]
    return {
        "name": space.name,
        "data": space.data,
        "split": space.split,
        "distance": space.distance,
        "count": measurements["count"],
        "shown": len(shown),
        "map": None if layout is None else {"x": _encode_axis(layout[:, 0]), "y": _encode_axis(layout[:, 1])},
        "labels": encode_array(codes[labels[shown]]),
        "classes": [data.classes[label] for label in used_labels.tolist()],
        "thumbnails": None if sprites is None else encode_array(sprites[shown]),
        # a neighbor that is not on the map is given by -1 - its label
        "neighbors": encode_array(np.where(points[near] >= 0, points[near], -1 - near_codes)),
        "neighbor_labels": encode_array(near_codes),
        "neighbor_scores": encode_array(measurements["scores"].numpy()),
        "neighbor_thumbnails": None if sprites is None else encode_array(sprites[near]),
        "best": [_describe_query(entry, space, codes, sprites) for entry in measurements["best"]],
        "worst": [_describe_query(entry, space, codes, sprites) for entry in measurements["worst"]],
        "ties": measurements["ties"],
        "confused": [
            {**pair, "first": data.classes[pair["first"]], "second": data.classes[pair["second"]]}
            for pair in measurements["confused"]
        ],
        "diagnostics": measurements["diagnostics"],
    }


def _average(method: ReportMethod, metric: str) -> float | None:
    """Mean score of a method over its repeats; None without any."""
    values = []
    for repeat in method.repeats:
        scores = read_scores(repeat)
        result = scores.get("test") or scores.get("separated") or scores.get("validation") or {}
        values += [result[metric]] if result.get(metric) is not None else []
    return sum(values) / len(values) if values else None


def _choose_split(splits: Sequence[str], complete: bool) -> tuple[str, str]:
    """Which classes to show, and a remark if they are not the test classes."""
    if complete and "test" in splits:
        return "test", ""
    split = "validation" if "validation" in splits else "train"
    classes = "validation classes" if split == "validation" else "training classes, which it has learned from"
    if complete:
        return split, f"there are no test classes: its embedding space is that of the {classes}"
    return (
        split,
        f"the test classes stay held out until training is finished: its embedding space is that of the {classes}",
    )


def _list_weight_files(run: Run | Repeat) -> list[Path]:
    runs = run.runs if isinstance(run, Repeat) else [run]
    files = [path for fold in runs for path in fold.weight_files()]
    if len(files) < len(runs):
        raise ValueError("it has no weights yet")
    return files


def _measure(run: Run | Repeat, dataset: Dataset, points: int, progress: Progress) -> dict[str, Any]:
    rows = embed_items(run, dataset, progress)
    if not rows.isfinite().all():
        raise ValueError("its weights are not usable: embeddings are not finite")
    progress("neighbors, curves and map", 0.0)
    measurements = measure_space(rows, dataset, run.distance, points)
    progress("neighbors, curves and map", 1.0)
    return measurements


def _prefix(progress: Progress | None, name: str) -> Progress:
    """Put a name before every stage; do nothing without a callback."""
    return lambda stage, share: None if progress is None else progress(f"{name}: {stage}", share)


def _list_used_labels(space: EmbeddingSpace) -> Array:
    """Labels of all items that are shown."""
    entries = [entry for key in ("best", "worst") for entry in space.measurements[key]]
    items = [item for entry in entries for item in (entry["query"], *entry["neighbors"])]
    near = space.measurements["neighbors"].flatten().long()
    used = torch.cat([space.measurements["shown"], near, torch.tensor(items, dtype=torch.int64)])
    labels: Array = torch.unique(space.dataset.labels[used]).numpy()
    return labels


def _describe_query(
    entry: dict[str, Any], space: EmbeddingSpace, codes: Array, sprites: Array | None
) -> dict[str, Any]:
    labels, items = space.dataset.labels, space.dataset.items

    def describe(item: int) -> dict[str, Any]:
        sprite = -1 if sprites is None else int(sprites[item])
        return {"label": int(codes[labels[item]]), "thumbnail": sprite, "text": name_item(items, item)}

    neighbors = [
        {**describe(item), "right": bool(labels[item] == labels[entry["query"]]), "score": score}
        for item, score in zip(entry["neighbors"], entry["scores"], strict=True)
    ]
    return {"query": describe(entry["query"]), "neighbors": neighbors, "value": round_number(entry["value"])}


def _encode_axis(values: torch.Tensor) -> dict[str, Any]:
    return encode_array(np.round(values.numpy().astype(np.float64), 3))
