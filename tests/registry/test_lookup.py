"""Listing names imports nothing, creating checks options, and misspelled names get a suggestion."""

import json
import subprocess
import sys

import pytest

import kinfold
from kinfold import registry

KINDS = [kind for kind in registry.kinds() if kind not in ("recipes", "tables")]


def fresh_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_name_resolves():
    for kind in KINDS:
        for name in kinfold.list(kind):
            assert callable(registry.resolve(kind, name))


def test_listing_imports_nothing():
    loaded = fresh_python("import sys, kinfold; kinfold.list('losses'); print('torch' in sys.modules)")
    assert loaded.strip() == "False"


def test_losses_load_only_what_they_need():
    code = "import sys, json, kinfold.losses; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(fresh_python(code))
    packages = {name.split(".")[1] for name in loaded if name.startswith("kinfold.")}
    assert packages == {"registry", "pairs", "miners", "losses"}
    heavy = {"matplotlib", "typer", "click", "rich", "pandas", "sklearn", "scipy", "plotly", "tensorboard", "PIL"}
    assert not heavy & {name.split(".")[0] for name in loaded}
    assert "torch._dynamo" not in loaded  # the compiler of torch takes a second


def test_packages_are_attributes():
    printed = fresh_python("import kinfold; print(kinfold.losses.create('supcon'))")
    assert printed.strip() == "SupCon(temperature=0.1, distance=None, reduction='mean')"
    with pytest.raises(AttributeError, match="no attribute 'lossess'"):
        kinfold.lossess  # noqa: B018


@pytest.mark.parametrize(
    ("misspelled", "name"),
    [("multi-similartiy", "multi-similarity"), ("proxy_nca", "proxy-nca"), ("Triplet", "triplet"), ("npair", "n-pair")],
)
def test_an_unknown_name_gets_the_closest_as_a_suggestion(misspelled, name):
    with pytest.raises(ValueError, match=f"loss '{misspelled}' not found .did you mean '{name}'"):
        kinfold.losses.create(misspelled)


def test_an_unknown_kind_or_option_gets_the_closest_as_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'losses'"):
        kinfold.list("loses")
    with pytest.raises(ValueError, match="did you mean 'threshold'"):
        kinfold.losses.create("binomial", treshold=0.5)
    with pytest.raises(ValueError, match="needs the options num_classes, dim"):
        kinfold.losses.create("proxy-nca")


def test_a_new_name_can_be_registered_once(own_names):
    registry.register("losses", "my-lifted", "kinfold.losses.lifted:Lifted")
    assert isinstance(kinfold.losses.create("my-lifted"), kinfold.losses.Lifted)
    with pytest.raises(ValueError, match="already registered"):
        registry.register("losses", "my-lifted", "elsewhere:Thing")
    with pytest.raises(ValueError, match="package"):
        registry.register("losses", "another", "no-colon")
