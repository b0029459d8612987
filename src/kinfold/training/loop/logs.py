"""Callbacks that log the events of a run: as lines of JSON, and for TensorBoard, Weights & Biases and MLflow.

`EventLogger` is the one callback for all services; a service is a `MetricWriter` of four short methods.
"""

import json
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kinfold.files.paths import append_text, make_folder
from kinfold.optional import import_optional
from kinfold.training.loop.trainer import Event


class JsonLogger:
    """Append every evaluation, and the mean loss of every `every` steps, to a file; NaN and infinity become null.

    Args:
        path: The file.
        every: Steps between two lines of the loss.
    """

    def __init__(self, path: Path, every: int = 10) -> None:
        self.path = path
        self.every = every
        self._losses: list[float] = []  # since the last line
        self._start = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Log an event."""
        values = dict(event.values)
        if event.kind == "step":
            self._losses.append(values["loss"])
            if event.step % self.every and event.step != event.steps and math.isfinite(values["loss"]):
                return
            values["loss"] = sum(self._losses) / len(self._losses)
            self._losses.clear()
        elif event.kind != "evaluation":
            return
        line: dict[str, Any] = {"event": event.kind, "step": event.step}
        if event.split is not None:
            line["split"] = event.split
        line |= {name: value if math.isfinite(value) else None for name, value in values.items()}
        line["seconds"] = round(time.monotonic() - self._start, 3)
        try:
            append_text(self.path, json.dumps(line) + "\n", self.path.parent)
        except OSError as error:
            raise OSError(f"cannot write {self.path}: {error.strerror}; free space, then resume") from error

    def state_dict(self) -> dict[str, Any]:
        """Return the losses since the last line."""
        return {"losses": [*self._losses]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._losses = [*state["losses"]]


class MetricWriter(Protocol):
    """A service that stores numbers over the steps of a run."""

    def open(self, step: int, run_id: str) -> str:
        """Begin at a step, or continue the run of this id where it is not empty; return the id of the run."""
        ...

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Store numbers by name at a step."""
        ...

    def flush(self) -> None:
        """Make sure that what was written is stored."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


class EventLogger:
    """Send losses, learning rates and metrics of a run to a service, as train/loss, validation/recall@1 and so on.

    It is opened at its first event. A resumed run continues the run of the service, whose id is in the checkpoints.

    Args:
        writer: The service.
        every: Steps between two values of the loss; every evaluation is sent.

    Examples:
        >>> class Printer:
        ...     def open(self, step, run_id): return "1"
        ...     def write(self, values, step): print(step, values)
        ...     def flush(self): pass
        ...     def close(self): print("closed")
        >>> logger = EventLogger(Printer(), every=2)
        >>> for step in (1, 2, 3): logger(Event("step", step, 4, {"loss": 0.5}))
        2 {'train/loss': 0.5}
        >>> logger(Event("end", 4, 4))
        closed
    """

    def __init__(self, writer: MetricWriter, every: int = 10) -> None:
        self.writer = writer
        self.every = every
        self.run_id = ""
        self._is_open = False

    def __call__(self, event: Event) -> None:
        """Log an event."""
        if event.kind == "estimate":
            return
        if not self._is_open:
            self.run_id, self._is_open = self.writer.open(event.step, self.run_id), True
        if event.kind == "end":
            self.writer.close()
        elif event.kind == "saved":
            self.writer.flush()
        elif event.kind == "evaluation" or event.step % self.every == 0 or event.step == event.steps:
            prefix = "train" if event.split is None else event.split
            self.writer.write({f"{prefix}/{name}": value for name, value in event.values.items()}, event.step)

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run."""
        return {"run_id": self.run_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.run_id = state.get("run_id", "")


class TensorBoardWriter:
    """TensorBoard files below a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        import_optional("tensorboard", "tensorboard", "tensorboard", "training.loggers = ['tensorboard']")
        self._folder = folder
        self._writer: Any = None

    def open(self, step: int, run_id: str) -> str:
        from torch.utils.tensorboard import SummaryWriter

        make_folder(self._folder, self._folder.parent)
        # drops what a killed run wrote after the state that it resumes from
        self._writer = SummaryWriter(str(self._folder), purge_step=step)
        return ""

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """A run of Weights & Biases. Its own variables decide where it goes: WANDB_PROJECT, WANDB_MODE=offline and others.

    Args:
        folder: The folder of the run; files of an offline run are in its folder wandb.
        settings: The configuration of the run, as tables.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._library = import_optional("wandb", "wandb", "wandb", "training.loggers = ['wandb']")
        self._folder, self._settings = folder, settings
        self._run: Any = None

    def open(self, step: int, run_id: str) -> str:
        self._run = self._library.init(
            dir=str(self._folder),
            name=self._folder.name,
            config=dict(self._settings),
            id=run_id or None,
            resume="allow" if run_id else None,
        )
        return str(self._run.id)

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def flush(self) -> None:
        """Do nothing: its own process writes."""

    def close(self) -> None:
        self._run.finish()


class MlflowWriter:
    """A run of MLflow. MLFLOW_TRACKING_URI decides where it goes; without it, files in the folder mlruns of the run.

    Names of MLflow have no "@", so that recall@1 becomes recall_at_1.

    Args:
        folder: The folder of the run.
        settings: The configuration of the run, as tables; stored as parameters such as loss.name.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._library = import_optional("mlflow", "mlflow-skinny", "mlflow", "training.loggers = ['mlflow']")
        self._folder, self._settings = folder, settings
        self._client: Any = None
        self._run_id = ""

    def open(self, step: int, run_id: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "kinfold")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or (self._folder / "mlruns").resolve().as_uri()
        self._client = self._library.MlflowClient(tracking_uri=uri)
        if run_id:
            self._run_id = run_id
            return run_id
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run_id = self._client.create_run(number, run_name=self._folder.name).info.run_id
        for key, value in _flatten(self._settings):
            self._client.log_param(self._run_id, key, value)
        return self._run_id

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            safe = re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))
            self._client.log_metric(self._run_id, safe, float(value), step=step)

    def flush(self) -> None:
        """Do nothing: every value is stored at once."""

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


def create_logger(name: str, folder: Path, settings: Mapping[str, Any], every: int = 10) -> EventLogger:
    """Create the callback that logs to a service.

    Args:
        name: "tensorboard", "wandb" or "mlflow".
        folder: The folder of the run.
        settings: The configuration of the run, as tables.
        every: Steps between two values of the loss.

    Raises:
        ImportError: The package of the service is not installed.
    """
    if name == "tensorboard":
        return EventLogger(TensorBoardWriter(folder / "tensorboard"), every)
    writer = WandbWriter(folder, settings) if name == "wandb" else MlflowWriter(folder, settings)
    return EventLogger(writer, every)


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings as pairs of a dotted name and text of at most 500 characters, as MLflow stores them."""
    pairs: list[tuple[str, str]] = []
    for key, value in tables.items():
        if isinstance(value, Mapping):
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", str(value)[:500]))
    return pairs
