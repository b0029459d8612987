"""A loss in a file outside of the package, used by its name; and errors of such files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kinfold
from kinfold import registry
from kinfold.registry import plugins
from kinfold.training import Run
from tests.cli.runs import run as command
from tests.experiments.tiny import BASE, feature_file, read_results, write_suite
from tests.torchrun import run as torchrun

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-loss.md"


@pytest.fixture
def worst_pair(tmp_path):
    """The file that the documentation shows."""
    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / "worst_pair.py"
    path.write_text(code)
    return path


def recipe(folder, **changes):
    from kinfold.training.config.parsing import merge_tables, to_toml

    data = {"name": "features", "root": str(feature_file(folder)), "validation": 0.25}
    path = folder / "own.toml"
    path.write_text(to_toml(merge_tables(BASE, {"data": data, "loss": {"name": "worst-pair"}, **changes})))
    return path


def kinfold_command(*arguments):
    """Run a command in a separate process, from another folder."""
    return subprocess.run(
        [sys.executable, "-m", "kinfold", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_a_run_with_a_plugin_is_trained_and_opened(tmp_path, worst_pair, own_names, capsys, monkeypatch):
    folder = tmp_path / "run"
    process = kinfold_command("train", recipe(tmp_path), "--plugin", worst_pair, "--out", folder)
    assert process.returncode == 0, process.stderr
    code, _, errors = command(capsys, monkeypatch, "evaluate", folder)
    assert code == 2
    assert f"the run {folder} cannot be opened: loss 'worst-pair' not found" in errors
    assert "`kinfold list losses` shows all names, and --plugin FILE adds yours" in errors
    code, _, errors = command(capsys, monkeypatch, "evaluate", folder, "--json", "--plugin", worst_pair)
    assert code == 0, errors
    assert Run.open(folder).config.loss.name == "worst-pair"


def test_a_plugin_is_listed_created_and_accepted_by_the_command(worst_pair, own_names, capsys, monkeypatch):
    code, shown, _ = command(capsys, monkeypatch, "list", "losses", "--plugin", worst_pair)
    assert code == 0
    assert shown.splitlines()[-1].split(maxsplit=1) == [
        "worst-pair",
        "Mean over anchors of the gap between their hardest pairs.",
    ]
    assert type(kinfold.losses.create("worst-pair", reduction="sum")).__module__ == "worst_pair"
    plugins.load(str(worst_pair))  # a second time is no mistake


@pytest.mark.slow
def test_workers_of_a_bench_load_the_plugin(tmp_path, worst_pair):
    method = [{"name": "own", "loss": {"name": "worst-pair"}}, {"name": "contrastive"}]
    file, folder = write_suite(tmp_path, method=method), tmp_path / "bench"
    process = kinfold_command("bench", file, "--out", folder, "--jobs", 2, "--plugin", worst_pair)
    assert process.returncode == 0, process.stderr
    assert {row["method"] for row in read_results(folder)} == {"own", "contrastive"}


@pytest.mark.slow
def test_ranks_load_the_plugin(tmp_path, worst_pair, own_names):
    folder = tmp_path / "run"
    torchrun(2, "kinfold", "train", recipe(tmp_path), "--plugin", worst_pair, "--out", folder)
    plugins.load(str(worst_pair))
    assert Run.open(folder).finished


def test_an_interrupted_run_prints_how_to_resume_with_the_plugin(tmp_path, worst_pair, own_names, capsys, monkeypatch):
    (tmp_path / "own" / "stopping.py").write_text(
        "import os, signal, torch, kinfold\n"
        "from worst_pair import WorstPair\n"
        "@kinfold.register('losses', 'stopping')\n"
        "class Stopping(WorstPair):\n"
        "    def forward(self, *arguments, **options):\n"
        "        if torch.is_grad_enabled():\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return super().forward(*arguments, **options)\n"
    )
    plugin, folder = tmp_path / "own" / "stopping.py", tmp_path / "run"
    file = recipe(tmp_path, loss={"name": "stopping"})
    code, _, errors = command(capsys, monkeypatch, "train", file, "--plugin", plugin, "--out", folder)
    assert code == 143, errors
    assert f"continue with: kinfold train --resume {folder} --plugin {plugin}" in errors


def test_an_installed_package_adds_names_and_cannot_replace_builtin_ones(tmp_path, worst_pair):
    about = worst_pair.parent / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[kinfold.losses]\nbad-pair = worst_pair:WorstPair\nmargin = worst_pair:WorstPair\n"
    )
    program = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    import kinfold
    assert 'bad-pair' in kinfold.list('losses')
assert 'worst_pair' not in sys.modules
print(type(kinfold.losses.create('bad-pair')).__name__, type(kinfold.losses.create('margin')).__name__)
print(*(warning.message for warning in caught), sep=chr(10))
"""
    environment = {**os.environ, "PYTHONPATH": str(worst_pair.parent)}
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    classes, *warned = process.stdout.splitlines()
    assert classes == "WorstPair Margin", process.stderr
    assert warned == ["worst_pair:WorstPair is ignored: 'margin' in losses is already kinfold.losses.margin:Margin"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("absent.py", None, "there is no plugin"),
        ("absent_module", None, "cannot be loaded: ModuleNotFoundError: No module named 'absent_module'"),
        ("my-loss.py", "", "rename it so that 'my-loss' becomes a Python name"),
        ("random.py", "", "'random' is the name of another module here; rename the file"),
        ("silent.py", "x = 1", r'registers nothing: write @kinfold.register\("losses", "my-loss"\)'),
        ("broken.py", "def f(:", "cannot be loaded: SyntaxError"),
        ("failing.py", "1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        (
            "taking.py",
            "import kinfold\n@kinfold.register('losses', 'margin')\nclass Margin: ...",
            "'margin' is already registered in losses as kinfold.losses.margin:Margin; choose another name",
        ),
        (
            "inner.py",
            "import kinfold\ndef f():\n    @kinfold.register('losses', 'inner')\n    class Inner: ...\nf()",
            "must stand at the top level of its file",
        ),
        ("misspelt.py", "import kinfold\nkinfold.register('loses', 'x')(object)", "did you mean 'losses'"),
    ],
)
def test_a_plugin_that_cannot_be_used_gets_an_error_that_helps(tmp_path, own_names, name, code, message):
    if code is not None:
        (tmp_path / name).write_text(code)
    with pytest.raises(ValueError, match=message):
        plugins.load(str(tmp_path / name) if name.endswith(".py") else name)


def test_a_missing_target_is_named(own_names):
    registry.register("losses", "gone", "kinfold.losses.margin:Gone")
    with pytest.raises(ValueError, match=r"'gone' in losses is registered as .*margin:Gone, but there is no Gone in"):
        kinfold.losses.create("gone")
    registry.register("losses", "typed", "__main__:TypedIntoANotebook")
    with pytest.raises(ValueError, match="main program, which other processes cannot import: move it into a file"):
        kinfold.losses.create("typed")


class Bare(torch.nn.Module):
    """A loss of another library."""


class Forgetful(kinfold.losses.Loss):
    def terms(self, pairs):
        pairs.per_anchor(pairs.scores.sum(dim=1))


class PerPair(kinfold.losses.Loss):
    """Says nothing of its kind, which is then "anchor", and gives a value for each pair."""

    def terms(self, pairs):
        return pairs.per_pair(pairs.scores)


class Detached(kinfold.losses.Loss):
    def terms(self, pairs):
        return pairs.per_anchor((pairs.scores > 0.5).float().sum(dim=1))


def test_values_of_another_shape_and_values_without_a_gradient_are_refused():
    labels = torch.tensor([0, 0, 1, 1])
    with pytest.raises(
        ValueError, match=r"PerPair is of kind 'anchor', .* shape \(4,\) for scores \(4, 4\), not \(4, 4\)"
    ):
        PerPair()(torch.eye(4), labels)
    with pytest.raises(ValueError, match=r"Detached have no gradient by the scores.* without \.detach"):
        Detached()(torch.eye(4, requires_grad=True), labels)
    assert float(Detached()(torch.eye(4), labels)) == 1.0  # to look at, it may be anything
    with torch.no_grad():
        assert float(Detached()(torch.eye(4, requires_grad=True), labels)) == 1.0


class OddKind(PerPair):
    kind = "row"


class OddMeasure(PerPair):
    measure = "cosin"


class Silent(kinfold.losses.Loss):
    """Defines nothing."""


class Headless(PerPair):
    def __init__(self):
        self.margin = 0.1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (OddKind, "OddKind.kind is 'row'; it must be one of pair, anchor, batch"),
        (OddMeasure, "OddMeasure.measure is 'cosin' (did you mean 'cosine'?); it must be one of cosine, dot, "),
        (Silent, "Silent computes nothing: define terms(self, pairs) -> Terms"),
        (Headless, "'mine': the __init__ of Headless must begin with super().__init__(reduction)"),
    ],
)
def test_an_invalid_declaration_of_a_class_is_an_error_at_creation(own_names, target, message):
    registry.register("losses", "mine", f"{__name__}:{target.__name__}")
    with pytest.raises(ValueError, match=re.escape(message)):
        kinfold.losses.create("mine")


@pytest.mark.parametrize("name", ["per_anchor", "per_pair", "per_sample"])
def test_a_loss_that_is_already_reduced_is_refused(name):
    scores, positives = torch.rand(3, 5), torch.rand(3, 5) > 0.5
    pairs = kinfold.losses.ScoredPairs(scores, positives, ~positives)
    with pytest.raises(ValueError, match=rf"pairs\.{name} takes one value for each .*, got \(\); it takes the mean"):
        getattr(pairs, name)(scores.mean())


def test_a_class_that_is_not_a_loss_is_an_error_at_creation(own_names):
    for name, target in (("bare", "Bare"), ("forgetful", "Forgetful")):
        registry.register("losses", name, f"{__name__}:{target}")
    with pytest.raises(ValueError, match=r"'bare' is registered as a loss, but Bare is no kinfold\.losses\.Loss"):
        kinfold.losses.create("bare")
    forgetful = kinfold.losses.create("forgetful")
    with pytest.raises(ValueError, match=r"Forgetful.terms returned NoneType instead of Terms; end it with pairs\.per"):
        forgetful(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="a name in losses must be a string, got None"):
        kinfold.losses.create(None)
    with pytest.raises(ValueError, match="'glyphs' is not read from a folder: leave root out"):
        kinfold.data.load("glyphs", "photos")
