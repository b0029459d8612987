"""Callbacks that log the events of a run: as lines of JSON, and for TensorBoard."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def create_tensorboard_logger(folder: Path, every: int = 10) -> Callable[[Event], None]:
    """Create a callback that writes losses, learning rates and metrics for TensorBoard below `folder`."""
    import_optional("tensorboard", "tensorboard", "tensorboard", "training.tensorboard")
    writer: Any = None

    def write(event: Event) -> None:
        nonlocal writer
        if writer is None:
            from torch.utils.tensorboard import SummaryWriter

            make_folder(folder, folder.parent)
            # drops what a killed run wrote after the state that it resumes from
            writer = SummaryWriter(str(folder), purge_step=event.step)
        if event.kind == "end":
            writer.close()
            return
        if event.kind == "saved":
            writer.flush()
            return
        if event.kind == "step" and event.step % every and event.step != event.steps:
            return
        prefix = "train" if event.split is None else event.split
        for name, value in event.values.items():
            writer.add_scalar(f"{prefix}/{name}", value, event.step)

    return write
