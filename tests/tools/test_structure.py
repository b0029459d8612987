"""One name stands for one class in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "kinfold"


def test_no_two_classes_share_a_name():
    files_by_class = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files_by_class[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(files_by_class) > 100
    assert {name: files for name, files in files_by_class.items() if len(files) > 1} == {}
