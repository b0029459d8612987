"""The documentation is complete: the site builds in strict mode, and every registered name has its entry."""

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
import typer

import kinfold
from kinfold.cli.main import app, main
from kinfold.experiments import read_suite
from tools import loss_index

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WHEN, PAPER = "when to use it", "from"
# kind: (page, alternatives for each column that must be filled, marker around the table of measured costs)
CATALOG = {
    "miners": ("miners.md", [["keeps", "draws"], [WHEN], [PAPER]], "miners"),
    "sets": ("dro.md", [["worst weights p*"], ["value F"], [WHEN], [PAPER]], "sets"),
    "samplers": ("samplers.md", [["a batch"], [WHEN], [PAPER]], "milliseconds"),
    "metrics": ("evaluation.md", [["value of one query", "value"], [WHEN], [PAPER]], "metrics"),
    "heads": ("models.md", [["embedding of the features y"], [WHEN], [PAPER]], None),
    "backbones": ("models.md", [["features"], ["weights"], [WHEN], [PAPER]], "backbones"),
    "datasets": ("data.md", [["what"], [WHEN], [PAPER]], None),
}
# baselines without a paper
WITHOUT_PAPER = {"all", "average", "random", "mlp", "residual", "identity", "features", "softmax"}
# networks of other libraries
NOT_MEASURED = {"densenet201", "googlenet", "timm", "transformers", "features"}
PACKAGES = [
    "adaptation",
    "audit",
    "board",
    "calibration",
    "compat",
    "data",
    "dro",
    "embedding",
    "experiments",
    "gallery",
    "losses",
    "metrics",
    "miners",
    "models",
    "pairs",
    "papers",
    "registry",
    "report",
    "samplers",
    "testing",
    "training",
]


def builtin_names(kind):
    """Names of the package, without those that other tests registered."""
    added = {(entry[0], entry[1]) for entry in kinfold.registry.list_added()}
    return [name for name in kinfold.list(kind) if (kind, name) not in added]


def rows(text):
    """Rows of the tables of a page by the names in backticks in their first column: name -> column -> text."""
    by_name: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if not header:
            header = cells
        elif not set(line) <= set("|-: "):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                by_name.setdefault(name, {}).update(zip(header, cells, strict=True))
    return by_name


def marked(text, mark):
    return re.search(rf"<!-- {mark} -->(.*?)<!-- /{mark} -->", text, flags=re.DOTALL)[1]


@pytest.mark.parametrize("kind", CATALOG)
def test_every_name_has_formula_paper_and_when_to_use_it(kind):
    page, wanted, _ = CATALOG[kind]
    by_name = rows((DOCS / page).read_text())
    for name in builtin_names(kind):
        assert name in by_name, f"{page} has no row for {name}"
        for columns in wanted:
            if columns == [PAPER] and name in WITHOUT_PAPER:
                continue
            assert any(by_name[name].get(column) for column in columns), f"{page} leaves {columns} of {name} empty"


@pytest.mark.parametrize("kind", [kind for kind in CATALOG if CATALOG[kind][2]])
def test_every_name_has_its_measured_cost(kind):
    page, _, mark = CATALOG[kind]
    costs = marked((DOCS / page).read_text(), mark)
    for name in builtin_names(kind):
        if name in NOT_MEASURED:
            continue
        row = re.search(rf"^\| `?{re.escape(name)}`?(?: \([^|]*\))? \|(.*)\|$", costs, flags=re.MULTILINE)
        assert row, f"python -m benchmarks.docs fills the cost of {name} into {page}"
        assert all(float(cell) >= 0 for cell in row[1].split("|"))


def test_every_robust_loss_is_explained_and_measured():
    by_name, cost = rows((DOCS / "dro.md").read_text()), (DOCS / "losses" / "cost.md").read_text()
    names = [name for name in builtin_names("losses") if name.startswith("dro-")]
    assert names
    for name in names:
        assert by_name[name]["is"], name
        assert by_name[name][WHEN], name
        assert f"| {name} |" in cost, name


def test_numbers_of_registered_names_are_right():
    """What pages say by hand: "All 36 losses", and the row of the comparison with other libraries."""
    losses = builtin_names("losses")
    robust = [name for name in losses if name.startswith("dro-")]
    (number,) = re.findall(r"All (\d+) losses", (ROOT / "README.md").read_text())
    assert int(number) == len(losses)
    ((number, presets),) = re.findall(r"(\d+) names, (\d+) of them robust", (DOCS / "comparison.md").read_text())
    assert (int(number), int(presets)) == (len(losses), len(robust))


def test_every_loss_page_names_its_paper():
    for name in builtin_names("losses"):
        if name.startswith("dro-"):
            continue
        page = (DOCS / "losses" / f"{name}.md").read_text()
        for heading in ("Definition", "When to use it", "Paper"):
            said = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
            assert said, f"{name}.md has no {heading}"
            assert len(said[1].strip()) > 20, f"{name}.md says nothing under {heading}"
        dated = re.search(r"^## Paper\n.*\b(19|20)\d\d\b", page, flags=re.MULTILINE | re.DOTALL)
        assert dated or name in WITHOUT_PAPER, f"{name}.md names no paper with its year"


def test_every_public_package_has_a_reference_page():
    packages = {name for name in kinfold.__all__ if isinstance(getattr(kinfold, name), ModuleType)}
    assert packages == {*PACKAGES}
    for package in PACKAGES:
        assert f"::: kinfold.{package}\n" in (DOCS / "reference" / f"{package}.md").read_text()


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    navigation = re.search(r"^nav:\n(.*?)(?=^\S)", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE | re.DOTALL)[1]
    named = re.findall(r": (\S+\.md)$", navigation, flags=re.MULTILINE)
    assert len(named) == len(set(named))
    overview = (DOCS / "losses" / "index.md").read_text()
    linked = {f"losses/{name}" for name in re.findall(r"\]\(([\w-]+\.md)\)", overview)}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    pages |= {str(notebook.relative_to(DOCS).with_suffix(".md")) for notebook in DOCS.rglob("*.ipynb")}
    assert {*named, *linked} == pages


def test_the_overview_of_losses_is_up_to_date():
    overview = (DOCS / "losses" / "index.md").read_text()
    assert loss_index.fill(overview) == overview, "run python -m tools.loss_index"


def test_the_front_page_leads_to_every_part():
    front = (DOCS / "index.md").read_text()
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    missing = {page for page in pages if f"]({page}" not in front}
    assert not missing


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[docs]' builds the documentation")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement, which is no warning about these pages
    built = subprocess.run(
        [*command, "--site-dir", folder], capture_output=True, text=True, cwd=ROOT, env=quiet, timeout=300
    )
    assert built.returncode == 0, built.stderr + built.stdout
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_page(site):
    for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]:
        path = page.relative_to(DOCS).with_suffix("")
        built = site / (path.parent if path.name == "index" else path) / "index.html"
        assert built.is_file(), f"{path} is not in the site"


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_shows_everything_that_a_package_exports(site, package):
    page = (site / "reference" / package / "index.html").read_text()
    for name in importlib.import_module(f"kinfold.{package}").__all__:
        # a function in a module of the same name is documented with its module
        headings = (f'id="kinfold.{package}.{name}"', f'id="kinfold.{package}.{name}.{name}"')
        assert any(heading in page for heading in headings), name


@pytest.mark.slow
def test_the_reference_shows_signatures_and_examples(site):
    page = (site / "reference" / "dro" / "index.html").read_text()
    assert "for_batch" in page
    assert "effective" in page
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page


@pytest.mark.slow
def test_links_of_the_site_lead_to_files_and_headings_that_exist(site):
    identifiers = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in site.rglob("*.html")}
    for page in identifiers:
        if page.name == "404.html":
            continue
        article = re.search(r"<article.*?</article>", page.read_text(), flags=re.DOTALL)[0]
        for target in re.findall(r'(?:href|src)="(?!https?:|mailto:|data:)([^"]*)"', article):
            path, _, anchor = target.partition("#")
            other = (page.parent / path).resolve() if path else page
            other = other / "index.html" if other.is_dir() else other
            assert other.is_file(), f"{page.relative_to(site)} leads to {target}"
            assert not anchor or anchor in identifiers[other], f"{page.relative_to(site)} leads to {target}"


def commands(page):
    """(line, arguments) of every kinfold command in a shell block of a page."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            arguments = shlex.split(line, comments=True)
            if "kinfold" in arguments[:1] or arguments[:1] == ["torchrun"]:
                yield line, arguments[arguments.index("kinfold") + 1 :]


@contextmanager
def fail_with(line):
    """Fail with the line of documentation that a command refuses."""
    try:
        yield
    except Exception as error:
        pytest.fail(f"{line}: {error}")


def test_every_command_that_is_shown_has_the_options_it_is_shown_with(monkeypatch):
    monkeypatch.setattr("kinfold.registry.plugins.load", lambda plugin: None)  # runs while options are parsed
    command = typer.main.get_command(app)
    documented = set()
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for line, arguments in commands(page):
            parser, rest = command, arguments
            while hasattr(parser, "commands"):
                name, *rest = rest
                documented.add(name)
                assert name in parser.commands, f"{page.name}: there is no command {name} in {line}"
                parser = parser.commands[name]
            with fail_with(f"{page.name}: {line}"):
                parser.make_context(arguments[0], [*rest])
    assert set(command.commands) <= documented, "every command is shown somewhere"  # type: ignore[attr-defined]


def test_every_toml_block_can_be_read(tmp_path):
    blocks = 0
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
            tables = tomllib.loads(block)
            blocks += 1
            if "method" in tables:
                suite = tmp_path / "suite.toml"
                suite.write_text(block)
                assert [entry["name"] for entry in tables["method"]] == [*read_suite(suite).methods]
    assert blocks >= 2


# a first hour in seconds: few steps, small batches, and of the glyphs no more than is needed to choose a step
SHORT = {
    "training.steps": 2,
    "training.precision": "float32",
    "evaluation.every": 2,
    "evaluation.diagnose": "never",
    "sampler.batch_size": 8,
    "sampler.per_class": 2,
    "data.workers": 0,
}
SHORT_ON_GLYPHS = {"data.test": "withheld", "data.validation": 0.02}


def quick_start():
    """(language, text) of its blocks, in their order."""
    page = (DOCS / "quick-start.md").read_text()
    return re.findall(r"^```(python|sh)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def shorten(arguments):
    if arguments[1] == "adapt":
        network = [] if arguments[2].endswith(".npz") else ["--backbone", "conv4"]  # a small one
        return [*arguments, "--minutes", "0.01", *network]
    if arguments[1] != "train" or "--resume" in arguments:
        return arguments
    changes = SHORT | (SHORT_ON_GLYPHS if arguments[2] == "glyphs" else {})
    return [*arguments, *(argument for key, value in changes.items() for argument in ("--set", f"{key}={value}"))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:model.init = 'half-whiten' needs more than 128 training images")
def test_the_commands_of_the_quick_start_run_in_their_order(tmp_path, monkeypatch, capsys):
    for package in ("efficientnet_lite_pytorch", "sklearn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, which the quick start installs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    threads, scope = torch.get_num_threads(), {"__name__": "snippet"}
    commands_run = []
    for language, text in quick_start():
        if language == "python":
            exec(compile(text, "quick-start.md", "exec"), scope)
            continue
        for line in text.splitlines():
            arguments = shlex.split(line, comments=True)
            if not arguments or arguments[0] != "kinfold":
                assert arguments[:2] in ([], ["pip", "install"]), f"nothing runs {line}"
                continue
            monkeypatch.setattr(sys, "argv", shorten(arguments))
            code = 0
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
            # the doctor may report a problem of this machine; the other commands still run
            assert code == 0 or arguments[1] == "doctor", f"{line}: {capsys.readouterr().err}"
            commands_run.append(arguments[1])
    torch.set_num_threads(threads)
    assert {"doctor", "data", "train", "evaluate", "embed", "list", "search", "report", "adapt", "compress"} <= set(
        commands_run
    )
    assert (tmp_path / "neighbors.png").is_file()
    assert (tmp_path / "runs" / "photos" / "report.html").is_file()
    for run in ("first", "photos", "table", "head", "proxies", "topk", "adapted", "best", "best-table"):
        assert kinfold.training.Run.open(tmp_path / "runs" / run).finished, run
