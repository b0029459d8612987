"""Print the structure of the package: imports between packages, cycles, lines of code, what three calls enter.

python -m tools.structure            # all of it, as Markdown
"""

import argparse
import ast
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison.tracing import code_lines, entered

PACKAGE = Path(__file__).parent.parent / "src" / "kinfold"


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def find_imports(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return what each module imports of the package while it is loaded; imports inside functions do not count."""
    imports: dict[str, set[str]] = {}
    for name, path in modules.items():
        imports[name] = set()
        for node in _statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    imports[name].add(full if full in modules else node.module)
            elif isinstance(node, ast.Import):
                imports[name].update(alias.name for alias in node.names)
        imports[name] = {target for target in imports[name] if target in modules and target != name}
    return imports


def _statements(tree: ast.Module) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    stack: list[ast.stmt] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        statements.append(node)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            stack.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    return statements


def package_of(module: str) -> str:
    """Return the package of a module: the part after `kinfold.`, or the module itself where it stands alone."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "kinfold"


def find_cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            if len(group) > 1:
                cycles.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in edges:
        if node not in index:
            visit(node)
    return cycles


def count_lines(modules: dict[str, Path]) -> Counter[str]:
    """Return lines of code per package, without docstrings, comments and blank lines."""
    lines: Counter[str] = Counter()
    for name, path in modules.items():
        lines[package_of(name)] += len(code_lines(path.read_text()))
    return lines


def trace_calls() -> dict[str, tuple[int, int]]:
    """Return (functions, files) of the package entered by one triplet loss, one `evaluate` and one `train`."""
    import torch

    import kinfold

    embeddings = torch.randn(32, 16, requires_grad=True, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(32) // 4
    loss = kinfold.losses.create("triplet")
    with tempfile.TemporaryDirectory() as folder:
        features = Path(folder) / "features.npz"
        import numpy as np

        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(12), 8)
        np.savez(features, embeddings=rng.normal(size=(96, 8)).astype("float32") + y[:, None], labels=y)
        recipe = {
            "data": {"name": "features", "root": str(features)},
            "model": {"dim": 8},
            "sampler": {"name": "spc", "batch_size": 8, "per_class": 2},
            "training": {"steps": 2},
        }
        calls: dict[str, Callable[[], object]] = {
            "triplet loss": lambda: loss(embeddings, labels).backward(),
            "evaluate": lambda: kinfold.metrics.evaluate(embeddings.detach(), labels),
            "train": lambda: kinfold.train(recipe, Path(folder) / f"run{len(list(Path(folder).iterdir()))}"),
        }
        result = {}
        for name, call in calls.items():
            call()
            trace = entered(call, PACKAGE)
            result[name] = (len(trace.functions), len({code.co_filename for code in trace.calls}))
        return result


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    modules = read_modules()
    imports = find_imports(modules)
    packages: dict[str, set[str]] = defaultdict(set)
    for module, targets in imports.items():
        packages[package_of(module)] |= {package_of(t) for t in targets} - {package_of(module), "kinfold"}
    lines = count_lines(modules)
    sizes = Counter(package_of(name) for name in modules)
    print(f"modules {len(modules)}, packages and top-level modules {len(sizes)}, lines of code {lines.total()}")
    print(
        f"edges between modules {sum(map(len, imports.values()))}, between packages {sum(map(len, packages.values()))}"
    )
    print(f"cycles of modules: {find_cycles(imports) or 'none'}")
    print(f"cycles of packages: {find_cycles(packages) or 'none'}\n")
    print("| package | modules | lines of code | imports |\n|---|---:|---:|---|")
    for name in sorted(sizes):
        print(f"| {name} | {sizes[name]} | {lines[name]} | {', '.join(sorted(packages[name]))} |")
    print("\n| one call | functions | files |\n|---|---:|---:|")
    for name, (functions, files) in trace_calls().items():
        print(f"| {name} | {functions} | {files} |")


if __name__ == "__main__":
    main()
