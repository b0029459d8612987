"""Trains in processes of its own, ends them by signals, resumes, and compares the end with that of a run left alone.

`python -m tests.training.kill_run FOLDER calls EVERY VARIANT...`: SIGKILL before every EVERY-th of all calls that
change something in the run folder. `... times SEED VARIANT...`: SIGKILL at random moments, three times in one run.
`... signals SEED VARIANT...`: SIGTERM and SIGINT, to the process and its workers alike. What was found is printed as
JSON. The trainings are forked, so that a hundred of them load the library once.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import kinfold.files.atomic
import kinfold.files.paths
from kinfold.training import Event, Stopped, train
from kinfold.training.run_folder import RunFolder
from tests.training.tiny import dataset, difference, recipe

FEW_STEPS = {"steps": 5, "save_every": 2}


class Killer:
    """Counts the calls that change the folder, and ends the process just before one of them."""

    def __init__(self, folder: Path, at: int | None) -> None:
        self.folder, self.at, self.process = str(folder), at, os.getpid()
        self.moments: list[str] = []

    def arm(self) -> None:
        sys.addaudithook(self._audited)
        plain = os.fsync
        os.fsync = lambda descriptor: (self.moment("fsync"), plain(descriptor))[1]
        for module in (kinfold.files.atomic, kinfold.files.paths):
            vars(module)["open"] = lambda *args, **options: Torn(open(*args, **options), self)  # noqa: SIM115

    def moment(self, name: str) -> None:
        if os.getpid() != self.process:
            return  # a worker
        if len(self.moments) == self.at:
            os.kill(self.process, signal.SIGKILL)
        self.moments.append(name)

    def _audited(self, event: str, args: tuple) -> None:
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate"):
            path = os.fspath(args[0]) if not isinstance(args[0], int) else ""
            if isinstance(path, str) and path.startswith(self.folder):
                self.moment(f"{event} {path[len(self.folder) :]}")


class Torn:
    """A file of which half of what is written is there when the kill comes."""

    def __init__(self, file, killer: Killer) -> None:
        self._file, self._killer = file, killer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, content):
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        self._killer.moment(f"write {self._file.name[len(self._killer.folder) :]}")
        self._file.write(content[len(content) // 2 :])


def fork(work) -> int:
    """The process id of a child that does this work and ends."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def wait_for_exit(child: int) -> int:
    """What a child ended with: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def start_or_resume(variant: str, folder: Path, changes: dict) -> None:
    """Begin, or go on from wherever a kill left it."""
    try:
        if RunFolder(folder).begun:
            train(folder=folder, resume=True, dataset=dataset(variant))
        else:
            train(recipe(variant, **changes), folder, dataset=dataset(variant))
    except Stopped as stopped:
        os._exit(128 + stopped.signal)


def resume_and_compare(variant: str, folder: Path, expected: Path, changes: dict) -> dict:
    code = wait_for_exit(fork(lambda: start_or_resume(variant, folder, changes)))
    return {"resumed": code, "difference": difference(folder, expected) if code == 0 else "all of it"}


def at_calls(below: Path, every: int, variant: str) -> list[dict]:
    changes = {"training": FEW_STEPS, "evaluation": {"every": 3}}
    expected = below / "expected"

    def count() -> None:
        killer = Killer(expected, None)
        killer.arm()
        start_or_resume(variant, expected, changes)
        (below / "moments.json").write_text(json.dumps(killer.moments))

    assert wait_for_exit(fork(count)) == 0
    results = []
    moments = json.loads((below / "moments.json").read_text())
    for number in range(0, len(moments), every):
        folder = below / f"killed-{number}"

        def run_until_killed(folder: Path = folder, number: int = number) -> None:
            Killer(folder, number).arm()
            start_or_resume(variant, folder, changes)

        code = wait_for_exit(fork(run_until_killed))
        results.append({"moment": f"{number}: {moments[number]}", "ended": code})
        results[-1] |= resume_and_compare(variant, folder, expected, changes)
    return results


def at_times(below: Path, seed: int, variant: str) -> list[dict]:
    source = random.Random(seed)
    expected, folder = below / "expected", below / "killed"
    start = time.monotonic()
    assert wait_for_exit(fork(lambda: start_or_resume(variant, expected, {}))) == 0
    whole = time.monotonic() - start
    results = []
    while len(results) < 3:
        child = fork(lambda: start_or_resume(variant, folder, {}))
        wait = source.uniform(0, 0.7) * whole
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
        code = wait_for_exit(child)
        if code == 0 and not results:  # `whole` was measured on a busier machine: nothing was killed, start again
            shutil.rmtree(folder)
            whole /= 2
            continue
        results.append({"moment": f"after {wait:.3f} of {whole:.3f} s", "ended": code})
    results[-1] |= resume_and_compare(variant, folder, expected, {})
    return results


def by_signals(below: Path, seed: int, variant: str) -> list[dict]:
    """To the whole group, as a terminal or a scheduler sends it, each at a random step."""
    source = random.Random(seed)
    expected = below / "expected"
    assert wait_for_exit(fork(lambda: start_or_resume(variant, expected, {}))) == 0
    results = []
    for number in (signal.SIGTERM, signal.SIGINT):
        folder, step = below / f"stopped-{number}", source.randint(1, 11)
        ready, tell = os.pipe()

        def stopped(folder: Path = folder, step: int = step, tell: int = tell) -> None:
            os.setpgid(0, 0)

            def wait(event: Event) -> None:
                if event.kind == "step" and event.step == step:
                    os.write(tell, b"!")
                    time.sleep(0.5)  # the signal comes, and the workers end, not only when the next batch is read

            try:
                train(recipe(variant), folder, dataset=dataset(variant), callbacks=[wait])
            except Stopped as stopped:
                os._exit(128 + stopped.signal)

        child = fork(stopped)
        os.close(tell)
        os.read(ready, 1)
        # from here: workers take a signal of their own parent's for its wish to end them
        os.killpg(child, number)
        code = wait_for_exit(child)
        saved = [int(path.stem) for path in (folder / "checkpoints").glob("*.safetensors")]
        results.append({"moment": f"signal {number}", "ended": code, "step": step, "saved": max(saved, default=None)})
        results[-1] |= resume_and_compare(variant, folder, expected, {})
    return results


if __name__ == "__main__":
    root, how, number, *variants = sys.argv[1:]
    # a training here first: what it imports late is then there for all the others
    train(recipe(training={"steps": 1}), Path(root) / "first", dataset=dataset())
    results = {}
    for name in variants:
        below = Path(root) / name.replace(" ", "-")
        below.mkdir()
        results[name] = {"calls": at_calls, "times": at_times, "signals": by_signals}[how](below, int(number), name)
    print(json.dumps(results))
