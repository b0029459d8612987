"""Count the words that the project no longer uses, in src, docs, tests, tools and benchmarks.

python -m tools.vocabulary                  # the working tree
python -m tools.vocabulary --before REV     # and a commit beside it, as a Markdown table
python -m tools.vocabulary --where PATTERN  # lines with one of the words
"""

import argparse
import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "docs", "tests", "tools", "benchmarks", "README.md", "CHANGELOG.md")
ENDINGS = (".py", ".md", ".toml", ".js", ".css", ".html")
# these files list the words
EXCLUDED = {"tools/vocabulary.py", "tools/mutations.md", "tests/tools/test_vocabulary.py", "CHANGELOG.md"}
# names of variables and parameters that do not say what they hold
EMPTY_NAMES = {"found", "given", "seen", "told", "own", "theirs", "done", "place"}
VARIABLES = f"variables: {', '.join(sorted(EMPTY_NAMES))}"

# what to write: what is counted; the title of the paper of NCA keeps its spelling
PATTERNS = {
    "positives and negatives": r"\b(kin|kinship)\b",
    "statistically significant": r"\btold apart\b",
    "package, module": r"\b(rooms?|ROOMS?|the house|at the door)\b",
    "exact score": r"\bcanonical (scores?|values?)\b",
    "int8, integer": r"\bwhole numbers?\b",
    "fix": r"\bmend(s|ed)?\b",
    "training diverged": r"\bcame to nothing\b",
    "data flow": r"\b(the way of|way_of)\b",
    "held-out test classes": r"\b(un)?seal(s|ed)?\b",
    "in row chunks": r"\bblocks of rows\b",
    "schedule, run": r"\b(courses?|stretch(es)?)\b",
    "string": r"\b(a word|in words|words)\b",
    "differentiable zero": r"\bzero with a graph\b",
    "US spelling": (
        r"(?i)(normalis|regularis|generalis|initialis|standardis|colour|neighbour(?!hood Components)|centre|"
        r"behaviour|catalogue)"
        r"|(?<!small-)\bgr[e]y\b"
    ),
}


def read_tree(revision: str | None) -> dict[str, str]:
    """Read the text files of the working tree, or of a commit, by path.

    Args:
        revision: A commit; None reads the working tree.

    Returns:
        Contents by path relative to the root of the repository.
    """
    command = ["git", "ls-tree", "-r", "--name-only", revision] if revision else ["git", "ls-files"]
    paths = [
        path
        for path in _run([*command, "--", *FOLDERS]).splitlines()
        if path.endswith(ENDINGS) and path not in EXCLUDED
    ]
    if revision is None:
        return {path: (ROOT / path).read_text() for path in paths if (ROOT / path).is_file()}
    return {path: _run(["git", "show", f"{revision}:{path}"]) for path in paths}


def count(tree: dict[str, str]) -> dict[str, int]:
    """Number of matches of every pattern, and of variables with empty names, in a tree."""
    counts = {name: sum(len(re.findall(pattern, text)) for text in tree.values()) for name, pattern in PATTERNS.items()}
    return counts | {VARIABLES: len(find_lines(tree, VARIABLES))}


def find_lines(tree: dict[str, str], name: str) -> list[str]:
    """Lines of a tree that match a pattern, or bind a variable with an empty name, as `path:number: line`."""
    return [
        f"{path}:{number}: {text.splitlines()[number - 1].strip()}"
        for path, text in tree.items()
        for number in _find_numbers(path, text, name)
    ]


def _find_numbers(path: str, text: str, name: str) -> list[int]:
    pattern = rf"\b({'|'.join(EMPTY_NAMES)})\b" if name == VARIABLES else PATTERNS[name]
    if not re.search(pattern, text):
        return []
    if name != VARIABLES:
        return [number for number, line in enumerate(text.splitlines(), start=1) if re.search(PATTERNS[name], line)]
    nodes = ast.walk(ast.parse(text)) if path.endswith(".py") else ()
    return sorted(
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY_NAMES)
        or (isinstance(node, ast.arg) and node.arg in EMPTY_NAMES)
    )


def _run(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.vocabulary", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", metavar="REV", help="count the words of this commit too")
    parser.add_argument(
        "--where", choices=[*PATTERNS, VARIABLES], metavar="PATTERN", help="print the lines with a pattern"
    )
    options = parser.parse_args()
    tree = read_tree(None)
    if options.where:
        print(*find_lines(tree, options.where), sep="\n")
        return
    columns = [count(read_tree(options.before))] if options.before else []
    columns.append(count(tree))
    titles = ["write", *(["before"] if options.before else []), "now"]
    print(f"| {' | '.join(titles)} |\n|---|{'---:|' * len(columns)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(str(column[name]) for column in columns)} |")


if __name__ == "__main__":
    main()
