"""Find probable label errors, duplicates, leakage and unusable images in a dataset."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.audit.duplicates import (
    FEATURE_SIMILARITY,
    PIXEL_SIMILARITY,
    THUMBNAIL,
    DuplicatePair,
    digest_row,
    find_equal,
    find_near,
    shrink,
)
from kinfold.audit.findings import KINDS, Audit, Finding
from kinfold.audit.label_errors import LabelCheck, check_labels
from kinfold.data import Dataset, check_images, decode
from kinfold.data.image_reading import ImageError
from kinfold.data.items import Array, ImageFile
from kinfold.embedding.encoders import EmbeddingRun
from kinfold.embedding.kept import embed_items
from kinfold.metrics._ranking.rows import normalize_rows
from kinfold.seeding import derive_generator

TINY = 16  # pixels of the shorter side below which an image is reported
MIN_ITEMS = 20  # fewer cannot be judged by a classifier
_STREAM = 25


def audit(
    dataset: Dataset,
    run: EmbeddingRun | None = None,
    *,
    features: Any = None,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> Audit:
    """Report what is probably wrong with a dataset. Nothing is changed.

    Labels are judged by features: those of the dataset, of `run`, or `features`. Without any of these an image is
    judged by its pixels, which finds duplicates but few wrong labels, so that labels are not judged.

    Args:
        dataset: Images or features.
        run: A run that embeds the items; it should not have been trained on these labels.
        features: Embeddings of the items, (N, d), instead of a run.
        workers: Threads that decode images.
        seed: Divides the items into folds.
        progress: Called with a stage and the share that is finished.

    Returns:
        The findings.

    Raises:
        ValueError: Both `run` and `features` are given, or there is not one row of features for each item.
    """
    report = progress or (lambda stage, share: None)
    is_rows = getattr(dataset.items[0], "ndim", 0) == 1
    findings: list[Finding] = []
    pairs: list[DuplicatePair] = []
    readable = np.ones(len(dataset), dtype=bool)
    if is_rows:
        report("duplicates", 0.0)
        pairs += find_equal([digest_row(np.asarray(dataset.items[row])) for row in range(len(dataset))])
    else:
        report("images", 0.0)
        image_findings, digests, thumbnails, readable = _check_images(dataset, workers)
        findings += image_findings
        pairs += find_equal(digests)
        has_content = torch.from_numpy(readable) & (thumbnails.abs().sum(dim=1) > 0)
        pairs += find_near(thumbnails, PIXEL_SIMILARITY, has_content)
    rows, source = _get_features(dataset, run, features, is_rows, readable, report)
    check = None
    if rows is not None:
        report("duplicates", 0.5)
        pairs += find_near(rows, FEATURE_SIMILARITY, torch.from_numpy(readable))
        report("labels", 0.0)
        check = _check_labels(rows, dataset.labels, readable, seed)
        findings += _report_labels(dataset, check, rows)
    findings += _report_duplicates(dataset, pairs)
    report("labels", 1.0)
    order = {kind: number for number, kind in enumerate(KINDS)}
    findings.sort(key=lambda finding: (not finding.drop, order[finding.kind], finding.row))
    hard, confused = _find_hard_classes(dataset, check, readable)
    sizes = dict(zip(dataset.classes, dataset.class_sizes().tolist(), strict=True))
    return Audit(dataset.name, len(dataset), len(dataset.classes), source, findings, hard, confused, sizes)


def _get_features(
    dataset: Dataset,
    run: EmbeddingRun | None,
    features: Any,
    is_rows: bool,
    readable: Array,
    report: Callable[[str, float], None],
) -> tuple[Tensor | None, str]:
    """Return unit features (N, d), zero where an image cannot be read, and what they are."""
    if run is not None and features is not None:
        raise ValueError("give a run or features, not both")
    if features is not None:
        rows, source = torch.as_tensor(np.asarray(features)), "features"
        if rows.dim() != 2 or len(rows) != len(dataset):
            raise ValueError(f"features must be of shape ({len(dataset)}, d), got {tuple(rows.shape)}")
    elif run is not None:
        embedded = embed_items(run, dataset.where(readable), report)
        rows, source = embedded.new_zeros(len(dataset), embedded.shape[1]), f"the run {run.folder.resolve().name}"
        rows[torch.from_numpy(readable)] = embedded
    elif is_rows:
        stacked = np.stack([np.asarray(dataset.items[row]) for row in range(len(dataset))])
        rows, source = torch.from_numpy(stacked), "features"
    else:
        return None, "pixels"
    return normalize_rows(rows.float()), source


def _check_images(dataset: Dataset, workers: int) -> tuple[list[Finding], list[str], Tensor, Array]:
    """Return findings of single images, digests, thumbnails (N, THUMBNAIL^2), and which can be read."""
    checked = check_images(dataset, workers)
    findings = [_make(dataset, row, "broken", why, True) for row, why in checked.broken.items()]
    findings += [
        _make(dataset, row, "transparent", "transparent pixels are drawn on data.background (white)", False)
        for row in checked.transparent
    ]
    blank, clear = {*checked.blank}, {*checked.transparent}
    for row in checked.blank:
        where = " where it is drawn on data.background (white)" if row in clear else ""
        findings.append(_make(dataset, row, "blank", f"the image has a single color{where}", True))
    digests, thumbnails = [""] * len(dataset), torch.zeros(len(dataset), THUMBNAIL**2)
    readable = np.ones(len(dataset), dtype=bool)
    for row in range(len(dataset)):
        if row in checked.broken:
            readable[row] = False
            continue
        try:
            image = decode(dataset.items[row])
        except ImageError:
            readable[row] = False
            continue
        if row not in blank:  # all blank images are alike
            digests[row], thumbnails[row] = digest_row(np.asarray(image)), shrink(image)
        if min(image.size) < TINY:
            size = f"{image.size[0]} x {image.size[1]} pixels"
            findings.append(_make(dataset, row, "tiny", f"the image has {size}", False, score=min(image.size)))
    return findings, digests, thumbnails, readable


def _check_labels(rows: Tensor, labels: Tensor, readable: Array, seed: int) -> LabelCheck | None:
    """Return what a classifier says about the labels of all items; None where there are too few."""
    used = torch.from_numpy(readable)
    classes = torch.unique(labels[used])
    if int(used.sum()) < MIN_ITEMS or len(classes) < 2:
        return None
    numbers = torch.searchsorted(classes, labels[used])
    check = check_labels(rows[used], numbers, derive_generator(seed, _STREAM))
    count = len(labels)
    label_probability, chance = torch.ones(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    suggested, suspicious = labels.clone(), torch.zeros(count, dtype=torch.bool)
    label_probability[used], chance[used] = check.label_probability, check.suggested_probability
    suggested[used], suspicious[used] = classes[check.suggested], check.suspicious
    return LabelCheck(label_probability, suggested, chance, suspicious)


def _report_labels(dataset: Dataset, check: LabelCheck | None, rows: Tensor) -> list[Finding]:
    """Return probable label errors, each with the nearest item of the class that it looks like."""
    if check is None:
        return []
    findings = []
    for row in check.suspicious.nonzero().squeeze(1).tolist():
        suggested, chance = int(check.suggested[row]), float(check.suggested_probability[row])
        probability = float(check.label_probability[row])
        members = (dataset.labels == suggested).nonzero().squeeze(1)
        nearest = int(members[(rows[members] @ rows[row]).argmax()])
        reason = (
            f"looks like {dataset.classes[suggested]} ({chance:.0%}); its label has a probability of {probability:.1g}"
        )
        findings.append(_make(dataset, row, "label-error", reason, True, nearest, probability))
    return findings


def _report_duplicates(dataset: Dataset, pairs: Iterable[DuplicatePair]) -> list[Finding]:
    """Return one finding for each item of a pair that should be looked at; exact pairs come before near ones."""
    findings: dict[tuple[int, str], Finding] = {}
    for pair in sorted(pairs, key=lambda pair: (not pair.exact, -pair.similarity)):
        kind, rows = _judge(dataset, pair)
        for row, other, drop in rows:
            how = "the same as" if pair.exact else f"nearly the same (similarity {pair.similarity:.4f}) as"
            description = f"row {other} ({dataset.classes[int(dataset.labels[other])]}, {dataset.split[other]})"
            finding = _make(dataset, row, kind, f"{how} {description}", drop, other, pair.similarity)
            findings.setdefault((row, kind), finding)
    return [*findings.values()]


def _judge(dataset: Dataset, pair: DuplicatePair) -> tuple[str, list[tuple[int, int, bool]]]:
    """Return the kind of a pair, and (row, other row, drop) of the items to report."""
    first, second = pair.first, pair.second
    if dataset.split[first] != dataset.split[second]:
        # whatever the classes: splits have none in common as a rule; test items stay, so that results remain comparable
        kept = first if dataset.split[first] == "test" or dataset.split[second] == "train" else second
        other = second if kept == first else first
        return "leakage", [(other, kept, True)]
    if int(dataset.labels[first]) != int(dataset.labels[second]):
        return "duplicate-across-classes", [(first, second, pair.exact), (second, first, pair.exact)]
    return "duplicate", [(second, first, pair.exact)]


def _find_hard_classes(
    dataset: Dataset, check: LabelCheck | None, readable: Array
) -> tuple[list[tuple[str, float]], list[tuple[str, str, float]]]:
    if check is None:
        return [], []
    used = torch.from_numpy(readable)
    labels, named = dataset.labels[used], check.suggested[used]
    count = len(dataset.classes)
    sizes = torch.bincount(labels, minlength=count)
    right = torch.bincount(labels[named == labels], minlength=count)
    shares = {name: int(right[i]) / int(sizes[i]) for i, name in enumerate(dataset.classes) if int(sizes[i]) > 1}
    wrong = named != labels
    codes, counts = torch.unique(labels[wrong] * count + named[wrong], return_counts=True)
    confused = [
        (dataset.classes[code // count], dataset.classes[code % count], number / int(sizes[code // count]))
        for code, number in zip(codes.tolist(), counts.tolist(), strict=True)
        if number > 1
    ]
    return (
        sorted(shares.items(), key=lambda entry: entry[1]),
        sorted(confused, key=lambda entry: -entry[2]),
    )


def _make(
    dataset: Dataset, row: int, kind: str, reason: str, drop: bool, other: int | None = None, score: float | None = None
) -> Finding:
    item = dataset.items[row]
    path = str(item.path) if isinstance(item, ImageFile) else ""
    label = dataset.classes[int(dataset.labels[row])]
    return Finding(row, kind, label, str(dataset.split[row]), path, reason, drop, other, score)
