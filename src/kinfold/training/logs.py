"""What happened, as lines of JSON and for TensorBoard: callbacks like any other."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinfold.files.paths import append_text, make_folder
from kinfold.optional import import_optional
from kinfold.training.loop import Event


class JsonLines:
    """Appends every evaluation, and the mean loss of every `every` steps, to a file; undefined numbers are null."""

    def __init__(self, path: Path, every: int = 10) -> None:
        self.path = path
        self.every = every
        self._losses: list[float] = []  # since the last line
        self._start = time.monotonic()

    def __call__(self, event: Event) -> None:
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
        except OSError as wrong:
            raise OSError(f"cannot write {self.path}: {wrong.strerror}; free space, then resume") from wrong

    def state_dict(self) -> dict[str, Any]:
        return {"losses": [*self._losses]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._losses = [*state["losses"]]


def create_tensorboard_logger(folder: Path, every: int = 10) -> Callable[[Event], None]:
    """Losses, learning rates and metrics for TensorBoard, below `folder`."""
    import_optional("tensorboard", "tensorboard", "tensorboard", "training.tensorboard")
    writer: Any = None

    def write(event: Event) -> None:
        nonlocal writer
        if writer is None:
            from torch.utils.tensorboard import SummaryWriter

            make_folder(folder, folder.parent)
            # what a killed run wrote beyond the state it goes on from is put aside
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
