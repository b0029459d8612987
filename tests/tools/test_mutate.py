"""The tool that changes lines and asks the tests: what it changes, what it draws, what it keeps, what it says."""

from pathlib import Path

import pytest
from tools.mutations import trial
from tools.mutations.changes import Change, draw, find_changes, read_modules
from tools.mutations.records import Judgments, Records
from tools.mutations.report import PackageResult, render_page
from tools.mutations.trial import Copy, Outcome, Passed

from tools import mutate

PACKAGE = Path(mutate.ROOT) / "src" / "kinfold"


def after(line):
    """What one line inside a function may become."""
    return {change.after.strip() for change in find_changes("a.py", f"def f(x, y):\n    {line}\n")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return x < y", {"return x <= y", "return x > y"}),
        ("return x is None", {"return x is not None"}),
        ("return (x) / (y)", {"return (x) * (y)"}),
        ("x += y", {"x -= y"}),
        ("return x and not y", {"return x or not y", "return x and y"}),
        ("return ~x & -y", {"return x & -y", "return ~x | -y", "return ~x & y"}),
        ("return g(True, 0, 2, 0.0, 0.5)", {
            "return g(False, 0, 2, 0.0, 0.5)", "return g(True, 1, 2, 0.0, 0.5)", "return g(True, 0, 3, 0.0, 0.5)",
            "return g(True, 0, 2, 1.0, 0.5)", "return g(True, 0, 2, 0.0, 0.55)",
        }),
        ("return x.amax(dim=1)", {"return x.amin(dim=1)", "return x.amax(dim=0)"}),
        ("return x.sum(dim=-1)", {"return x.sum(dim=0)"}),
        ("return x.shape[1]", {"return x.shape[0]"}),
        ("return y if x else 3.0", {"return y if not (x) else 3.0", "return y if x else 3.3"}),
        ("return (x - y).clamp(min=0)", {
            "return (x + y).clamp(min=0)", "return (x - y).clamp(max=0)", "return (x - y).clamp(min=1)",
            "return (x - y)",
        }),
        ("return x.positives", {"return x.negatives"}),
        ("return x.view(-1, 2).detach()", {"return x.view(-1, 2)"}),
        ("return x.clamp(1e-300)", {"return x"}),  # not a digit of a tolerance
    ],
)  # fmt: skip
def test_a_line_changes_in_every_way_there_is(line, expected):
    assert after(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        '"""More than 3 or 4 of them."""',
        'raise ValueError(f"must be at least {x + 1}")',
        "assert x > 3",
        "y: int | None",
        'warnings.warn("two", stacklevel=2)',
        "return isinstance(x, int | str)",
    ],
)
def test_texts_errors_types_and_assertions_are_let_be(line):
    assert after(line) == set()


def test_every_drawn_change_is_one_line_that_python_understands():
    for target in trial.TARGETS.values():
        modules = read_modules(PACKAGE, target.sources)
        for change in draw(modules, 100, seed=1):
            changed = change.applied(modules[change.file])
            compile(changed, change.file, "exec")
            pairs = zip(modules[change.file].splitlines(), changed.splitlines(), strict=True)
            assert [old != new for old, new in pairs].count(True) == 1


def test_a_draw_is_spread_over_the_modules_and_survives_edits_elsewhere():
    modules = read_modules(PACKAGE, ["dro"])
    drawn = draw(modules, 30, seed=0)
    assert len(drawn) == len(set(drawn)) == 30
    assert drawn == draw(modules, 30, seed=0)
    assert drawn != draw(modules, 30, seed=1)
    assert len({change.file for change in drawn}) >= 6
    moved = {file: f'"""Text."""\n\n\n{source}' for file, source in modules.items()}
    assert [change.key for change in draw(moved, 30, seed=0)] == [change.key for change in drawn]
    assert len(draw({"a.py": "x = 1\n"}, 30, seed=0)) == 1


def test_a_change_of_another_text_is_refused():
    with pytest.raises(ValueError, match=r"line 1 of a\.py reads"):
        Change("a.py", 1, "x = 1", "x = 2", None).applied("y = 1\n")


HALF = '''"""Half."""


def half(x, step=1):
    count = 0
    while x > 0:
        x -= 2 * step
        count += 1
    return count


def unseen(x):
    return x + 1


def same(x):
    return x
'''
TEST = """from kinfold.dro.half import half


def test_half():
    assert half(8) == 4
"""


@pytest.fixture
def tree(tmp_path):
    """A package of one module, a test of it, and a test in another file that has nothing to do with it."""
    root = tmp_path / "root"
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow']\n",
        "benchmarks/__init__.py": "",
        "src/kinfold/__init__.py": "",
        "src/kinfold/dro/__init__.py": "",
        "src/kinfold/dro/half.py": HALF,
        "tests/dro/test_half.py": TEST,
        "tests/contract/test_losses.py": "from kinfold.dro.half import same\n\n\ndef test_dro_alone():\n    same(1)\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def change(text):
    (changes,) = [c for c in find_changes("kinfold/dro/half.py", HALF) if c.after.strip() == text]
    return changes


@pytest.mark.slow
def test_trials_on_a_copy_tell_caught_from_survived_and_endless(tree, monkeypatch):
    copy = Copy(tree)
    try:
        passed = copy.unchanged("dro", trial.TARGETS["dro"].tests)
        assert set(passed.tests) == {
            "tests/dro/test_half.py::test_half",
            "tests/contract/test_losses.py::test_dro_alone",
        }
        assert [*passed.concerning(change("x -= 3 * step"))] == ["tests/dro/test_half.py::test_half"]
        assert len(passed.concerning(change("return x + 2"))) == 2  # nobody enters it: anybody may notice
        caught = copy.changed("dro", change("x -= 3 * step"), passed)
        assert (caught.kind, caught.by) == ("caught", "tests/dro/test_half.py::test_half")
        assert copy.changed("dro", change("return x - 1"), passed).kind == "survived"
        monkeypatch.setattr(trial, "LEAST_SECONDS", 1.0)
        assert copy.changed("dro", change("x += 2 * step"), passed).kind == "timed out"
        assert (tree / "src/kinfold/dro/half.py").read_text() == HALF
        (copy.tree / "tests/dro/test_half.py").write_text(TEST.replace("4", "5"))
        with pytest.raises(RuntimeError, match=r"fail without any change: .*test_half"):
            copy.unchanged("dro", trial.TARGETS["dro"].tests)
    finally:
        copy.close()
    assert not copy.folder.exists()


def test_a_test_that_enters_nothing_concerns_every_change():
    """It reads signatures, or works in another process."""
    first = change("x -= 3 * step")
    functions = {"far": [["kinfold/dro/half.py", 12]], "near": [[first.file, first.function]], "reads": []}
    passed = Passed({name: {"seconds": 0.5, "functions": entered} for name, entered in functions.items()})
    assert [*passed.concerning(first)] == ["near", "reads"]
    assert passed.concerning(first)["near"] == trial.LEAST_SECONDS + 0.5 * trial.LONGER


def test_records_outlive_a_kill_and_survivors_are_tried_again_with_new_tests(tree, tmp_path):
    records = Records(tmp_path / "kept", tree)
    first, second = change("x -= 3 * step"), change("return x - 1")
    records.keep("dro", first, Outcome("caught", "a test", 1.0))
    records.keep("dro", second, Outcome("survived", "", 2.0))
    with (tmp_path / "kept" / "dro.jsonl").open("a") as file:
        file.write('{"change": ["kinf')  # killed while writing
    assert records.outcome("dro", first) == Outcome("caught", "a test", 1.0)
    assert records.outcome("dro", second) == Outcome("survived", "", 2.0)
    assert records.outcome("dro", change("count += 2")) is None
    names = ("tests/dro/test_half.py::test_half", "tests/contract/test_losses.py::test_dro_alone")
    assert records.passed("dro") == (Passed({}), trial.TARGETS["dro"].tests)
    records.keep_passed("dro", Passed({name: {"seconds": 1.0, "functions": []} for name in names}))
    known, again = records.passed("dro")
    assert ([*known.tests], again) == ([*names], ())
    (tree / "tests/dro/test_half.py").write_text(TEST.replace("8", "9"))
    (tree / "tests/dro/test_more.py").write_text(TEST)
    records = Records(tmp_path / "kept", tree)
    known, again = records.passed("dro")
    assert ([*known.tests], again) == ([names[1]], ("tests/dro/test_half.py", "tests/dro/test_more.py"))
    assert records.outcome("dro", first).kind == "caught"
    assert records.outcome("dro", second) is None
    (tree / "src/kinfold/dro/half.py").write_text(HALF.replace("Half", "A half"))
    records = Records(tmp_path / "kept", tree)
    assert records.outcome("dro", first) is None
    assert records.passed("dro")[1] == trial.TARGETS["dro"].tests


def test_the_rate_leaves_out_what_is_equivalent_and_nothing_else(tmp_path):
    changes = find_changes("kinfold/dro/half.py", HALF)
    kinds = ["caught", "timed out", "survived", "equivalent"]
    outcomes = [*(Outcome(kind, "tests/dro/test_half.py::test_half", 1.0) for kind in kinds), None]
    package = PackageResult(list(zip(changes, outcomes, strict=False)))
    assert package.rate == 2 / 4  # what was not tried is not noticed
    path = tmp_path / "equivalent.toml"
    text = '[[equivalent]]\nfile = "a.py"\nbefore = "x = 1"\nafter = "x = 2"\nreason = "Speed alone."\n'
    path.write_text(text)
    judgments = Judgments.read(path)
    assert judgments.equivalent == {("a.py", "x = 1", "x = 2"): "Speed alone."}
    page = render_page({"dro": package}, 5, 0, judgments)
    assert "| dro | 5 | 1 | 1 | 1 | 1 | 1 | 50.0 % |" in page
    assert f"- {changes[2].before.strip()}\n+ {changes[2].after.strip()}" in page
    path.write_text(text.replace("Speed alone.", " "))
    with pytest.raises(ValueError, match="needs file, before, after and reason"):
        Judgments.read(path)


def test_the_judgments_of_the_repository_can_be_read_and_the_list_shown(capsys):
    Judgments.read(mutate.JUDGMENTS)
    assert mutate.main(["--package", "dro", "--number", "3", "--list"]) == 0
    assert capsys.readouterr().out.count("kinfold/dro/") == 3


def test_every_judgment_is_of_a_line_that_is_still_there():
    judgments = Judgments.read(mutate.JUDGMENTS)
    missing = [
        (file, before)
        for file, before, _ in [*judgments.equivalent, *judgments.survivors]
        if before not in map(str.strip, (PACKAGE.parent / file).read_text().splitlines())
    ]
    assert missing == []
