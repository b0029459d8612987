"""The folder of a run: what was asked for, what happened, the last good states, the selected weights and the scores."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from kinfold.files import held, write_json, write_text
from kinfold.training.state import read_state, write_state

KEPT = 2  # checkpoints: the last one, and one before it in case that is damaged


class RunFolder:
    """Names and writes everything in one folder.

    configuration.toml, environment.json; log.jsonl, one line per event; checkpoints/ with their list; best.safetensors,
    the best weights so far; model.safetensors, the selected weights, and scores.json, once the run is finished.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder)
        self.configuration = self.path / "configuration.toml"
        self.environment = self.path / "environment.json"
        self.log = self.path / "log.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best.safetensors"
        self.model = self.path / "model.safetensors"
        self.scores = self.path / "scores.json"

    @property
    def begun(self) -> bool:
        return self.configuration.is_file()

    @property
    def finished(self) -> bool:
        return self.scores.is_file()

    def begin(self, configuration: str, environment: dict[str, Any]) -> None:
        """Make the folder of a new run; one that holds anything is refused."""
        self._check_empty()
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise OSError(
                f"cannot make the run folder {self.path}: {wrong.strerror}; choose one you may write to"
            ) from wrong
        with self.held():
            self._check_empty()  # again: another process may have been faster
            write_json(self.environment, environment)
            # last: with it the run has begun
            write_text(self.configuration, configuration)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else may train here meanwhile; the hold ends with the process, however that ends."""
        busy = f"another process is training in {self.path}; wait for it, or choose another folder"
        with held(self.path, busy, "see to the rights, then resume"):
            for half_written in (*self.path.glob(".*.tmp"), *self.checkpoints.glob(".*.tmp")):
                half_written.unlink()  # by a process that was killed
            yield

    def save(self, step: int, state: dict[str, Any]) -> None:
        """A new checkpoint; older ones go only when this one is whole and listed."""
        name = f"{step:09}.safetensors"
        sha256 = write_state(self.checkpoints / name, state)
        listed = [entry for entry in self._listed() if entry["file"] != name]
        kept = [*listed, {"step": step, "file": name, "sha256": sha256}][-KEPT:]
        write_json(self.checkpoints / "list.json", kept)
        names = {entry["file"] for entry in kept}
        for path in self.checkpoints.glob("*.safetensors"):
            if path.name not in names:
                path.unlink()

    def last(self) -> dict[str, Any] | None:
        """The newest checkpoint; None where there is none yet; ValueError where it is damaged."""
        listed = self._listed()
        if not listed:
            return None
        entry = listed[-1]
        try:
            state = read_state(self.checkpoints / entry["file"], entry["sha256"])
        except ValueError as wrong:
            before = (
                f"To continue from step {listed[-2]['step']} instead, delete its entry, the last one, from "
                f"{self.checkpoints / 'list.json'}"
                if len(listed) > 1
                else "There is no earlier one: start the run anew in another folder"
            )
            raise ValueError(f"the last checkpoint cannot be used: {wrong}. {before}") from None
        assert isinstance(state, dict)
        return state

    def keep_best(self, step: int, weights: dict[str, Tensor]) -> None:
        write_state(self.best, {"step": step, "model": weights})

    def weights(self, path: Path) -> dict[str, Any]:
        state = read_state(path)
        if not isinstance(state, dict) or set(state) != {"step", "model"}:
            raise ValueError(f"{path} does not hold weights of a run")
        return state

    def cut_log(self, length: int) -> None:
        """Forget what was logged after the state that the run goes on from."""
        if self.log.exists() and self.log.stat().st_size > length:
            os.truncate(self.log, length)

    def events(self) -> list[dict[str, Any]]:
        """What was logged so far; a line that a kill cut short is left out."""
        if not self.log.exists():
            return []
        found = []
        for line in self.log.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return found

    def _check_empty(self) -> None:
        """ValueError where the folder holds more than a start that was killed leaves behind."""
        if not self.path.exists():
            return
        of_a_start = {self.checkpoints, self.environment, self.path / ".lock", *self.path.glob(".*.tmp")}
        if not self.path.is_dir() or set(self.path.iterdir()) - of_a_start:
            advice = f"continue it with --resume {self.path}, or " if self.begun else ""
            raise ValueError(f"{self.path} is not empty: {advice}choose another folder")

    def _listed(self) -> list[dict[str, Any]]:
        """Checkpoints, the newest last; without a list those that are there, which were all written whole."""
        path = self.checkpoints / "list.json"
        if not path.is_file():
            names = sorted(found.name for found in self.checkpoints.glob("*.safetensors") if found.stem.isdecimal())
            return [{"step": int(Path(name).stem), "file": name, "sha256": None} for name in names]
        try:
            found = [{key: entry[key] for key in ("step", "file", "sha256")} for entry in json.loads(path.read_bytes())]
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{path} is damaged. Delete it to go on from the newest checkpoint beside it, whose contents can then "
                "not be checked"
            ) from None
        return found
