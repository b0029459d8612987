"""Print the test files that mirror what changed since main, and the contract tests: the arguments of `make check`.

    python -m tools.changed_tests              # against main, or the last commit where the branch is main
    python -m tools.changed_tests --base REV

A file `src/kinfold/data/cub.py` is mirrored by `tests/data/test_cub*.py`; where there is no such file, by every test of
the folder that names the module. A loss or its reference is mirrored by the tests that compare every loss with its
reference, a page by its snippets and by the tests of the documentation that are fast. Changed tests are printed
themselves.
"""

import argparse
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTRACTS = [Path("tests/contract"), Path("tests/registry")]
# they run over all registered losses, and so name no module
LOSS_TESTS = [Path("tests/losses", f"test_{name}.py") for name in ("values", "gradients", "option_bounds", "defaults")]
DOCS_TESTS = [
    f"tests/test_docs.py::test_{name}"
    for name in (
        "every_loss_page_names_its_paper",
        "every_name_has_formula_paper_and_when_to_use_it",
        "every_page_is_in_the_navigation_and_every_entry_is_a_page",
        "every_robust_loss_is_explained_and_measured",
        "the_overview_of_losses_is_up_to_date",
        "numbers_of_registered_names_are_right",
    )
] + [
    f"tests/test_snippets.py::test_{name}"
    for name in ("every_local_link_leads_somewhere", "every_loss_has_a_page_with_its_measured_cost")
]


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


def find_tests(changed: list[Path]) -> list[str]:
    """Return tests for these changed files as arguments of pytest: contract tests first, without repetition."""
    tests = [str(path) for path in CONTRACTS]
    for path in changed:
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            tests.append(str(path))
        elif path.parts[:3] == ("tests", "losses", "references"):
            tests += map(str, LOSS_TESTS)
        elif path.parts[:2] == ("src", "kinfold") and path.suffix == ".py":
            tests += map(str, _mirror(path))
        elif path.suffix == ".md" and (path.parts[0] == "docs" or path.name == "README.md") and (ROOT / path).exists():
            tests += [f"tests/test_snippets.py::test_snippets_run[{path}]", *DOCS_TESTS]
    return [test for test in dict.fromkeys(tests) if (ROOT / test.partition("::")[0]).exists()]


def _mirror(source: Path) -> list[Path]:
    inner = source.relative_to("src/kinfold")
    folder = Path("tests", *[part.lstrip("_") for part in inner.parts[:-1]])
    matches = sorted((ROOT / folder).glob(f"test_{inner.stem.lstrip('_')}*.py"))
    if not matches and (ROOT / folder).is_dir():
        matches = [test for test in sorted((ROOT / folder).glob("test_*.py")) if inner.stem in test.read_text()]
    tests = [test.relative_to(ROOT) for test in matches]
    return [*tests, *LOSS_TESTS] if inner.parts[0] == "losses" else tests


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="compare with this commit")
    base = parser.parse_args().base or choose_base()
    print(*find_tests(find_changed(base)), sep="\n")


if __name__ == "__main__":
    main()
