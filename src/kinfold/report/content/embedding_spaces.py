"""The spaces that a report shows: which runs, which classes, and what is kept of them in the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfold.data import Dataset
from kinfold.data.items import Array
from kinfold.experiments.repeat import Repeat
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_files
from kinfold.report.content.datasets import Library
from kinfold.report.content.inputs import Repetition, ReportInputs, Subject
from kinfold.report.content.json_values import number, packed
from kinfold.report.content.map_layout import has_tsne
from kinfold.report.content.path_redaction import item_text, without_places
from kinfold.report.content.result_tables import compared_metric, scores
from kinfold.report.content.space_measurements import measured_space
from kinfold.report.content.thumbnails import Thumbnails
from kinfold.training import Run
from kinfold.training.run import weight_files
from kinfold.training.selection import is_better

MORE = 3  # methods beside the best one, on the first data set
Tell = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Space:
    """What was measured of one space, with the items it is about."""

    name: str
    data: str
    split: str
    distance: str
    dataset: Dataset
    identity: str
    measured: dict[str, Any]
    background: str = "white"


def chosen(found: ReportInputs) -> list[tuple[Subject, Repetition]]:
    """The best method of every data set, and some more of the first, each with its first seed that can be shown."""
    picked: list[tuple[Subject, Repetition]] = []
    metric = compared_metric(found) if any(subject.runs for subject in found.subjects) else ""
    for place, data in enumerate(found.data):
        subjects = [subject for subject in found.subjects if subject.data == data and subject.runs]
        subjects.sort(key=lambda subject: _rank(subject, metric))
        for subject in subjects[: 1 + MORE if place == 0 else 1]:
            usable = [repetition for repetition in subject.repetitions if repetition.space is not None]
            done = [repetition for repetition in usable if repetition.complete]
            picked.append((subject, (done or usable)[0]))
    return picked


def look(
    subject: Subject,
    repetition: Repetition,
    library: Library,
    points: int,
    missing: list[str],
    tell: Tell | None = None,
) -> Space | None:
    """The space of a repetition, from what the run keeps or made anew; None, and the reason in `missing`, where there
    is nothing to look at."""
    name, made = subject.named(repetition), repetition.space
    assert made is not None
    try:
        splits = library.splits(made)
        split, why = _split([*splits], repetition.complete)
        dataset = splits[split]
        files = _weights(made)
        identity = f"{library.identity(dataset)} {made.background}"  # another background makes other pictures
        key = f"{digest_files(files)} {identity} {made.distance} {points} {has_tsne()}"
        measured = load_or_compute(
            made.folder,
            f"report-space-{split}-{points}",
            key,
            lambda: _measured(made, dataset, points, None if tell is None else _staged(tell, name)),
        )
    except (ValueError, OSError, ImportError) as wrong:
        missing.append(f"no map of {name}: {without_places(str(wrong))}")
        return None
    if why:
        missing.append(f"{name}: {why}")
    if measured["pairs"]:
        missing.append(f"{subject.data}: curves and histograms are of some pairs only: {measured['pairs']}")
    side = isinstance(made, Repeat) and len(made.runs) > 1
    shown = f"{name}, {len(made.runs)} folds side by side" if isinstance(made, Repeat) and side else name
    return Space(shown, subject.data, split, made.distance, dataset, identity, measured, made.background)


def content(space: Space, thumbnails: Thumbnails) -> dict[str, Any]:
    """One space as the page takes it; `thumbnails` knows which pictures there are."""
    measured, data = space.measured, space.dataset
    shown = measured["shown"].numpy()
    near = measured["neighbors"].numpy().astype(np.int64)
    labels = data.labels.numpy()
    occurring, names = _occurring(space)
    code = np.full(len(data.classes), -1)
    code[occurring] = np.arange(len(occurring))
    place = np.full(len(data), -1)
    place[shown] = np.arange(len(shown))
    near_labels = code[labels[near]]
    pictures = thumbnails.indices(space.identity, len(data))
    plane = measured["plane"]
    return {
        "name": space.name,
        "data": space.data,
        "split": space.split,
        "distance": space.distance,
        "count": measured["count"],
        "shown": len(shown),
        "map": None if plane is None else {"x": _rounded(plane[:, 0]), "y": _rounded(plane[:, 1])},
        "labels": packed(code[labels[shown]]),
        "classes": names,
        "thumbnails": None if pictures is None else packed(pictures[shown]),
        "neighbors": packed(np.where(place[near] >= 0, place[near], -1 - near_labels)),
        "neighbor_labels": packed(near_labels),
        "neighbor_scores": packed(measured["scores"].numpy()),
        "neighbor_thumbnails": None if pictures is None else packed(pictures[near]),
        "best": [_query(entry, space, code, pictures) for entry in measured["best"]],
        "worst": [_query(entry, space, code, pictures) for entry in measured["worst"]],
        "alike": measured["alike"],
        "confused": [
            {**pair, "first": data.classes[pair["first"]], "second": data.classes[pair["second"]]}
            for pair in measured["confused"]
        ],
        "curves": measured["curves"],
        "histogram": measured["histogram"],
        "spectrum": measured["spectrum"],
        "diagnostics": measured["diagnostics"],
    }


def want(spaces: Sequence[Space], thumbnails: Thumbnails) -> None:
    """Ask for the pictures of queries and what they find, then of shown points, then of their neighbours."""
    for space in spaces:
        for entry in (*space.measured["best"], *space.measured["worst"]):
            thumbnails.want(space.identity, space.dataset, [entry["query"], *entry["neighbors"]], space.background)
    for space in spaces:
        thumbnails.want(space.identity, space.dataset, space.measured["shown"].tolist(), space.background)
    for space in spaces:
        # the nearest of all points first
        nearest = space.measured["neighbors"].T.flatten().tolist()
        thumbnails.want(space.identity, space.dataset, nearest, space.background)


def _rank(subject: Subject, metric: str) -> tuple[bool, float]:
    """To sort by: the best mean first, those without any last."""
    values = []
    for repetition in subject.repetitions:
        known = scores(repetition)
        found = known.get("test") or known.get("separated") or known.get("validation") or {}
        values += [found[metric]] if found.get(metric) is not None else []
    mean = sum(values) / len(values) if values else 0.0
    return not values, mean if is_better(metric, 0.0, 1.0) else -mean


def _split(present: Sequence[str], complete: bool) -> tuple[str, str]:
    """Which classes to look at, and what has to be said about it."""
    if complete and "test" in present:
        return "test", ""
    instead = "validation" if "validation" in present else "train"
    words = {"validation": "validation classes", "train": "training classes, which it has learned from"}[instead]
    if complete:
        return instead, f"it was given no test classes: its space is that of the {words}"
    return instead, f"the test classes stay sealed until all is decided: its space is that of the {words}"


def _weights(made: Run | Repeat) -> list[Path]:
    runs = made.runs if isinstance(made, Repeat) else [made]
    files = [path for run in runs for path in weight_files(run)]
    if len(files) < len(runs):
        raise ValueError("it has no weights yet")
    return files


def _measured(made: Run | Repeat, dataset: Dataset, points: int, tell: Tell | None) -> dict[str, Any]:
    rows = made.embed(dataset, tell)
    if not rows.isfinite().all():
        raise ValueError("its weights are not usable: embeddings are not finite")
    tell = tell or (lambda stage, share: None)
    tell("neighbours, curves and map", 0.0)
    measured = measured_space(rows, dataset, made.distance, points)
    tell("neighbours, curves and map", 1.0)
    return measured


def _staged(tell: Tell, name: str) -> Tell:
    return lambda stage, share: tell(f"{name}: {stage}", share)


def _occurring(space: Space) -> tuple[Array, list[str]]:
    """Labels of all that is shown or named, and their names."""
    labels = space.dataset.labels
    asked = [entry for key in ("best", "worst") for entry in space.measured[key]]
    rest = [place for entry in asked for place in (entry["query"], *entry["neighbors"])]
    near = space.measured["neighbors"].flatten().long()
    places = torch.cat([space.measured["shown"], near, torch.tensor(rest, dtype=torch.int64)])
    found = torch.unique(labels[places]).numpy()
    return found, [space.dataset.classes[label] for label in found.tolist()]


def _query(entry: dict[str, Any], space: Space, code: Array, pictures: Array | None) -> dict[str, Any]:
    labels, items = space.dataset.labels, space.dataset.items

    def told(place: int) -> dict[str, Any]:
        thumbnail = -1 if pictures is None else int(pictures[place])
        return {"label": int(code[labels[place]]), "thumbnail": thumbnail, "text": item_text(items, place)}

    own = labels[entry["query"]]
    near = [
        {**told(place), "right": bool(labels[place] == own), "score": score}
        for place, score in zip(entry["neighbors"], entry["scores"], strict=True)
    ]
    return {"query": told(entry["query"]), "neighbors": near, "value": number(entry["value"])}


def _rounded(values: torch.Tensor) -> dict[str, Any]:
    return packed(np.round(values.numpy().astype(np.float64), 3))
