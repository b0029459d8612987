"""`adapt`: from labeled rows of features to the best space that is proven better than the input."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import registry
from kinfold.adaptation.candidates import (
    AS_GIVEN,
    PER_CLASS,
    HeadCandidate,
    LinearCandidate,
)
from kinfold.adaptation.class_splits import MIN_CLASSES, split_training_classes
from kinfold.adaptation.final_comparison import compare_on_test
from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.ladder import Ladder, LadderRow
from kinfold.adaptation.measuring import Measurer, fit_final_candidate
from kinfold.adaptation.plan import PLANS, AdaptationPlan, TrialTimes, estimate_seconds, make_plan
from kinfold.adaptation.race import Winner
from kinfold.adaptation.recording import Recorder, Report
from kinfold.adaptation.result import NO_HELP, Adaptation
from kinfold.adaptation.trial import run_trial
from kinfold.data import Dataset, Rows, create_dataset, to_dataset
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.files.documents import nan_to_null
from kinfold.metrics import Distance
from kinfold.training import Run, configure, train
from kinfold.training.batch_shape import fit_batch_shape

METRICS = ("recall@1", "map@r")
_MAX_ROWS = 3000  # of held-out classes, measured on a split
_MINUTES = 10.0
_BUSY = 1.5  # times the processor time; below, nothing is said about it
_MAX_REPEATS = 5


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
    source: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Adaptation:
    """Find the best space for labeled rows, and never one that is worse than the input.

    A ladder of spaces is climbed: as given, centering and dimension, whitening, LDA, a linear head, a residual head. A
    step is taken only where it is significantly better on classes that were held out from the training classes. The
    winner is fitted to all training classes as an ordinary run. Test classes are used once, at the end.

    Args:
        data: Rows of features (N, d): an array, a tensor, a pandas data frame, or a `kinfold.data.Dataset` with labels
            and splits, of which "train" and "validation" are used for everything and "test" for the last comparison.
        labels: The class of each row; None for a dataset.
        folder: A folder for the run. After a kill, the same call continues. None uses a temporary folder.
        minutes: Time for everything, 10 if left out. A short trial turns it into a plan of steps that is stored in the
            folder; from then on decisions count steps, so that a killed process ends as it would have.
        plan: "quick", "standard" or "thorough" instead of minutes: a fixed number of splits, candidates and steps, so
            that the result does not depend on the speed of the machine.
        metrics: What is measured; the mean of these decides.
        distance: How embeddings are compared.
        seed: Seed of all draws.
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
    report = report or (lambda text, share: None)
    dataset = _to_dataset(data, labels)
    train_rows, train_labels = _get_training_rows(dataset)
    budget = _check_budget(minutes, plan)
    folder = tempfile.mkdtemp(prefix="kinfold-adapt-") if folder is None else folder
    files = AdaptationFolder(folder)
    files.prepare()
    settings = {"metrics": [*metrics], "distance": distance, "seed": seed}
    with files.lock(), ExitStack() as stack:
        if files.finished:
            _check_plan(files, dataset, settings)
            return Adaptation.open(folder, dataset)
        threads = torch.get_num_threads()
        stack.callback(torch.set_num_threads, threads)
        classes = int(train_labels.max()) + 1
        repeated = int((torch.bincount(train_labels) > 1).sum())
        if classes < MIN_CLASSES or repeated < MIN_CLASSES:
            reason = _explain_few_classes(classes, repeated)
            _write_plan(files, AdaptationPlan(0, 0, 0, 0, False, _MAX_ROWS, threads), dataset, settings, budget)
            winner, rows = Winner(LinearCandidate(None)), [LadderRow(AS_GIVEN, note=reason)]
            verdict = f"{reason}. Nothing was tried, and the input space is returned."
        else:
            splits = split_training_classes(classes, _MAX_REPEATS, seed)
            measurer = Measurer(train_rows, train_labels, splits, metrics, distance, seed, _MAX_ROWS)
            chosen, busy = _find_plan(files, measurer, dataset, settings, budget, report)
            torch.set_num_threads(chosen.threads)
            ladder = Ladder(measurer, chosen, files, report)
            winner, rows = ladder.climb(), ladder.rows
            verdict = _phrase_verdict(rows, busy)
        run = _fit_winner(winner, dataset, train_rows, train_labels, folder, distance, seed, source)
        test = compare_on_test(run, dataset, metrics, distance)
        verdict += _phrase_test(test, winner)
        name = next((row.step for row in reversed(rows) if row.taken), AS_GIVEN)
        table = {"steps": [nan_to_null(asdict(row)) for row in rows], "winner": name, "verdict": verdict, "test": test}
        files.write_final(nan_to_null(table))
    report("finished", 1.0)
    return Adaptation.open(folder, dataset)


def _to_dataset(data: Any, labels: Any) -> Dataset:
    """Return a dataset of rows whose splits are train and test."""
    if isinstance(data, Dataset):
        if labels is not None:
            raise ValueError("a dataset has labels of its own: leave labels out")
        dataset = data
    else:
        if labels is None:
            raise ValueError("give the class of each row: kinfold.adapt(X, y)")
        rows = to_dataset(data, features=True, taker="kinfold.adapt").items
        array = rows.array() if isinstance(rows, Rows) else np.stack([rows[index] for index in range(len(rows))])
        dataset = create_dataset("X", Rows(array), np.asarray(labels), np.full(len(array), "train"))
    if getattr(dataset.items[0], "ndim", 0) != 1:
        raise ValueError(
            f"{dataset.name} holds images, and adapt takes rows of features: embed them first, as with kinfold embed "
            "folder --root photos --backbone efficientnet-lite0 --weights imagenet --out photos.npz"
        )
    return replace(dataset, split=np.where(dataset.split == "test", "test", "train"))


def _get_training_rows(dataset: Dataset) -> tuple[Tensor, Tensor]:
    if not (dataset.split == "train").any():
        raise ValueError(f"{dataset.name} has test rows only, and adapt learns from training rows")
    subset = dataset.subset("train")
    items = subset.items
    array = items.array() if isinstance(items, Rows) else np.stack([items[index] for index in range(len(items))])
    rows = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if not rows.isfinite().all():
        raise ValueError(f"{dataset.name} has rows with NaN or infinite values: leave them out")
    return rows, subset.labels


def _explain_few_classes(classes: int, repeated: int) -> str:
    if classes < MIN_CLASSES:
        return (
            f"{classes} training {'class is' if classes == 1 else 'classes are'} too few to hold some out and to prove "
            f"that a step helps: at least {MIN_CLASSES} are needed"
        )
    return (
        f"only {repeated} of {classes} training classes have two rows or more, too few to measure retrieval on "
        f"held-out classes: at least {MIN_CLASSES} are needed"
    )


def _check_plan(files: AdaptationFolder, dataset: Dataset, settings: Mapping[str, Any]) -> None:
    if not files.begun:
        return
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
    dataset: Dataset,
    settings: Mapping[str, Any],
    budget: float | str,
    report: Report,
) -> tuple[AdaptationPlan, float]:
    """Read the plan, or make it from a trial; with it, how busy the machine was."""
    if files.begun:
        _check_plan(files, dataset, settings)
        stored = files.read_plan()
        return AdaptationPlan(**stored["plan"]), stored["trial"].get("busy", 1.0)
    report("trial", 0.0)
    times = run_trial(measurer, Recorder(files, measurer.metrics, report))
    if isinstance(budget, str):
        plan = replace(PLANS[budget], max_rows=measurer.max_rows, threads=torch.get_num_threads())
        plan = replace(plan, seconds=estimate_seconds(times, plan))
    else:
        plan = make_plan(times, budget, measurer.max_rows, torch.get_num_threads())
    _write_plan(files, plan, dataset, settings, budget, times)
    report("trial", 1.0)
    return plan, times.busy


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


def _fit_winner(
    winner: Winner,
    dataset: Dataset,
    rows: Tensor,
    labels: Tensor,
    folder: Path | str,
    distance: Distance,
    seed: int,
    source: Mapping[str, Any] | None,
) -> Run:
    """Fit the winner to all training classes, as a run of its own; a run that was begun is continued."""
    if (Path(folder) / "configuration.toml").is_file():
        return train(None, folder, resume=True, dataset=dataset)
    width, classes, candidate = rows.shape[1], int(labels.max()) + 1, winner.candidate
    if isinstance(candidate, HeadCandidate):
        candidate = replace(candidate, start=fit_final_candidate(candidate.start, rows, labels))
        shape = fit_batch_shape(torch.bincount(labels).tolist(), candidate.batch_size, PER_CLASS)
        tables = candidate.tables(width, classes, shape, winner.steps, seed)
    else:
        linear = fit_final_candidate(candidate, rows, labels)
        tables = {
            "seed": seed,
            "model": linear.model_table(width, classes),
            "sampler": {"name": "random", "batch_size": min(80, len(rows))},
            "training": {"steps": 0},
        }
    tables["data"] = {"name": "features", **(source or {}), "validation": 0.0}
    tables["evaluation"] = {"selection": "last", "distance": distance, "every": max(1, winner.steps)}
    return train(configure(tables), folder, dataset=dataset)


def _phrase_verdict(rows: Sequence[LadderRow], busy: float) -> str:
    taken = [row for row in rows if row.taken]
    skipped = [f"the {row.step}" for row in rows if row.note]
    end = f" There was no time for {' and '.join(skipped)}: more minutes may help." if skipped else ""
    if skipped and busy >= _BUSY:
        end += f" Other processes used the machine, so that everything took {busy:.1f} times as long as alone."
    if not taken:
        return f"{NO_HELP}, so the input space is returned.{end}"
    first, last = rows[0], taken[-1]
    return (
        f"Use the adapted space: {last.step} ({last.candidate}) scores {100 * last.score:.1f} on classes that were "
        f"held out from training, the input {100 * first.score:.1f}.{end}"
    )


def _phrase_test(test: Mapping[str, Mapping[str, float]], winner: Winner) -> str:
    if not test or (isinstance(winner.candidate, LinearCandidate) and winner.candidate.kind is None):
        return ""
    parts = [
        f"{name} {100 * values['input']:.1f} -> {100 * values['adapted']:.1f} ({100 * values['low']:+.1f} to "
        f"{100 * values['high']:+.1f})"
        for name, values in test.items()
    ]
    return f" On the test classes: {', '.join(parts)}."
