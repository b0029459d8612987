"""The folder of a run: what was asked for, what happened, the last good states, the selected weights and the scores."""

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

KEPT = 2  # checkpoints: the last one, and one before it in case that is damaged
MOST_THREADS = 1024  # more than any machine of today gains from; a million end the process
CHECKPOINT = re.compile(r"[0-9]{9,18}\.safetensors")

# what a later command reads of these files; they hold more
METRICS = {str: (float, None)}
ENVIRONMENT = {
    "threads": IntegerRange(1, MOST_THREADS),
    "kinfold?": str,
    "data?": (str, None),
    "ranks?": IntegerRange(1, 1 << 20),
}
SCORES = {
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
}
LIST = [{"step": IntegerRange(0, 1 << 62), "file": CHECKPOINT, "sha256": (SHA256, None)}]


class RunFolder:
    """Names and writes everything in one folder.

    configuration.toml, environment.json; log.jsonl, one line per event; checkpoints/ with their list; best.safetensors,
    the best weights so far; model.safetensors, the selected weights, and scores.json, once the run is finished.

    The folder may come from somebody else: no link inside of it is followed, and only files that are listed here, or in
    the list of checkpoints, are changed or deleted.
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
            self.path.mkdir(parents=True, exist_ok=True)
            make_folder(self.checkpoints, self.path)
        except OSError as wrong:
            raise OSError(
                f"cannot make the run folder {self.path}: {wrong.strerror}; choose one you may write to"
            ) from wrong
        with self.lock():
            self._check_empty()  # again: another process may have been faster
            write_json(self.environment, environment, self.path)
            # last: with it the run has begun
            write_text(self.configuration, configuration, self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else may train here meanwhile; the hold ends with the process, however that ends."""
        busy = f"another process is training in {self.path}; wait for it, or choose another folder"
        with lock_folder(self.path, busy, "see to the rights, then resume"):
            for path in (*self._files, self.checkpoints, self.path / "tensorboard"):
                check_path(path, self.path)  # now, not after hours of training
            names = "|".join(re.escape(path.name) for path in self._files)
            remove_unfinished(self.path, re.compile(names), self.path)
            remove_unfinished(self.checkpoints, re.compile(rf"list\.json|{CHECKPOINT.pattern}"), self.path)
            yield

    def read_configuration(self) -> dict[str, Any]:
        """The tables of configuration.toml, as they stand."""
        return read_toml(self.configuration, self.path)

    def read_environment(self) -> dict[str, Any]:
        """What environment.json says, checked: another number of threads than a machine can have ends the process."""
        found: dict[str, Any] = read_json(self.environment, ENVIRONMENT, self.path)
        return found

    def read_scores(self) -> dict[str, Any]:
        """What scores.json says; ValueError where it is missing, malformed, or not what was written."""
        return read_result(self.scores, SCORES, self.path)

    def finish(self, step: int, weights: dict[str, Tensor], scores: dict[str, Any]) -> None:
        """Write the selected weights, and last the scores, with the checksum of the weights: the run is finished."""
        sha256 = write_state(self.model, {"step": step, "model": weights}, self.path)
        write_result(self.scores, {**scores, "model_sha256": sha256}, self.path)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a new checkpoint; older ones go only when this one is whole and listed.

        A name is listed, without a checksum, before its file is written and until its file is deleted. So a kill at any
        moment leaves no file that is not listed, and nothing is deleted that is not.
        """
        content, sha256 = pack_state(state)
        name = f"{step:09}.safetensors"
        listed = self._listed()
        whole = [entry for entry in listed if entry["sha256"] is not None]
        entry = {"step": step, "file": name, "sha256": sha256}
        if entry in whole and (self.checkpoints / name).is_file():
            return  # a run that was stopped again before its next step
        for unlisted in listed:
            if unlisted not in whole and unlisted["file"] != name:
                remove_file(self.checkpoints / unlisted["file"], self.path)
        earlier = [each for each in whole if each["file"] != name]
        self._list([*earlier, {**entry, "sha256": None}])
        write_atomic(self.checkpoints / name, lambda file: file.write(content), self.path)
        old, kept = earlier[: 1 - KEPT], [*earlier[1 - KEPT :], entry]
        self._list([*({**each, "sha256": None} for each in old), *kept])
        for each in old:
            remove_file(self.checkpoints / each["file"], self.path)

    def read_last_state(self) -> dict[str, Any] | None:
        """The newest checkpoint; None where there is none yet; ValueError where it is damaged."""
        listed = [entry for entry in self._listed() if entry["sha256"] is not None]
        if not listed:
            return None
        entry = listed[-1]
        try:
            state = read_state(self.checkpoints / entry["file"], entry["sha256"], self.path)
        except ValueError as wrong:
            before = (
                f"To continue from step {listed[-2]['step']} instead, delete its entry, the last one, from "
                f"{self.checkpoints / 'list.json'}"
                if len(listed) > 1
                else "There is no earlier one: start the run anew in another folder"
            )
            raise ValueError(f"the last checkpoint cannot be used: {wrong}. {before}") from None
        if not isinstance(state, dict):
            raise ValueError(f"{self.checkpoints / entry['file']} does not hold the state of a run")
        return state

    def keep_best(self, step: int, weights: dict[str, Tensor]) -> None:
        write_state(self.best, {"step": step, "model": weights}, self.path)

    def weights(self, path: Path) -> dict[str, Any]:
        """The weights in best.safetensors or model.safetensors; the latter must be those that were scored."""
        scored = path == self.model and self.finished
        state = read_state(path, self.read_scores()["model_sha256"] if scored else None, self.path)
        if not isinstance(state, dict) or set(state) != {"step", "model"}:
            raise ValueError(f"{path} does not hold weights of a run")
        return state

    def cut_log(self, length: int) -> None:
        """Forget what was logged after the state that the run goes on from."""
        check_path(self.log, self.path)
        if self.log.exists():
            truncate_file(self.log, length, self.path)

    def events(self) -> list[dict[str, Any]]:
        """What was logged so far; a line that a kill cut short is left out, and so is all that follows it."""
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
            check_path(path, self.path)
            files = sorted(file for file in self.checkpoints.glob("*.safetensors") if CHECKPOINT.fullmatch(file.name))
            # they carry checksums of their own, which are checked when one is read
            digests = [compute_sha256(read_bytes(file, self.path)) for file in files]
            return [
                {"step": int(file.stem), "file": file.name, "sha256": digest}
                for file, digest in zip(files, digests, strict=True)
            ]
        try:
            listed: list[dict[str, Any]] = read_json(path, LIST, self.path)
        except UnsafePathError:
            raise
        except ValueError as wrong:
            why = str(wrong).removeprefix(f"{path} is damaged: ").removeprefix(f"{path} is ")
            raise ValueError(
                f"{path} is damaged: {why}. Delete it to go on from the newest checkpoint beside it"
            ) from None
        return listed

    def _list(self, entries: list[dict[str, Any]]) -> None:
        write_json(self.checkpoints / "list.json", entries, self.path)

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self.configuration, self.environment, self.log, self.best, self.model, self.scores)


def _is_event(line: dict[str, Any]) -> bool:
    """Whether a line of the log has what its readers rely on: a kind, a step, and numbers or strings."""
    plain = all(value is None or isinstance(value, str | int | float) for value in line.values())
    kind, step = line.get("event"), line.get("step")
    return plain and isinstance(kind, str) and isinstance(step, int) and not isinstance(step, bool)
