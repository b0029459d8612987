"""What tests/training/test_failures.py runs in a mount namespace of its own: a full disk, then a read-only one.

`unshare --map-root-user --mount python -m tests.training.mount_run FOLDER` prints what was found as JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

from kinfold.training import train
from kinfold.training.run_folder import RunFolder
from tests.training.tiny import dataset, difference, recipe


def attempt(*arguments, **options):
    """The error of a training; empty where there is none."""
    try:
        train(*arguments, dataset=dataset(), **options)
    except OSError as error:
        return str(error)
    return ""


def remount(disk, mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", "none", disk], check=True)


if __name__ == "__main__":
    below = Path(sys.argv[1])
    expected, disk, report = below / "expected", below / "disk", {}
    train(recipe(), expected, dataset=dataset())
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    run, ballast = disk / "run", disk / "ballast"

    def fill(event):
        if event.kind == "saved" and event.step == 8:
            with open(ballast, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1024))
                except OSError:
                    pass

    report["full"] = attempt(recipe(), run, callbacks=[fill])
    report["kept when full"] = RunFolder(run).read_last_state()["done"]
    report["still full"] = attempt(folder=run, resume=True)
    report["full from the start"] = attempt(recipe(), disk / "new")
    ballast.unlink()
    remount(disk, "ro")
    report["read-only"] = attempt(folder=run, resume=True)
    report["read-only from the start"] = attempt(recipe(), disk / "other")
    report["kept when read-only"] = RunFolder(run).read_last_state()["done"]
    remount(disk, "rw")
    report["resumed"] = attempt(folder=run, resume=True)
    report["difference"] = difference(run, expected)
    report["begun again"] = attempt(recipe(), disk / "new")
    report["difference of the new one"] = difference(disk / "new", expected)
    print(json.dumps(report))
