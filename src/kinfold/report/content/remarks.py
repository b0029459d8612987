"""Remarks about what a report cannot show: failures, unfinished runs, missing classes, missing images."""

from collections.abc import Sequence

from kinfold.report.content.embedding_spaces import EmbeddingSpace
from kinfold.report.content.inputs import ReportInputs, ReportMethod, ReportRepeat
from kinfold.report.content.path_redaction import redact_paths
from kinfold.report.content.result_tables import is_inflated
from kinfold.report.content.thumbnails import Thumbnails, get_images


def describe_state(inputs: ReportInputs) -> list[str]:
    """Say what failed, is not finished, was not measured, or was selected on the test classes."""
    remarks = [redact_paths(reason) for reason in inputs.unreadable]
    remarks += [f"{name} failed: {redact_paths(error)}" for name, error in inputs.failures.items()]
    repeats = [(method, repeat) for method in inputs.methods for repeat in method.repeats]
    unfinished = [(method, repeat) for method, repeat in repeats if not repeat.complete]
    if inputs.bench is None:
        remarks += [_describe_unfinished(method, repeat) for method, repeat in unfinished]
    elif unfinished:
        names = [method.label(repeat) for method, repeat in unfinished]
        listed = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
        remarks.append(
            f"the bench is not complete: {len(names)} of {len(repeats)} repeats have no result yet ({listed})"
        )
    remarks += _describe_selection(inputs)
    if max(len(method.repeats) for method in inputs.methods) < 2:
        remarks.append("one seed: there are no confidence intervals, and methods cannot be compared statistically")
    if is_inflated(inputs):
        remarks.append("inflated: the steps were selected on the test classes, separately for each metric")
    for method in inputs.methods:
        remarks += _describe_endings(method)
    return remarks


def describe_images(spaces: Sequence[EmbeddingSpace], thumbnails: Thumbnails) -> list[str]:
    """Say which images are not shown, and why."""
    remarks = [
        f"{space.data}: its items are features, not images; labels are shown instead (name the folder of the images by "
        "--images, if the feature file has a column path)"
        for space in spaces
        if get_images(space.dataset) is None
    ]
    if thumbnails.refused:
        remarks.append(
            f"images: only the {thumbnails.max_count:,} most important ones; other items are shown by their labels"
        )
    if thumbnails.outside:
        remarks.append(f"{thumbnails.outside:,} images lie outside of the folder of their dataset, and are not shown")
    if thumbnails.unreadable:
        remarks.append(f"{thumbnails.unreadable:,} images cannot be read any more")
    return remarks


def _describe_unfinished(method: ReportMethod, repeat: ReportRepeat) -> str:
    unfinished = [run for run in repeat.runs if not run.finished]
    if not unfinished:
        return f"{method.label(repeat)}: all folds are trained, but not evaluated on the test classes yet"
    run = unfinished[0]
    step = max((event["step"] for event in run.events), default=0)
    steps = run.config.training.steps
    reached = f"step {step}{'' if steps is None else f' of {steps}'} in its log"
    weights = "the best weights so far" if run.run_folder.best.is_file() else "the newest weights"
    return f"{method.label(repeat)} is not finished ({reached}): there are no results, and {weights} are shown"


def _describe_selection(inputs: ReportInputs) -> list[str]:
    """Runs without validation classes keep their last weights."""
    runs = [(method, run) for method in inputs.methods for run in method.runs if run.finished]
    last = [
        method.name
        for method, run in runs
        if "validation" not in run.scores and run.config.evaluation.selection == "last"
    ]
    if not last:
        return []
    names = "" if len(last) == len(runs) else f" of {', '.join(dict.fromkeys(last))}"
    return [f"no validation classes: the weights{names} are those of the last step"]


def _describe_endings(method: ReportMethod) -> list[str]:
    remarks = []
    for run in method.runs:
        if not run.finished:
            continue
        name = f"{method.name}, seed {run.config.seed}"
        if run.scores.get("selected_start"):
            fold = f", fold {run.config.data.fold}" if len(method.runs) > len(method.repeats) else ""
            remarks.append(f"{name}{fold}: the start was selected, so its scores are those before training")
        if "not finite" in run.scores["ended"]:
            remarks.append(f"{name}: training ended early: {run.scores['ended']}")
    return remarks
