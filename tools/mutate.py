"""How many single-line changes of the packages that compute do the tests notice?

    python -m tools.mutate                        # 40 changes of each package; writes tools/mutations.md
    python -m tools.mutate --package dro --list      # which ones
    python -m tools.mutate --jobs 4 --fresh       # nothing taken over from an earlier run

Changes are drawn with a fixed seed from all that `tools/mutations/changes.py` knows of (operators, comparisons,
numbers, conditions, names, calls), and tried one by one on a copy of the package, against the tests that enter the
changed function. A change that makes a test fail is caught, and so is one that makes a test run ten times as long as
it should. Changes that nobody could notice are listed with their reason in `tools/mutations/equivalent.toml`, and
counted apart. The exit code is 1 where less than 90 % of the others are caught in any package. Trials are kept as they
come in results/mutations: a run that was stopped is continued by the next one.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tools.mutations.changes import Change, draw, read_modules
from tools.mutations.records import Judgments, Records
from tools.mutations.report import PackageResult, render_page
from tools.mutations.trial import TARGETS, Copy, Outcome, Passed

ROOT = Path(__file__).resolve().parent.parent
JUDGMENTS = ROOT / "tools" / "mutations" / "equivalent.toml"
MIN_RATE = 0.9


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    judgments = Judgments.read(JUDGMENTS)
    drawn = {
        package: draw(read_modules(ROOT / "src" / "kinfold", target.sources), options.number, options.seed)
        for package, target in TARGETS.items()
    }
    chosen = options.package or [*TARGETS]
    if options.list:
        for package in chosen:
            for change in drawn[package]:
                print(f"{change.file}:{change.line}\n  - {change.before.strip()}\n  + {change.after.strip()}")
        return 0
    records = Records(options.kept, ROOT)
    for package in chosen:
        if options.fresh:
            records.forget(package)
        _try_all(package, [c for c in drawn[package] if c.key not in judgments.equivalent], records, options.jobs)
    results = {
        package: PackageResult([(change, _read_outcome(records, package, change, judgments)) for change in changes])
        for package, changes in drawn.items()
    }
    options.out.write_text(render_page(results, options.number, options.seed, judgments))
    low = [package for package in chosen if results[package].rate < MIN_RATE]
    for package in chosen:
        print(f"{package}: {results[package].summary()}")
    return 1 if low else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--package", action="append", choices=[*TARGETS], help="one package; may be given several times"
    )
    parser.add_argument("--number", type=int, default=40, help="changes of each package")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--list", action="store_true", help="show the changes, try none")
    parser.add_argument("--fresh", action="store_true", help="try all again, also those tried before")
    parser.add_argument("--kept", type=Path, default=ROOT / "results" / "mutations", help="folder of earlier trials")
    parser.add_argument("--out", type=Path, default=ROOT / "tools" / "mutations.md", help="file for the result")
    return parser.parse_args(arguments)


def _read_outcome(records: Records, package: str, change: Change, judgments: Judgments) -> Outcome | None:
    if change.key not in judgments.equivalent:
        return records.outcome(package, change)
    tried = records.outcome(package, change)
    if tried is not None and tried.kind != "survived":
        raise ValueError(f"{change.key} is listed as equivalent, but {tried.by or 'a test'} noticed it")
    return Outcome("equivalent", "", 0.0)


def _try_all(package: str, changes: list[Change], records: Records, jobs: int) -> None:
    left = [change for change in changes if records.outcome(package, change) is None]
    if not left:
        return
    copies: SimpleQueue[Copy] = SimpleQueue()
    all_copies = [Copy(ROOT) for _ in range(min(jobs, len(left)))]
    try:
        passed, paths = records.passed(package)
        if paths:
            _say(f"{package}: without a change, {' '.join(paths)}")
            passed = Passed(passed.tests | all_copies[0].unchanged(package, paths).tests)
            records.keep_passed(package, passed)
            _say(f"{package}: {len(passed.tests)} tests in {passed.seconds:.0f} s")
        for copy in all_copies:
            copies.put(copy)
        with ThreadPoolExecutor(len(all_copies)) as pool:
            for number, line in enumerate(pool.map(lambda c: _try(package, c, copies, passed, records), left), 1):
                _say(f"{package} {number}/{len(left)} {line}")
    finally:
        for copy in all_copies:
            copy.close()


def _try(package: str, change: Change, copies: "SimpleQueue[Copy]", passed: Passed, records: Records) -> str:
    copy = copies.get()
    try:
        outcome = copy.changed(package, change, passed)
    finally:
        copies.put(copy)
    records.keep(package, change, outcome)
    return f"{outcome.kind} in {outcome.seconds:.0f} s: {change.file}:{change.line} {outcome.by}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
