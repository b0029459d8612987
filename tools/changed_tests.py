"""Print the test files that mirror what changed since main, and the contract tests: the arguments of `make check`.

    python -m tools.changed_tests              # against main, or the last commit where the branch is main
    python -m tools.changed_tests --base REV

A file `src/kinfold/losses/margin.py` is mirrored by `tests/losses/test_margin*.py`; where there is no such file, by
every test of the folder that names the module. Changed tests are printed themselves.
"""

import argparse
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRACTS = [Path("tests/contract"), Path("tests/registry")]


def find_changed(base: str) -> list[Path]:
    """Return files that differ from `base`, committed or not, and new files that git does not ignore."""
    commands = (["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"])
    outputs = [subprocess.run(c, cwd=ROOT, capture_output=True, text=True, check=True).stdout for c in commands]
    return sorted({Path(line) for output in outputs for line in output.splitlines()})


def choose_base() -> str:
    """Return the commit at which this branch left main; on main itself the commit before the last."""
    branch = _git("rev-parse", "--abbrev-ref", "HEAD")
    if branch != "main" and _git("rev-parse", "--verify", "--quiet", "main"):
        return _git("merge-base", "main", "HEAD")
    return _git("rev-parse", "--verify", "--quiet", "HEAD~1") or "HEAD"


def find_tests(changed: list[Path]) -> list[Path]:
    """Return existing test files for these changed files, contract tests first, without repetition."""
    tests = [path for path in CONTRACTS if (ROOT / path).exists()]
    for path in changed:
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            tests.append(path)
        elif path.parts[:2] == ("src", "kinfold") and path.suffix == ".py":
            tests += _mirror(path)
    return [path for path in dict.fromkeys(tests) if (ROOT / path).exists()]


def _mirror(source: Path) -> list[Path]:
    inner = source.relative_to("src/kinfold")
    folder = Path("tests", *[part.lstrip("_") for part in inner.parts[:-1]])
    matches = sorted((ROOT / folder).glob(f"test_{inner.stem.lstrip('_')}*.py"))
    if not matches and (ROOT / folder).is_dir():
        matches = [test for test in sorted((ROOT / folder).glob("test_*.py")) if inner.stem in test.read_text()]
    return [test.relative_to(ROOT) for test in matches]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="compare with this commit")
    base = parser.parse_args().base or choose_base()
    print(*find_tests(find_changed(base)), sep="\n")


if __name__ == "__main__":
    main()
