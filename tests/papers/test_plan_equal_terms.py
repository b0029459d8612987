"""Rows that a paper compares differ in what it compares and in nothing else, at full scale and at small scale."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from kinfold import recipes
from kinfold.experiments import read_suite
from kinfold.papers import published
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.small_scale import SmallScale
from kinfold.training import splits
from kinfold.training.config import resolution
from kinfold.training.config.parsing import configure, read_tables, to_tables
from tests.papers.features import feature_file

# keys that may differ, by what a paper compares; a key that ends with a dot stands for all below it
HEAD = ("model.head", "model.head_options.", "search.model.head_options.")
OBJECTIVE = ("loss.", "miner.", "optimizer.loss_lr", "search.", "evaluation.distance")
PROTOCOL = (*OBJECTIVE, "sampler.name", "sampler.per_class")  # proxies need one item of a class
METHOD = (*OBJECTIVE, *HEAD, "model.dim", "model.init")  # a method with a head of its own, which starts at random
SWITCH = ("miner.switch", "search.miner.switch.")
MIXUP = ("mixup.",)
SAMPLER = ("sampler.",)
BACKBONE = ("model.backbone", "data.pipeline")  # images are prepared as the backbone expects them

BASELINES = {  # DRML's row -> the row of its base loss
    "drml-triplet": "triplet",
    "drml-pa": "proxy-anchor",
    "drml-cosface": "cosface",
    "drml-mdw": "margin-dw",
    "drml-mdw-distance-weighted": "margin-dw-distance-weighted",
    "drml-tsh": "triplet-sh",
}
SAMPLERS = ("spc-2", "spc-4", "spc-8", "spc-r", "ddm", "gc", "frd")
BACKBONES = ("bn-inception", "densenet201")
TABLES = [name for name in published.list_tables() if published.load_table(name).kind != "toy"]
SCALES = ("full", "features", "narrow features", "glyphs")


@cache
def table(name):
    return published.load_table(name)


def own_rows(name) -> list[published.PublishedRow]:
    """Rows that are trained."""
    trained = [row for row in table(name).rows if row.not_run is None]
    return [row for row in trained if row.settings(table(name).data[0]).get("training", {}).get("steps") != 0]


def has_head(name, row) -> bool:
    return "head" in row.settings(table(name).data[0])["model"]


def has_sampler(row) -> bool:
    """Whether the batches are a part of the method."""
    return row.name in ("hdl", "htl", "smart-mining")


def split_name(row, endings) -> tuple[str, str]:
    """A name as what stands before one of the endings, and the ending."""
    ending = next((ending for ending in endings if row.name.endswith(f"-{ending}")), "")
    return row.name.removesuffix(f"-{ending}"), ending


def compared_pairs(name) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Method, baseline and the keys in which the paper lets them differ."""
    rows = own_rows(name)
    paper = name.partition("/")[0]
    if paper == "drml":
        names = {row.name for row in rows}
        yield from ((name, BASELINES[name], HEAD) for name in BASELINES if {name, BASELINES[name]} <= names)
        plain = [row for row in rows if row.name not in BASELINES]
        yield from ((first.name, second.name, PROTOCOL) for first, second in combinations(plain, 2))
    elif name == "revisiting/mixup":
        yield from ((f"{row.name}-mixup", row.name, MIXUP) for row in rows if not row.name.endswith("-mixup"))
        plain = [row for row in rows if not row.name.endswith("-mixup")]
        yield from ((first.name, second.name, OBJECTIVE) for first, second in combinations(plain, 2))
    elif name in ("revisiting/table4", "revisiting/table5", "revisiting/table6"):
        yield from ((row.name, row.name.removeprefix("r-"), SWITCH) for row in rows if row.name.startswith("r-"))
        plain = [row for row in rows if not row.name.startswith("r-")]
        yield from ((first.name, second.name, OBJECTIVE) for first, second in combinations(plain, 2))
    elif name in ("revisiting/table7", "revisiting/table8", "revisiting/table9"):
        yield from _two_ways(rows, SAMPLERS, OBJECTIVE, SAMPLER)
    elif name == "precision-at-k/table2":
        yield from _two_ways(rows, BACKBONES, OBJECTIVE, BACKBONE)
    elif table(name).vary:
        axis = tuple(table(name).vary)
        for first, second in combinations(rows, 2):
            if first.x == second.x:
                yield first.name, second.name, OBJECTIVE
            elif first.name.rpartition("@")[0] == second.name.rpartition("@")[0]:
                yield first.name, second.name, axis
    else:
        for first, second in combinations(rows, 2):
            heads = [has_head(name, row) for row in (first, second)]
            keys = METHOD if any(heads) else OBJECTIVE
            yield first.name, second.name, (*keys, *SAMPLER) if any(map(has_sampler, (first, second))) else keys


def _two_ways(rows, endings, before, after) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Rows named METHOD-ENDING: those of one ending differ in the method, those of one method in the ending."""
    for first, second in combinations(rows, 2):
        method, ending = split_name(first, endings)
        other_method, other_ending = split_name(second, endings)
        if ending == other_ending:
            yield first.name, second.name, before
        elif method == other_method:
            yield first.name, second.name, after


def flatten(settings, above="") -> dict[str, object]:
    flat = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return flat


def differing(first, second) -> set[str]:
    return {key for key in {*first, *second} if first.get(key) != second.get(key)}


def allowed(key, keys) -> bool:
    return any(key == each or (each.endswith(".") and key.startswith(each)) for each in keys)


@pytest.fixture(scope="module")
def scales(tmp_path_factory):
    """At which scales rows are compared; the narrow features divide neither by branches nor into full batches."""
    folder = tmp_path_factory.mktemp("features")
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(22), 9)
    np.savez(folder / "narrow.npz", embeddings=draw.normal(size=(198, 30)).astype(np.float32), labels=labels)
    return {
        "full": None,
        "features": SmallScale(2, feature_file(folder)),
        "narrow features": SmallScale(2, folder / "narrow.npz"),
        "glyphs": SmallScale(2),
    }


@pytest.fixture(scope="module")
def configurations(scales):
    """What is run for every row of a table on its first data set that is run, with every "auto" resolved."""

    @cache
    def of(name, scale):
        plan = plan_table(table(name), PlanOptions(small=scales[scale]))
        rows = next(iter(plan.settings.values()))
        tiny_settings = {row: configure(settings) for row, settings in rows.items()}
        if scales[scale] is not None:
            data = scales[scale].dataset
            tiny_settings = {
                row: resolution.resolve_config(each, splits.assign_splits(data, each.data))
                for row, each in tiny_settings.items()
            }
        return {row: flatten(to_tables(each)) for row, each in tiny_settings.items()}

    return of


@pytest.mark.parametrize("name", TABLES)
def test_every_row_that_is_run_is_compared_with_another(name):
    in_pairs = {row for first, second, _ in compared_pairs(name) for row in (first, second)}
    names = {row.name for row in own_rows(name)}
    assert in_pairs == (names if len(names) > 1 else set())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", TABLES)
def test_method_and_baseline_differ_only_in_what_the_paper_compares(name, scale, configurations):
    rows = configurations(name, scale)
    for method, baseline, keys in compared_pairs(name):
        invalid = {key for key in differing(rows[method], rows[baseline]) if not allowed(key, keys)}
        assert invalid == set(), f"{method} and {baseline} differ in {sorted(invalid)}"


@pytest.mark.parametrize("scale", SCALES[1:])
@pytest.mark.parametrize("name", TABLES)
def test_rows_that_agree_on_a_setting_in_the_paper_agree_on_it_at_small_scale(name, scale, configurations):
    paper, small = configurations(name, "full"), configurations(name, scale)
    for first, second in combinations(small, 2):
        introduced = differing(small[first], small[second]) - differing(paper[first], paper[second])
        # proxies get a learning rate of their own, and distances follow from the loss
        if paper[first]["loss.name"] != paper[second]["loss.name"]:
            introduced -= {"optimizer.loss_lr", "evaluation.distance"}
        # only a linear head starts from principal components; a caveat of the row says so
        if paper[first]["model.head"] != paper[second]["model.head"]:
            introduced -= {"model.init"}
        assert introduced == set(), f"{first} and {second} differ in {sorted(introduced)}"


@pytest.mark.parametrize("name", [name for name in recipes.list_recipes() if name.endswith("-baseline")])
def test_a_recipe_of_drml_and_its_baseline_differ_only_in_the_head(name):
    baseline, method = (
        flatten(to_tables(configure(read_tables(recipes.find_recipe(each)))))
        for each in (name, name.removesuffix("-baseline"))
    )
    invalid = {key for key in differing(method, baseline) if not allowed(key, HEAD)}
    assert invalid == set()


@pytest.mark.parametrize(
    ("suite", "method", "baseline", "keys"),
    [
        ("cub_features", "drml-proxy-anchor", "proxy-anchor", HEAD),
        ("cub_features", "r-margin", "margin", ("miner.switch", "search.")),
        ("omniglot", "r-margin", "margin", SWITCH),
    ],
)
def test_suites_of_the_documentation_compare_on_equal_terms(suite, method, baseline, keys):
    tiny_suite = read_suite(Path(__file__).parents[2] / "benchmarks" / "suites" / f"{suite}.toml")
    (data,) = tiny_suite.datasets
    first, second = (flatten(to_tables(tiny_suite.build_config(data, name))) for name in (method, baseline))
    assert {key for key in differing(first, second) if not allowed(key, keys)} == set()
