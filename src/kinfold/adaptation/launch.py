"""`adapt`: from labeled rows of features to the best space that is proven better than the input."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import registry
from kinfold.adaptation.candidates import AS_GIVEN, LinearCandidate, TunedCandidate
from kinfold.adaptation.class_splits import MIN_CLASSES, split_training_classes
from kinfold.adaptation.final_comparison import compare_on_test
from kinfold.adaptation.final_fit import FinalFit
from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.image_network import MAX_IMAGES, ImageNetwork, Tuner
from kinfold.adaptation.ladder import Ladder, LadderRow
from kinfold.adaptation.measuring import Measurer
from kinfold.adaptation.plan import PLANS, AdaptationPlan, TrialTimes, estimate_seconds, make_plan
from kinfold.adaptation.race import Winner
from kinfold.adaptation.recording import Recorder, Report
from kinfold.adaptation.result import Adaptation
from kinfold.adaptation.trial import run_trial
from kinfold.adaptation.verdict import explain_few_classes, phrase_test, phrase_verdict
from kinfold.data import Dataset, Rows, convert, create_dataset
from kinfold.data.class_shift import average_classes
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.items import Array
from kinfold.data.labeled import find_reader
from kinfold.embedding.kept import KeptEmbeddings
from kinfold.files.documents import nan_to_null
from kinfold.metrics import Distance
from kinfold.metrics._ranking.query_gallery import DISTANCES
from kinfold.metrics.lookup import find_metric
from kinfold.training import Run

METRICS = ("recall@1", "map@r")
_MAX_ROWS = 3000  # of held-out classes, measured on a split
_MINUTES = 10.0
_TUNING_MINUTES = 1.0  # with less, fine-tuning is not even tried
_MAX_REPEATS = 5
_BACKBONE = ("efficientnet-lite0", "imagenet")  # with weights in a Python package, so that nothing is downloaded


def adapt(
    data: Any,
    labels: Any = None,
    folder: Path | str | None = None,
    *,
    minutes: float | None = None,
    plan: str | None = None,
    metrics: Sequence[str] = METRICS,
    distance: Distance = "cosine",
    seed: int = 0,
    backbone: str | None = None,
    weights: str | None = None,
    source: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Adaptation:
    """Find the best space for labeled rows or images, and never one that is worse than the input.

    A ladder of spaces is climbed: as given, centering and dimension, whitening, LDA, a linear head, a residual head. Of
    images, features are computed once, and the last step is fine-tuning of the last stages of the backbone. A step is
    taken only where it is significantly better on classes that were held out from the training classes. The
    winner is fitted to all training classes as an ordinary run. Test classes are used once, at the end.

    Args:
        data: Rows of features (N, d) or images: an array, a tensor, a data frame, a table, a torch dataset, the path of
            a file or folder, or whatever `kinfold.data.convert` takes. Of splits, "train" and "validation" are used
            for everything and "test" for the last comparison.
        labels: The class of each item; None where the data has classes.
        folder: A folder for the run. After a kill, the same call continues. None uses a temporary folder.
        minutes: Time for everything, 10 if left out. A short trial turns what is left of it after reading and
            embedding into a plan of steps that is stored in the folder; from then on decisions count steps, so that a
            killed process ends as it would have.
        plan: "quick", "standard" or "thorough" instead of minutes: a fixed number of splits, candidates and steps, so
            that the result does not depend on the speed of the machine.
        metrics: What is measured; the mean of these decides.
        distance: How embeddings are compared.
        seed: Seed of all draws.
        backbone: Of images: a name of `kinfold.list("backbones")`; efficientnet-lite0 with ImageNet weights if left
            out.
        weights: Of the backbone: a weight file, or "imagenet".
        source: The table [data] of a recipe that names the data, so that the run can be opened without it.
        report: Called with a line of text and the share of it that is finished.

    Returns:
        The table, the verdict and the run.

    Raises:
        ValueError: The data cannot be used, or the folder holds something else.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> y = np.repeat(np.arange(12), 6)
        >>> X = generator.normal(size=(12, 8))[y] + generator.normal(size=(72, 8))
        >>> adaptation = adapt(X, y, minutes=0.001)
        >>> adaptation.embed(X).shape[0]
        72
    """
    started = time.monotonic()
    report = report or (lambda text, share: None)
    budget = _check_budget(minutes, plan)
    for name in metrics:
        find_metric(name)
    if isinstance(distance, str):
        registry.check_known("distance", distance, DISTANCES)
    if isinstance(data, str | Path) and source is None:
        source = {"name": find_reader(Path(data)), "root": str(Path(data).resolve())}
    dataset = convert(data, labels)
    dataset = replace(dataset, split=np.where(dataset.split == "test", "test", "train"))
    if not (dataset.split == "train").any():
        raise ValueError(f"{dataset.name} has test rows only, and adapt learns from training rows")
    network = _choose_network(dataset, backbone, weights, source)
    # an error of the features comes before anything is written
    checked = None if network is not None else _get_training_rows(dataset)
    folder = tempfile.mkdtemp(prefix="kinfold-adapt-") if folder is None else folder
    files = AdaptationFolder(folder)
    files.prepare()
    settings: dict[str, Any] = {"metrics": [*metrics], "distance": distance, "seed": seed}
    if network is not None:
        settings |= {"backbone": network.backbone, "weights": network.weights}
    with files.lock(), ExitStack() as stack:
        if files.begun:
            _check_plan(files, dataset, settings)
        if files.finished:
            return Adaptation.open(folder, dataset)
        threads = torch.get_num_threads()
        stack.callback(torch.set_num_threads, threads)
        features = dataset
        if network is not None:
            features = network.embed_once(dataset, files.path, report)
        rows, row_labels = checked or _get_training_rows(features)
        classes = int(row_labels.max()) + 1
        repeated = int((torch.bincount(row_labels) > 1).sum())
        if classes < MIN_CLASSES or repeated < MIN_CLASSES:
            reason = explain_few_classes(classes, repeated)
            nothing = AdaptationPlan(0, 0, 0, 0, False, _MAX_ROWS, threads)
            _write_plan(files, nothing, dataset, settings, budget)
            winner, ladder_rows = Winner(LinearCandidate(None)), [LadderRow(AS_GIVEN, note=reason)]
            verdict = f"{reason}. Nothing was tried, and the input space is returned."
        else:
            splits = split_training_classes(_average_classes(rows, row_labels), _MAX_REPEATS, seed)
            max_rows = _MAX_ROWS if network is None else MAX_IMAGES
            measurer = Measurer(rows, row_labels, splits, metrics, distance, seed, max_rows)
            tuner = None if network is None else Tuner(network, dataset.subset("train"), measurer)
            chosen, busy = _find_plan(files, measurer, tuner, dataset, settings, budget, started, report)
            torch.set_num_threads(chosen.threads)
            plan_name = budget if isinstance(budget, str) else None
            reason = "no time" if plan_name is None else f"not in the plan {plan_name}"
            ladder = Ladder(measurer, chosen, files, report, tuner, reason)
            winner, ladder_rows = ladder.climb(), ladder.rows
            verdict = phrase_verdict(ladder_rows, ladder.help_tests, busy, plan_name)
        report("final fit", 0.0)
        fit = FinalFit(features, rows, row_labels, distance, seed, source)
        test = _fit_and_compare(fit, winner, files, network, dataset, metrics)
        report("final fit", 1.0)
        if any(row.taken for row in ladder_rows):
            verdict += phrase_test(test)
        name = next((row.step for row in reversed(ladder_rows) if row.taken), AS_GIVEN)
        table = {"steps": [nan_to_null(asdict(row)) for row in ladder_rows], "winner": name, "verdict": verdict}
        files.write_final(nan_to_null({**table, "test": test}))
    report("finished", 1.0)
    return Adaptation.open(folder, dataset)


def _fit_and_compare(
    fit: FinalFit,
    winner: Winner,
    files: AdaptationFolder,
    network: ImageNetwork | None,
    dataset: Dataset,
    metrics: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Fit the winner to all training classes, and compare it with the input on the test classes."""
    embedder: Run  # embeds test items in the space of the winner, from features where that is possible
    if network is None:
        embedder = fit.fit_features(winner, files.run)
    else:
        head_folder = files.path / "head"
        embedder = fit.fit_images(winner, files.run, network, dataset, head_folder)
        if not isinstance(winner.candidate, TunedCandidate):
            head = Run.open(head_folder, fit.dataset)
            # what uses the run later need not embed these images again
            KeptEmbeddings(embedder).keep(dataset, head.embed(fit.dataset))
            embedder, dataset = head, fit.dataset
    return compare_on_test(embedder, fit.dataset, dataset, metrics, fit.distance)


def _choose_network(
    dataset: Dataset, backbone: str | None, weights: str | None, source: Mapping[str, Any] | None
) -> ImageNetwork | None:
    """Return what embeds images; None for rows of features."""
    if getattr(dataset.items[0], "ndim", 0) == 1:
        if backbone is not None or weights is not None:
            raise ValueError(f"{dataset.name} holds features, and a backbone is for images: leave backbone= out")
        return None
    if weights is not None and backbone is None:
        raise ValueError("weights are those of a backbone: give backbone= too")
    name, published = _BACKBONE if backbone is None else (backbone, weights)
    return ImageNetwork(name, published, source or {})


def _get_training_rows(dataset: Dataset) -> tuple[Tensor, Tensor]:
    subset = dataset.subset("train")
    items = subset.items
    array = items.array() if isinstance(items, Rows) else np.stack([items[index] for index in range(len(items))])
    rows = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if bool((rows == rows[0]).all()):
        raise ValueError(f"all training rows of {dataset.name} are equal: no map can separate their classes")
    if not rows.isfinite().all():
        raise ValueError(f"{dataset.name} has rows with NaN or infinite values: leave them out")
    return rows, subset.labels


def _average_classes(rows: Tensor, labels: Tensor) -> Array:
    return average_classes(create_dataset("X", Rows(rows.numpy()), labels.numpy(), np.full(len(rows), "train")))


def _check_plan(files: AdaptationFolder, dataset: Dataset, settings: Mapping[str, Any]) -> None:
    stored = files.read_plan()
    if stored["data"] != compute_fingerprint(dataset):
        raise ValueError(f"the data is not what {files.run} began with: restore it, or choose another folder")
    differences = [name for name, value in settings.items() if stored["settings"].get(name) != value]
    if differences:
        raise ValueError(
            f"{files.run} was begun with another {differences[0]}, {stored['settings'].get(differences[0])}: use that, "
            "or choose another folder"
        )


def _check_budget(minutes: float | None, plan: str | None) -> float | str:
    """Return the minutes, or the name of the plan."""
    if plan is not None:
        registry.check_known("plan", plan, [*PLANS])
        if minutes is not None:
            raise ValueError("give minutes or a plan: a plan has a fixed number of steps, however long these take")
        return plan
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes must be greater than 0, got {minutes}")
    return _MINUTES if minutes is None else minutes


def _find_plan(
    files: AdaptationFolder,
    measurer: Measurer,
    tuner: Tuner | None,
    dataset: Dataset,
    settings: Mapping[str, Any],
    budget: float | str,
    started: float,
    report: Report,
) -> tuple[AdaptationPlan, float]:
    """Read the plan, or make it from a trial; with it, how busy the machine was."""
    if files.begun:
        stored = files.read_plan()
        return AdaptationPlan(**stored["plan"]), stored["trial"].get("busy", 1.0)
    report("trial", 0.0)
    tuned = tuner if isinstance(budget, str) or _subtract_elapsed(budget, started) >= _TUNING_MINUTES else None
    times = run_trial(measurer, Recorder(files, measurer.metrics, report), tuned)
    if isinstance(budget, str):
        plan = replace(PLANS[budget], max_rows=measurer.max_rows, threads=torch.get_num_threads())
        plan = replace(plan, tune_steps=0) if tuner is None else replace(plan, residual=False)
        plan = replace(plan, seconds=estimate_seconds(times, plan))
    else:
        minutes = _subtract_elapsed(budget, started)
        plan = make_plan(times, minutes, measurer.max_rows, torch.get_num_threads())
    _write_plan(files, plan, dataset, settings, budget, times)
    report("trial", 1.0)
    return plan, times.busy


def _subtract_elapsed(minutes: float, started: float) -> float:
    """Return the minutes that are left after features and trial; not more than 0 if those took all of the time."""
    return minutes - (time.monotonic() - started) / 60


def _write_plan(
    files: AdaptationFolder,
    plan: AdaptationPlan,
    dataset: Dataset,
    settings: Mapping[str, Any],
    budget: float | str,
    times: TrialTimes | None = None,
) -> None:
    table = {"data": compute_fingerprint(dataset), "settings": {**settings}, "plan": plan.to_table()}
    files.write_plan({**table, "budget": budget, "trial": {} if times is None else asdict(times)})
