"""What the comparison with the peers counts, and how it tells it."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from benchmarks.comparison import installs, libraries, losses, reading, tracing

SOURCE = dedent('''
    """Docstring of the module."""


    def outer(x):
        """Docstring
        of two lines."""
        # a comment

        if x > 10:
            return never(
                x
            )
        return sum(inner(y) for y in [x, x])


    def inner(x):
        text = """a string that
        is no docstring"""
        return x + len(text) * 0  # a comment behind code


    def never(x):
        return x
''')


@pytest.fixture
def way(tmp_path, monkeypatch):
    """The way of one call of `outer` through a package of one module."""
    (tmp_path / "followed_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "followed_module", raising=False)
    import followed_module  # type: ignore[import-not-found]

    return tracing.entered(lambda: followed_module.outer(1), tmp_path)


def test_blank_lines_comments_and_docstrings_are_not_code():
    lines = SOURCE.splitlines()
    code = [lines[number - 1].strip() for number in sorted(tracing.code_lines(SOURCE))]
    assert code == [
        "def outer(x):",
        "if x > 10:",
        "return never(",
        "x",
        ")",
        "return sum(inner(y) for y in [x, x])",
        "def inner(x):",
        'text = """a string that',
        'is no docstring"""',
        "return x + len(text) * 0  # a comment behind code",
        "def never(x):",
        "return x",
    ]


def test_only_functions_that_are_entered_count_and_comprehensions_stand_in_theirs(way):
    assert {code.co_name: times for code, times in way.functions.items()} == {"outer": 1, "inner": 2}
    assert len(tracing.lines_to_read(way.calls)) == 6 + 4  # a branch that is not taken is still read


def test_lines_that_are_run_leave_out_branches_not_taken(way):
    lines = SOURCE.splitlines()
    run = {lines[number - 1].strip() for _, number in tracing.only_code(way.run)}
    assert "if x > 10:" in run
    assert "return never(" not in run


def test_work_outside_the_package_is_not_followed(tmp_path):
    way = tracing.entered(lambda: Path("a").joinpath("b"), tmp_path)
    assert not way.calls
    assert not way.run


def test_a_failing_call_leaves_no_tracer_behind(tmp_path):
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        tracing.entered(lambda: 1 / 0, tmp_path)
    assert sys.gettrace() is before


def test_the_way_of_every_loss_is_followed_in_both_libraries():
    pytest.importorskip("pytorch_metric_learning")
    for library in (libraries.OURS, libraries.PML):
        rows = reading.reading(library)
        assert [row["loss"] for row in rows] == list(reading.READ)
        for row in rows:
            assert 0 < row["own"] < row["lines"]
            assert row["run"] <= row["lines"]
            assert row["files"] <= row["functions"] <= row["calls"]
        assert library == libraries.PML or all(row["ancestors"] == 1 for row in rows)


def _installed(site, name, *requires):
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {r}" for r in requires)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def test_requirements_are_followed_through_extras_that_were_asked_for_and_no_others(tmp_path):
    _installed(tmp_path, "top", "middle[fast]>=1", "later; python_version > '99'", "shown; extra == 'plots'")
    _installed(tmp_path, "middle", "speed; extra == 'fast'", "slow; extra == 'slow'", "top")
    for name in ("later", "shown", "speed", "slow", "stranger"):
        _installed(tmp_path, name)
    assert installs.needed("top", tmp_path) == {"top", "middle", "speed"}


def test_a_loss_that_the_peer_cannot_hold_is_named_in_the_table():
    row = {"loss": "nt-xent", "batch": 640, "dim": 1024, "ours_ms": 1.0, "ours_bytes": 2**20}
    line = losses.loss_table([row | {"peer_ms": "over 8 GB", "peer_bytes": "over 8 GB"}]).splitlines()[-1]
    assert line == "| nt-xent | 640 x 1024 | 1.00 | over 8 GB |  | 1.0 | over 8 GB |  |"
    line = losses.loss_table([row | {"peer_ms": 2.5, "peer_bytes": 2**22}]).splitlines()[-1]
    assert line == "| nt-xent | 640 x 1024 | 1.00 | 2.50 | 2.5 | 1.0 | 4.0 | 4.0 |"
    line = losses.loss_table([row | {"peer_ms": 9000.0, "peer_bytes": None}]).splitlines()[-1]
    assert line.endswith("| 1.0 | not measured |  |")


def test_only_failed_allocations_are_told_as_too_much():
    assert losses.too_much(RuntimeError("can't allocate memory: you tried")) == "over 8 GB"
    assert losses.too_much(MemoryError()) == "over 8 GB"
    with pytest.raises(RuntimeError, match="shape"):
        losses.too_much(RuntimeError("shape mismatch"))


def test_the_limit_on_memory_holds_inside_and_is_gone_afterwards():
    import resource

    import torch

    before = resource.getrlimit(resource.RLIMIT_AS)
    with losses.limited_memory(), pytest.raises(RuntimeError, match="memory"):
        torch.empty(2 * losses.MEMORY_LIMIT, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
