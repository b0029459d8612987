"""Single-line changes of a module that a test should notice: an operator, a number, a condition, a name, a call."""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
UNARY = {ast.Not: "not ", ast.Invert: "~", ast.USub: "-"}
PAIRS = [
    ("min", "max"),
    ("amin", "amax"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("positives", "negatives"),
]
SWAPS = {one: two for pair in PAIRS for one, two in (pair, pair[::-1])}
# whose first argument is a dimension
BY_DIMENSION = {"cumsum", "flip", "gather", "index_select", "scatter", "scatter_add", "squeeze", "unsqueeze"}
# calls that can be left out: x.abs() becomes x
WITHOUT = {"detach", "clamp", "abs", "sqrt", "square", "log", "exp", "neg", "flip"}


@dataclass(frozen=True)
class Change:
    """Line `line` of `file` (from one) reads `before` and would read `after`; `function` is the first line of the
    function it stands in, None outside of functions."""

    file: str
    line: int
    before: str
    after: str
    function: int | None

    @property
    def key(self) -> tuple[str, str, str]:
        """File, old line and new line, which stay the same when lines move up and down."""
        return self.file, self.before.strip(), self.after.strip()

    def applied(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        current = lines[self.line - 1]
        if current.rstrip("\n") != self.before:
            raise ValueError(f"line {self.line} of {self.file} reads {current!r}, not {self.before!r}")
        lines[self.line - 1] = self.after + "\n"
        return "".join(lines)


def find_changes(file: str, source: str) -> list[Change]:
    """All changes of a module, in the order of its lines.

    Strings, types, imports, assertions and errors are not changed.

    >>> [change.after for change in find_changes("a.py", "def f(x):\\n    return x + 1\\n")]
    ['    return x - 1', '    return x + 2']
    """
    tree, lines = ast.parse(source), source.splitlines()
    functions = _functions(tree)
    changes = {}
    for line, start, end, text in _edits(tree, lines):
        before = lines[line - 1]
        after = before[:start] + text + before[end:]
        inside = [first for first, last in functions if first <= line <= last]
        changes[line, start, end, text] = Change(file, line, before, after, max(inside, default=None))
    return [changes[position] for position in sorted(changes)]


def draw(modules: dict[str, str], number: int, seed: int) -> list[Change]:
    """So many changes of some modules (name -> source), each module by its share of all changes there are.

    The draw depends on the seed and on the text of a line, not on its number: an edit elsewhere in the module seldom
    changes the draw.
    """
    changes_by_file = {file: find_changes(file, source) for file, source in sorted(modules.items())}
    total = sum(map(len, changes_by_file.values()))
    shares = {file: number * len(changes) / total for file, changes in changes_by_file.items()} if total else {}
    counts = {file: int(share) for file, share in shares.items()}
    rest = sorted(shares, key=lambda file: (counts[file] - shares[file], file))
    for file in rest[: min(number, total) - sum(counts.values())]:
        counts[file] += 1
    drawn = []
    for file, changes in changes_by_file.items():
        ordered = sorted(changes, key=lambda change: _lot(seed, change))
        drawn += sorted(ordered[: counts[file]], key=lambda change: (change.line, change.after))
    return drawn


def read_modules(root: Path, sources: Iterable[str]) -> dict[str, str]:
    """Modules of some packages and files below `root`: path below the parent of `root` -> source."""
    paths = [root / source for source in sources]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    return {str(file.relative_to(root.parent)): file.read_text() for file in files}


def _lot(seed: int, change: Change) -> bytes:
    return hashlib.sha256("\0".join((str(seed), *change.key)).encode()).digest()


def _functions(tree: ast.Module) -> list[tuple[int, int]]:
    """First line (of the first decorator, as code objects have it) and last line of every function."""
    return [
        (min([node.lineno, *(entry.lineno for entry in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


Edit = tuple[int, int, int, str]  # line, first column, last column, text


def _edits(tree: ast.Module, lines: list[str]) -> Iterator[Edit]:
    indices, shapes = _find_indices(tree), _shapes(tree)
    for node in _code(tree):
        if node in shapes:
            continue
        if isinstance(node, ast.UnaryOp) and node.operand in indices:
            yield node.lineno, node.col_offset, node.end_col_offset or 0, "0"  # the first dimension for the last
        elif isinstance(indices.get(node), ast.UnaryOp):
            continue
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                sign, others = COMPARISONS[type(operator)]
                yield from (edit for other in others for edit in _between(left, right, sign, other, lines))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield from _between(node.left, node.right, *OPERATORS[type(node.op)], lines)
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            sign, other = OPERATORS[type(node.op)]
            yield from _between(node.target, node.value, f"{sign}=", f"{other}=", lines)
        elif isinstance(node, ast.BoolOp):
            sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _between(left, right, sign, other, lines)
        elif isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            yield node.lineno, node.col_offset, node.col_offset + len(UNARY[type(node.op)]), ""
        elif isinstance(node, ast.Constant):
            yield from _constant(node, node in indices)
        elif isinstance(node, ast.If | ast.IfExp) and node.test.lineno == node.test.end_lineno:
            test = node.test
            text = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
            yield test.lineno, test.col_offset, test.end_col_offset or 0, f"not ({text})"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in SWAPS:
            yield node.lineno, node.col_offset, node.col_offset + len(node.id), SWAPS[node.id]
        elif isinstance(node, ast.Attribute) and node.attr in SWAPS:
            end = node.end_col_offset or 0
            yield node.end_lineno or 0, end - len(node.attr), end, SWAPS[node.attr]
        elif isinstance(node, ast.keyword) and node.arg in ("min", "max"):
            yield node.lineno, node.col_offset, node.col_offset + 3, SWAPS[node.arg]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WITHOUT:
            last, value = node.end_lineno or 0, node.func.value
            if value.end_lineno == last:
                # after a bracket that closes around the value, which belongs to it
                dot = lines[last - 1].index(f".{node.func.attr}(", value.end_col_offset)
                yield last, dot, node.end_col_offset or 0, ""


def _between(left: ast.expr, right: ast.expr, sign: str, other: str, lines: list[str]) -> Iterator[Edit]:
    """Replace the operator that stands between two expressions of one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset]
    match = re.search(re.escape(sign), gap)
    if match:
        start = left.end_col_offset + match.start()
        yield right.lineno, start, start + len(sign), other


def _constant(node: ast.Constant, is_index: bool) -> Iterator[Edit]:
    """Another number. Tolerances and stand-ins for infinity are not changed."""
    value, end = node.value, node.end_col_offset or 0
    if isinstance(value, bool):
        text = str(not value)
    elif isinstance(value, int):
        text = "1" if value == 0 else str(value - 1 if is_index else value + 1)
    elif isinstance(value, float) and (value == 0.0 or 1e-6 < value < 1e6):
        text = "1.0" if value == 0.0 else f"{value * 1.1:.6g}"
    else:
        return
    yield node.lineno, node.col_offset, end, text


def _find_indices(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Constants that are dimensions or indices, with the node around them: out of range they would fail at once, so
    they change to the number beside them."""
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            value = node.slice
        elif isinstance(node, ast.keyword) and node.arg in ("dim", "dim1", "dim2"):
            value = node.value
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).split(".")[-1] in BY_DIMENSION:
            value = node.args[0]
        else:
            continue
        if isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant):
            parents[value.operand] = value
        elif isinstance(value, ast.Constant):
            parents[value] = node
    return parents


def _shapes(tree: ast.Module) -> set[ast.AST]:
    """Numbers of a shape such as view(-1, 2), which would fail at once too."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    shaped = [
        entry
        for node in calls
        if getattr(node.func, "attr", "") in ("expand", "reshape", "view")
        for entry in node.args
    ]
    inner = [node.operand for node in shaped if isinstance(node, ast.UnaryOp)]
    return {node for node in [*shaped, *inner] if isinstance(node, ast.Constant | ast.UnaryOp)}


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that do something: no types, texts, assertions, errors and warnings."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not _silent(child):
                yield child
                yield from _code(child)


def _silent(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "warnings.warn", "TypeVar")
