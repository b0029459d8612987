"""How many single-line changes of losses, dro and metrics do the tests notice?

    python -m tools.mutate                        # 40 changes of each room; writes tools/mutations.md
    python -m tools.mutate --room dro --list      # which ones
    python -m tools.mutate --jobs 4 --fresh       # nothing taken over from an earlier run

Changes are drawn with a fixed seed from all that `tools/mutations/changes.py` knows of (operators, comparisons,
numbers, conditions, names, calls), and tried one by one on a copy of the package, against the tests that enter the
changed function. A change that makes a test fail is caught, and so is one that makes a test run ten times as long as
it should. Changes that nobody could notice are listed with their reason in `tools/mutations/equivalent.toml`, and
counted apart. The exit code is 1 where less than 90 % of the others are caught in any room. Trials are kept as they
come in results/mutations: a run that was stopped is continued by the next one.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tools.mutations.changes import Change, draw, rooms
from tools.mutations.records import Judgements, Records
from tools.mutations.report import Room, written
from tools.mutations.trial import TESTS, Copy, Outcome, Passed

ROOT = Path(__file__).resolve().parent.parent
JUDGED = ROOT / "tools" / "mutations" / "equivalent.toml"
ENOUGH = 0.9


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    judged = Judgements.read(JUDGED)
    drawn = {room: draw(rooms(ROOT / "src" / "kinfold", room), options.number, options.seed) for room in TESTS}
    chosen = options.room or [*TESTS]
    if options.list:
        for room in chosen:
            for change in drawn[room]:
                print(f"{change.file}:{change.line}\n  - {change.before.strip()}\n  + {change.after.strip()}")
        return 0
    records = Records(options.kept, ROOT)
    for room in chosen:
        if options.fresh:
            records.forget(room)
        _try_all(room, [c for c in drawn[room] if c.key not in judged.equivalent], records, options.jobs)
    found = {
        room: Room([(change, _known(records, room, change, judged)) for change in changes])
        for room, changes in drawn.items()
    }
    options.out.write_text(written(found, options.number, options.seed, judged))
    low = [room for room in chosen if found[room].rate < ENOUGH]
    for room in chosen:
        print(f"{room}: {found[room].summary()}")
    return 1 if low else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--room", action="append", choices=[*TESTS], help="one room; may be given several times")
    parser.add_argument("--number", type=int, default=40, help="changes of each room")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--list", action="store_true", help="show the changes, try none")
    parser.add_argument("--fresh", action="store_true", help="try all again, also those tried before")
    parser.add_argument("--kept", type=Path, default=ROOT / "results" / "mutations", help="folder of earlier trials")
    parser.add_argument("--out", type=Path, default=ROOT / "tools" / "mutations.md", help="where the result is written")
    return parser.parse_args(arguments)


def _known(records: Records, room: str, change: Change, judged: Judgements) -> Outcome | None:
    if change.key not in judged.equivalent:
        return records.outcome(room, change)
    tried = records.outcome(room, change)
    if tried is not None and tried.kind != "survived":
        raise ValueError(f"{change.key} is listed as equivalent, but {tried.by or 'a test'} noticed it")
    return Outcome("equivalent", "", 0.0)


def _try_all(room: str, changes: list[Change], records: Records, jobs: int) -> None:
    left = [change for change in changes if records.outcome(room, change) is None]
    if not left:
        return
    copies: SimpleQueue[Copy] = SimpleQueue()
    made = [Copy(ROOT) for _ in range(min(jobs, len(left)))]
    try:
        passed, paths = records.passed(room)
        if paths:
            _say(f"{room}: without a change, {' '.join(paths)}")
            passed = Passed(passed.tests | made[0].unchanged(room, paths).tests)
            records.keep_passed(room, passed)
            _say(f"{room}: {len(passed.tests)} tests in {passed.seconds:.0f} s")
        for copy in made:
            copies.put(copy)
        with ThreadPoolExecutor(len(made)) as pool:
            for number, line in enumerate(pool.map(lambda c: _try(room, c, copies, passed, records), left), 1):
                _say(f"{room} {number}/{len(left)} {line}")
    finally:
        for copy in made:
            copy.close()


def _try(room: str, change: Change, copies: "SimpleQueue[Copy]", passed: Passed, records: Records) -> str:
    copy = copies.get()
    try:
        outcome = copy.changed(room, change, passed)
    finally:
        copies.put(copy)
    records.keep(room, change, outcome)
    return f"{outcome.kind} in {outcome.seconds:.0f} s: {change.file}:{change.line} {outcome.by}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
