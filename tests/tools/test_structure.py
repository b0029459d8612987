"""One name stands for one class in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

from kinfold import registry

PACKAGE = Path(__file__).parents[2] / "src" / "kinfold"


def test_no_two_classes_share_a_name():
    files_by_class = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files_by_class[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(files_by_class) > 100
    assert {name: files for name, files in files_by_class.items() if len(files) > 1} == {}


# older than the rule: angular has two terms, histogram a second form in tiles
LONG_LOSSES = {"angular", "histogram"}


def test_no_loss_is_longer_to_read_than_the_triplet_loss():
    folder = PACKAGE / "losses"
    modules = {
        name: folder / f"{target.split(':')[0].removeprefix('kinfold.losses.')}.py"
        for name, target in registry.targets("losses").items()
        if target.startswith("kinfold.losses.")
    }
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules.items()}
    assert len(lengths) > 40
    assert {name for name, length in lengths.items() if length > lengths["triplet"]} == LONG_LOSSES
