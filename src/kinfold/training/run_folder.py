"""The folder of a run: configuration, log, checkpoints, selected weights and scores."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from kinfold.files.atomic import remove_unfinished, truncate_file, write_atomic, write_json, write_text
from kinfold.files.checksums import SHA256, compute_sha256
from kinfold.files.documents import IntegerRange, read_json, read_result, read_toml, write_result
from kinfold.files.locks import lock_folder
from kinfold.files.paths import UnsafePathError, check_path, make_folder, read_bytes, remove_file
from kinfold.files.state import pack_state, read_state, write_state

_KEPT = 2  # checkpoints: the last one, and one before it in case that one is damaged
MAX_THREADS = 1024  # no machine gains from more, and a million would end the process
_CHECKPOINT = re.compile(r"[0-9]{9,18}\.safetensors")

# What later commands read of these files; they hold more.
METRICS = {str: (float, None)}
_ENVIRONMENT = {
    "threads": IntegerRange(1, MAX_THREADS),
    "kinfold?": str,
    "code?": str,
    "data?": (str, None),
    "ranks?": IntegerRange(1, 1 << 20),
}
_SCORES = {
    "selection": str,
    "inflated": bool,
    "step": int,
    "steps": int,
    "ended": str,
    "diverged": bool,
    "model_sha256": SHA256,
    "validation?": METRICS,
    "test?": METRICS,
    "test_steps?": {str: int},
    "train_space?": METRICS,
    "classes?": {str: int},
    "selected_start?": bool,
    "start?": {str: METRICS},
    "provenance?": {"configuration": SHA256, "data": (str, None), "code": (str, None)},
}
_CHECKPOINT_LIST = [{"step": IntegerRange(0, 1 << 62), "file": _CHECKPOINT, "sha256": (SHA256, None)}]


class RunFolder:
    """Reads and writes the files of a run.

    | file | content |
    |---|---|
    | configuration.toml, environment.json | settings and machine |
    | log.jsonl | one line per event |
    | checkpoints/ | the last states, and list.json with their checksums |
    | best.safetensors | the best weights so far |
    | model.safetensors, scores.json | the selected weights and their scores, once the run is finished |

    The folder may come from somebody else: no link inside of it is followed, and only the files above are changed or
    deleted.

    Args:
        folder: The folder, which need not exist.
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
        """Whether a run was begun here."""
        return self.configuration.is_file()

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.scores.is_file()

    def begin(self, configuration: str, environment: dict[str, Any]) -> None:
        """Create the folder of a new run.

        Raises:
            ValueError: The folder is not empty.
            OSError: It cannot be written to.
        """
        self._check_empty()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            make_folder(self.checkpoints, self.path)
        except OSError as error:
            raise OSError(
                f"cannot create the run folder {self.path}: {error.strerror}; choose a folder that you may write to"
            ) from error
        with self.lock():
            self._check_empty()  # again, now that no other process can write
            write_json(self.environment, environment, self.path)
            # last, because it marks the run as begun
            write_text(self.configuration, configuration, self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training here; the lock ends with the process."""
        occupied = f"another process is training in {self.path}; wait for it, or choose another folder"
        with lock_folder(self.path, occupied, "check its permissions, then resume"):
            for path in (*self._files, self.checkpoints, self.path / "tensorboard"):
                check_path(path, self.path)  # before hours of training, not after
            names = "|".join(re.escape(path.name) for path in self._files)
            remove_unfinished(self.path, re.compile(names), self.path)
            remove_unfinished(self.checkpoints, re.compile(rf"list\.json|{_CHECKPOINT.pattern}"), self.path)
            yield

    def read_configuration(self) -> dict[str, Any]:
        """Return the tables of configuration.toml."""
        return read_toml(self.configuration, self.path)

    def read_environment(self) -> dict[str, Any]:
        """Return what environment.json says, checked."""
        environment: dict[str, Any] = read_json(self.environment, _ENVIRONMENT, self.path)
        return environment

    def read_scores(self) -> dict[str, Any]:
        """Return what scores.json says.

        Raises:
            ValueError: It is missing, malformed or damaged.
        """
        return read_result(self.scores, _SCORES, self.path)

    def finish(self, step: int, weights: dict[str, Tensor], scores: dict[str, Any]) -> None:
        """Write the selected weights and then the scores, which finishes the run.

        The scores hold checksums of the weights and of what they depend on: configuration, data and code.
        """
        sha256 = write_state(self.model, {"step": step, "model": weights}, self.path)
        write_result(self.scores, {**scores, "model_sha256": sha256, "provenance": self.read_provenance()}, self.path)

    def read_provenance(self) -> dict[str, Any]:
        """Return what the result depends on: the sha256 of the configuration, fingerprints of data and code."""
        environment = read_json(self.environment, {"data?": (str, None), "code?": str}, self.path)
        configuration = compute_sha256(read_bytes(self.configuration, self.path))
        return {"configuration": configuration, "data": environment.get("data"), "code": environment.get("code")}

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, and delete older ones afterwards.

        A file is in the list, without a checksum, before it is written and until it is deleted. So a kill at any
        moment leaves no file that is not in the list, and no other file is ever deleted.
        """
        content, sha256 = pack_state(state)
        name = f"{step:09}.safetensors"
        entries = self._read_list()
        complete = [entry for entry in entries if entry["sha256"] is not None]
        entry = {"step": step, "file": name, "sha256": sha256}
        if entry in complete and (self.checkpoints / name).is_file():
            return  # a run that was stopped again before its next step
        for incomplete in entries:
            if incomplete not in complete and incomplete["file"] != name:
                remove_file(self.checkpoints / incomplete["file"], self.path)
        earlier = [other for other in complete if other["file"] != name]
        self._write_list([*earlier, {**entry, "sha256": None}])
        write_atomic(self.checkpoints / name, lambda file: file.write(content), self.path)
        old, recent = earlier[: 1 - _KEPT], [*earlier[1 - _KEPT :], entry]
        self._write_list([*({**other, "sha256": None} for other in old), *recent])
        for other in old:
            remove_file(self.checkpoints / other["file"], self.path)

    def read_last_state(self) -> dict[str, Any] | None:
        """Return the newest checkpoint; None before there is one.

        Raises:
            ValueError: It is damaged.
        """
        complete = [entry for entry in self._read_list() if entry["sha256"] is not None]
        if not complete:
            return None
        entry = complete[-1]
        try:
            state = read_state(self.checkpoints / entry["file"], entry["sha256"], self.path)
        except ValueError as error:
            advice = (
                f"To continue from step {complete[-2]['step']} instead, delete its entry, the last one, from "
                f"{self.checkpoints / 'list.json'}"
                if len(complete) > 1
                else "There is no earlier one: start the run again in another folder"
            )
            raise ValueError(f"the last checkpoint cannot be used: {error}. {advice}") from None
        if not isinstance(state, dict):
            raise ValueError(f"{self.checkpoints / entry['file']} does not hold the state of a run")
        return state

    def save_best(self, step: int, weights: dict[str, Tensor]) -> None:
        """Write best.safetensors."""
        write_state(self.best, {"step": step, "model": weights}, self.path)

    def read_weights(self, path: Path) -> dict[str, Any]:
        """Return step and weights of best.safetensors or model.safetensors.

        Raises:
            ValueError: The file is damaged, or model.safetensors does not have the checksum in scores.json.
        """
        scored = path == self.model and self.finished
        state = read_state(path, self.read_scores()["model_sha256"] if scored else None, self.path)
        if not isinstance(state, dict) or set(state) != {"step", "model"}:
            raise ValueError(f"{path} does not hold weights of a run")
        return state

    def cut_log(self, length: int) -> None:
        """Drop what was logged after the state that the run is resumed from."""
        check_path(self.log, self.path)
        if self.log.exists():
            truncate_file(self.log, length, self.path)

    def read_events(self) -> list[dict[str, Any]]:
        """Return the lines of the log, up to the first one that is incomplete."""
        check_path(self.log, self.path)
        if not self.log.exists():
            return []
        events = []
        for line in read_bytes(self.log, self.path).splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not isinstance(event, dict) or not _is_event(event):
                break
            events.append(event)
        return events

    def _check_empty(self) -> None:
        """Raise a ValueError where the folder holds more than what a run that was killed at its start leaves behind."""
        if not self.path.exists():
            return
        leftovers = {self.checkpoints, self.environment, self.path / ".lock", *self.path.glob(".*.tmp")}
        leftovers.add(self.path / "adaptation")  # of `kinfold.adapt`, which measures before it trains
        if not self.path.is_dir() or set(self.path.iterdir()) - leftovers:
            advice = f"continue it with --resume {self.path}, or " if self.begun else ""
            raise ValueError(f"{self.path} is not empty: {advice}choose another folder")

    def _read_list(self) -> list[dict[str, Any]]:
        """Return the checkpoints, the newest last; without a list, the files in the folder."""
        path = self.checkpoints / "list.json"
        if not path.is_file():
            check_path(path, self.path)
            files = sorted(file for file in self.checkpoints.glob("*.safetensors") if _CHECKPOINT.fullmatch(file.name))
            # each file also contains its checksum, which is checked when it is read
            digests = [compute_sha256(read_bytes(file, self.path)) for file in files]
            return [
                {"step": int(file.stem), "file": file.name, "sha256": digest}
                for file, digest in zip(files, digests, strict=True)
            ]
        try:
            entries: list[dict[str, Any]] = read_json(path, _CHECKPOINT_LIST, self.path)
        except UnsafePathError:
            raise
        except ValueError as error:
            reason = str(error).removeprefix(f"{path} is damaged: ").removeprefix(f"{path} is ")
            raise ValueError(
                f"{path} is damaged: {reason}. Delete it to continue from the newest checkpoint beside it"
            ) from None
        return entries

    def _write_list(self, entries: list[dict[str, Any]]) -> None:
        write_json(self.checkpoints / "list.json", entries, self.path)

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self.configuration, self.environment, self.log, self.best, self.model, self.scores)


def _is_event(line: dict[str, Any]) -> bool:
    """Return whether a line of the log has a kind, a step, and only numbers or strings."""
    plain = all(value is None or isinstance(value, str | int | float) for value in line.values())
    kind, step = line.get("event"), line.get("step")
    return plain and isinstance(kind, str) and isinstance(step, int) and not isinstance(step, bool)
