"""Trace what a call enters of a package: functions, lines to read, lines that are run."""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Line = tuple[str, int]  # file and number


@dataclass(frozen=True)
class Trace:
    """What a call enters of a package: how often each function is called, and the lines that are run."""

    calls: Counter[CodeType]
    run: set[Line]

    @property
    def functions(self) -> Counter[CodeType]:
        """Without comprehensions and lambdas, which are read where they stand."""
        return Counter({code: times for code, times in self.calls.items() if not code.co_name.startswith("<")})


def entered(work: Callable[[], object], package: Path) -> Trace:
    """Call `work` and trace it through the files of `package`."""
    trace = Trace(Counter(), set())

    def note(frame: FrameType, event: str, _: object) -> Any:
        if not Path(frame.f_code.co_filename).is_relative_to(package):
            return None
        if event == "call":
            trace.calls[frame.f_code] += 1
        trace.run.add((frame.f_code.co_filename, frame.f_lineno))
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return trace


def lines_to_read(codes: Iterable[CodeType]) -> set[Line]:
    """Lines of code of these functions: without docstrings, comments and blank lines; what is nested counts once."""
    return only_code({(code.co_filename, line) for code in codes for line in _extent(code)})


def only_code(lines: set[Line]) -> set[Line]:
    files = {name for name, _ in lines}
    return lines & {(name, line) for name in files for line in code_lines(Path(name).read_text())}


def _extent(code: CodeType) -> range:
    tree = ast.parse(Path(code.co_filename).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return range(first, (node.end_lineno or first) + 1)
    numbers = [line for _, _, line in code.co_lines() if line]
    return range(code.co_firstlineno, max(numbers, default=code.co_firstlineno) + 1)


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold more than a comment or a docstring."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            numbers.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return numbers
