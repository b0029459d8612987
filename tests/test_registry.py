"""Names: listing is free, creating is checked, mistakes name the nearest."""

import json
import subprocess
import sys

import pytest

import kinfold
from kinfold import registry


def fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_every_name_resolves():
    for kind in ("losses", "miners"):
        for name in kinfold.list(kind):
            assert callable(registry.resolve(kind, name))


def test_listing_imports_nothing():
    loaded = fresh_python("import sys, kinfold; kinfold.list('losses'); print('torch' in sys.modules)")
    assert loaded.strip() == "False"


def test_losses_load_only_what_they_need():
    code = "import sys, json, kinfold.losses; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(fresh_python(code))
    rooms = {name.split(".")[1] for name in loaded if name.startswith("kinfold.")}
    assert rooms == {"options", "registry", "pairs", "miners", "losses"}
    heavy = {"matplotlib", "typer", "click", "rich", "pandas", "sklearn", "scipy", "plotly", "tensorboard", "PIL"}
    assert not heavy & {name.split(".")[0] for name in loaded}


def test_rooms_are_attributes():
    shown = fresh_python("import kinfold; print(kinfold.losses.create('supcon'))")
    assert shown.strip() == "SupCon(temperature=0.1, reduction='mean')"
    with pytest.raises(AttributeError, match="no attribute 'lossess'"):
        kinfold.lossess  # noqa: B018


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("multi-similartiy", "multi-similarity"), ("proxy_nca", "proxy-nca"), ("Triplet", "triplet"), ("npair", "n-pair")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean '{right}'"):
        kinfold.losses.create(wrong)


def test_an_unknown_kind_or_option_is_answered_with_the_nearest():
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
