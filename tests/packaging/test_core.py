"""`pip install kinfold` without extras: every module can be imported, and imports nothing that it does not need."""

import json

import pytest

from tests.packaging.absent import OPTIONAL, PROJECT, TOOLS, python

# the estimators need scikit-learn, and each adapter the library that it is for
MODULES = """
import importlib, json, sys
from pathlib import Path
import kinfold
source = Path(kinfold.__file__).parents[1]
names = [".".join(path.relative_to(source).with_suffix("").parts) for path in source.glob("kinfold/**/*.py")]
names = [name.removesuffix(".__init__") for name in names]
needy = ("kinfold.learner", "kinfold.linear_estimators", "kinfold.__main__")
names = [name for name in names if name not in needy and not name.startswith("kinfold.compat.")]
for name in names:
    importlib.import_module(name)
"""
LOADED = "{name.split('.')[0] for name in sys.modules}"


@pytest.mark.slow
def test_every_module_is_imported_without_the_optional_packages():
    hidden = f"from tests.packaging.absent import OPTIONAL, hide; hide(OPTIONAL){MODULES}print(len(names))"
    assert int(python(hidden)) > 200


def test_no_module_imports_an_optional_package_before_it_is_used():
    loaded = json.loads(python(f"{MODULES}print(json.dumps(sorted({LOADED})))"))
    assert "torch" in loaded
    assert not OPTIONAL & {*loaded}


def test_importing_kinfold_imports_only_the_standard_library():
    code = f"import sys; before = {LOADED}; import kinfold; print(*({LOADED} - before - sys.stdlib_module_names))"
    assert python(code).split() == ["kinfold"]


def test_the_command_prints_its_help_without_torch():
    code = f"import sys, kinfold.cli.main; print(*{LOADED})"
    assert not ({"torch", "numpy", "PIL"} | OPTIONAL) & {*python(code).split()}


def test_the_core_trains_and_evaluates_without_the_optional_packages(tmp_path):
    code = """
import sys
from pathlib import Path
from tests.packaging.absent import OPTIONAL, hide
hide(OPTIONAL)
import numpy, torch, kinfold
folder = Path(sys.argv[1])
kinds = numpy.repeat(numpy.arange(8), 10)
draw = numpy.random.default_rng(0)
rows = draw.normal(size=(8, 6))[kinds] + 0.1 * draw.normal(size=(80, 6))
split = numpy.where(kinds < 4, "train", "test")
numpy.savez(folder / "rows.npz", embeddings=rows.astype("float32"), labels=kinds, split=split)
recipe = {
    "data": {"name": "features", "root": str(folder / "rows.npz"), "validation": 0.0},
    "model": {"dim": 4},
    "sampler": {"name": "spc", "batch_size": 12, "per_class": 3},
    "training": {"steps": 5},
    "evaluation": {"selection": "last"},
}
print(kinfold.train(recipe, folder / "run").scores["test"]["recall@1"])
embeddings = torch.from_numpy(rows)
print(kinfold.metrics.evaluate(embeddings, torch.from_numpy(kinds), metrics=["recall@1"])["recall@1"])
"""
    trained, untrained = map(float, python(code, tmp_path).split())
    assert untrained == 1.0  # classes far apart
    assert trained > 0.9


def test_every_extra_for_users_is_known_to_the_doctor():
    from kinfold.cli.doctor import EXTRAS

    assert {*PROJECT["optional-dependencies"]} - TOOLS == {*EXTRAS}
    assert {module for modules, _, _ in EXTRAS.values() for module in modules} <= OPTIONAL
