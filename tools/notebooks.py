"""Run the notebooks of the documentation, and store what they print in them.

python -m tools.notebooks          # all, each in a temporary folder
python -m tools.notebooks new-loss
"""

import ast
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"


def run_notebook(path: Path, folder: Path) -> dict[str, Any]:
    """Run the code cells of a notebook in their order, in one namespace and in this process.

    Args:
        path: The notebook.
        folder: Where the cells read and write files.

    Returns:
        The notebook with the outputs of the cells.
    """
    notebook: dict[str, Any] = json.loads(path.read_text())
    module = ModuleType("notebook")
    sys.modules["notebook"] = module  # what a cell defines is found there by its name
    number = 0
    try:
        with _change_folder(folder):
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    number += 1
                    cell["outputs"] = _run_cell("".join(cell["source"]), f"{path.name}, cell {number}", vars(module))
                    cell["execution_count"] = number
    finally:
        del sys.modules["notebook"]
    return notebook


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> list[Mapping[str, Any]]:
    """Run a cell; return what it printed, and the value of an expression at its end."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[Mapping[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        result = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        outputs.append(result)
    return outputs


@contextmanager
def _change_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> None:
    """Run the notebooks that the command line names, and store their outputs."""
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            notebook = run_notebook(path, Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
