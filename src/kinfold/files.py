"""Files that appear whole or not at all, numbers that JSON can hold, and folders that one process holds at a time."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside `path`, make sure it is on disk, then put it in place; a failure leaves what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _keep_name(path.parent)
    except OSError as wrong:
        temporary.unlink(missing_ok=True)
        raise OSError(
            f"cannot write {path}: {wrong.strerror or wrong}; what was there before is kept. "
            "Make room there, or see to the rights, then try again or resume"
        ) from wrong
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep_name(folder: Path) -> None:
    """Have the folder on disk too, so that even a power cut finds the new file; not every file system can do it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def defined(value: Any) -> Any:
    """The same with null for undefined numbers, inside of lists and tables too: NaN is not JSON."""
    if isinstance(value, dict):
        return {key: defined(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [defined(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value


class Occupied(ValueError):  # noqa: N818  (a state, not an error of its own)
    """Another process works in the folder."""


@contextmanager
def held(folder: Path, occupied: str, advice: str) -> Iterator[None]:
    """Nobody else may work in `folder` meanwhile; the hold ends with the process, however that ends.

    occupied: what is said where another process holds it. advice: what to do where nothing can be written there.
    """
    try:
        file = open(folder / ".lock", "w")  # noqa: SIM115  (closed below)
    except OSError as wrong:
        raise OSError(f"cannot write to {folder}: {wrong.strerror}; {advice}") from wrong
    with file:
        try:
            # not flock: worker processes would inherit the hold and keep it for seconds after a kill
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise Occupied(occupied) from None
        yield
