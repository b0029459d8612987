"""The calibration of a run: calibrate on its classes, and keep the result in its folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinfold.calibration.result import SHAPE, Calibration
from kinfold.calibration.thresholds import calibrate, check_share
from kinfold.data.dataset import Dataset
from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.embedding.kept import embed_items
from kinfold.files.documents import read_result, write_result

FILE = "calibration.json"


def calibrate_run(
    run: EmbeddingRun,
    far: float = 1e-2,
    *,
    split: str | None = None,
    progress: Callable[[str, float], None] | None = None,
    **options: Any,
) -> Calibration:
    """Calibrate on the classes of a run that were not trained on, and store the result in its folder.

    Args:
        run: A run that compares by cosine.
        far: The false-accept rate.
        split: "test" or "validation"; None takes the test classes where they may be looked at, else validation.
        progress: Called with a stage and the share that is finished.
        **options: Further options of `calibrate`.

    Raises:
        ValueError: The split was trained on, or the run does not compare by cosine.
    """
    check_share("far", far)  # before items are embedded
    if run.distance != "cosine":
        raise ValueError(f"calibration is of cosines, but the run {run.folder} compares by {run.distance} distance")
    name, dataset, selected = select_unseen(run, split)
    rows = embed_items(run, dataset, progress)
    fingerprint = fingerprint_run(run)
    origin = {"split": name, "run": run.folder.resolve().name, "selected_on": selected, "fingerprint": fingerprint}
    labels = dataset.labels
    result = calibrate(rows, labels, far, may_guarantee=not selected, origin=origin, **options)
    write_result(run.folder / FILE, result.to_dict(), run.folder)
    return result


def select_unseen(run: EmbeddingRun, split: str | None = None) -> tuple[str, Dataset, bool]:
    """Return classes of a run that were not trained on: name, items, and whether the model was selected on them.

    Args:
        run: The run.
        split: "test" or "validation"; None takes the test classes where they may be looked at, else validation.

    Raises:
        ValueError: The split was trained on, or does not exist, or is held out.
    """
    visible = run.list_visible_splits()
    name = split or next((name for name in ("test", "validation") if name in visible), "train")
    if name == "train":
        raise ValueError(
            "the training classes say nothing about new classes: use a run with test or validation classes "
            "(data.validation, or folders train/ and test/, or a column split; kinfold adapt keeps test classes too)"
        )
    dataset = visible[name] if name in visible else run.data(name)
    return name, dataset, name == "validation" and _was_selected(run)


def read_calibration(run: EmbeddingRun) -> Calibration | None:
    """Return the stored calibration of a run; None where there is none.

    Raises:
        ValueError: It is damaged, or of other weights.
    """
    path = Path(run.folder) / FILE
    if not path.is_file():
        return None
    result = Calibration.from_dict(read_result(path, SHAPE, Path(run.folder)))
    if result.origin.get("fingerprint") != fingerprint_run(run):
        raise ValueError(f"{path} is of other weights than the run has now: run `kinfold calibrate {run.folder}` again")
    return result


def _was_selected(run: EmbeddingRun) -> bool:
    """Return whether a network of the run was selected by its scores on the validation classes."""
    members: list[Any] = getattr(run, "runs", [run])
    return any(member.config.evaluation.selection == "validation" for member in members)
