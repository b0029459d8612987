import copy
import importlib
import inspect
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch

from kinfold import recipes, registry
from kinfold.data import create_pipeline
from kinfold.papers import published
from kinfold.papers.published import PublishedNumber, PublishedRow, PublishedTable
from kinfold.papers.table_files import build_table
from kinfold.training import components
from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig


@cache
def found(name: str) -> PublishedTable:
    return published.load_table(name)


def runs(kept: PublishedTable) -> list[tuple[PublishedRow, str, RunConfig]]:
    if kept.kind == "toy":
        return []
    return [(row, data, configure(row.settings(data))) for row in kept.rows for data in row.layers]


EXAMPLE: dict[str, Any] = {
    "table": {
        "paper": "Somebody",
        "source": "Table 1",
        "title": "A table",
        "kind": "table",
        "data": ["cub", "cars"],
        "metrics": ["recall@1", "map@r"],
        "protocol": "classic",
        "selection": "last",
        "spread": "standard deviation",
    },
    "base": {"loss": {"name": "dro-topk", "k": 160}, "training": {"steps": 100}},
    "on": {"cars": {"training": {"steps": 200}}},
    "row": [
        {
            "name": "ours",
            "label": "Ours",
            "published": {"cub": {"recall@1": [50, 0.5], "map@r": "unreadable"}, "cars": {"recall@1": 60.5}},
            "settings": {"loss": {"k": 80}},
            "on": {"cars": {"loss": {"k": 40}}},
        },
        {
            "name": "theirs",
            "label": "Theirs",
            "quoted": "Others 2017",
            "not_run": "it needs a telescope",
            "published": {"cub": {"recall@1": 40.0}},
        },
    ],
}


def example(**changes: Any) -> dict[str, Any]:
    """The example with values replaced; a double underscore leads inwards, a number into a list."""
    tables = copy.deepcopy(EXAMPLE)
    for path, value in changes.items():
        key: Any = tables
        *outer, last = path.split("__")
        for part in outer:
            key = key[int(part) if part.isdigit() else part]
        key[last] = value
    return tables


def without_spread(tables: dict[str, Any]) -> dict[str, Any]:
    return {**tables, "table": {key: value for key, value in tables["table"].items() if key != "spread"}}


def test_an_entry_is_a_number_a_number_with_its_spread_or_unreadable() -> None:
    published = build_table("example", EXAMPLE).row("ours").published
    assert published == {
        "cub": {"recall@1": PublishedNumber(50.0, 0.5), "map@r": PublishedNumber(None)},
        "cars": {"recall@1": PublishedNumber(60.5)},
    }


def test_a_spread_says_what_it_is_and_only_where_there_is_one() -> None:
    assert build_table("example", EXAMPLE).spread == "standard deviation"
    with pytest.raises(ValueError, match=r"published with a plus-minus sign: say in \[table\] what it stands"):
        build_table("example", without_spread(EXAMPLE))
    plain = example(row__0__published={"cub": {"recall@1": 50}})
    with pytest.raises(ValueError, match="has a spread, but no number is published with a plus-minus sign"):
        build_table("example", plain)


def test_numbers_keep_the_digits_that_the_file_has() -> None:
    published = found("revisiting/table4").row("angular").published["cub"]
    assert (str(published["recall@1"]), str(published["map@c"])) == ("62.10 ± 0.27", "22.06 ± 0.20")
    assert str(found("dro/table1").row("dro-topk-margin").published["cub"]["recall@16"]) == "95.0"


def test_settings_of_a_row_lie_over_those_of_the_data_set_and_of_the_table() -> None:
    row = build_table("example", EXAMPLE).row("ours")
    cub, cars = configure(row.settings("cub")), configure(row.settings("cars"))
    assert (cub.loss.options["k"], cub.training.steps) == (80, 100)
    assert (cars.loss.options["k"], cars.training.steps) == (40, 200)


def test_a_run_measures_what_the_table_shows_as_the_paper_did() -> None:
    settings = configure(build_table("example", EXAMPLE).row("ours").settings("cars"))
    assert (settings.data.name, settings.data.protocol) == ("cars", "classic")
    assert settings.evaluation.metrics == ["recall@1", "map@r"]
    assert (settings.evaluation.metric, settings.evaluation.selection) == ("recall@1", "last")


def test_columns_of_an_ensemble_are_one_metric_to_a_run() -> None:
    columns = ["precision@1 separated", "precision@1 concatenated", "map@r concatenated"]
    tables = without_spread(example(table__metrics=columns))
    tables["row"] = [{"name": "ours", "label": "Ours", "published": {"cub": {"precision@1 concatenated": 66.0}}}]
    row = build_table("example", tables).row("ours")
    assert row.published == {"cub": {"precision@1 concatenated": PublishedNumber(66.0)}}
    assert configure(row.settings("cub")).evaluation.metrics == ["precision@1", "map@r"]


def test_a_row_that_is_a_number_only_says_why_it_cannot_be_run() -> None:
    row = build_table("example", EXAMPLE).row("theirs")
    assert row.published["cub"]["recall@1"] == PublishedNumber(40.0)
    with pytest.raises(ValueError, match="theirs is a number only: it needs a telescope"):
        row.settings("cub")


def test_a_quoted_row_with_settings_can_be_run() -> None:
    tables = example()
    tables["row"][1] = {"name": "theirs", "label": "Theirs", "quoted": "Others 2017", "settings": {"seed": 1}}
    row = build_table("example", tables).row("theirs")
    assert (row.quoted_from("cub"), row.not_run) == ("Others 2017", None)
    assert row.settings("cub")["seed"] == 1


def test_a_row_may_be_quoted_on_one_data_set_only() -> None:
    row = build_table("example", example(row__0__quoted_on={"cars": "Others 2017"})).row("ours")
    assert (row.quoted_from("cub"), row.quoted_from("cars")) == (None, "Others 2017")


def test_steps_of_a_row_replace_epochs_of_its_table_and_the_other_way_round() -> None:
    longer = build_table("example", example(row__0__on={"cars": {"training": {"epochs": 2}}})).row("ours")
    assert longer.settings("cars")["training"] == {"epochs": 2}
    assert longer.settings("cub")["training"] == {"steps": 100}


def test_a_curve_has_a_row_for_each_place_and_further_keys_move_along() -> None:
    vary = {"loss.k": [10, 20], "training.steps": [5, 6]}
    tables = without_spread(example(table__kind="curve", table__metrics=["recall@1"], table__vary=vary))
    tables["row"] = [
        {"name": "ours", "label": "Ours", "published": {"cub": {"recall@1": [1.5, "unreadable"]}}},
        {"name": "lost", "label": "Lost", "published": {"cub": {"recall@1": "unreadable"}}},
    ]
    kept = build_table("example", tables)
    assert [(row.name, row.x) for row in kept.rows] == [
        ("ours@10", 10),
        ("ours@20", 20),
        ("lost@10", 10),
        ("lost@20", 20),
    ]
    assert [row.published["cub"]["recall@1"].value for row in kept.rows] == [1.5, None, None, None]
    second = configure(kept.row("ours@20").settings("cars"))
    assert (second.loss.options["k"], second.training.steps) == (20, 6)


def test_a_toy_has_its_own_table_and_needs_nothing() -> None:
    head = {"paper": "P", "source": "Figure", "title": "T", "kind": "toy", "metrics": ["smallest angle"]}
    line = {
        "name": "plain",
        "label": "Plain",
        "published": {"toy": {"smallest angle": "unreadable"}},
        "settings": {"toy": {"variant": "plain", "switch": 0.1}},
    }
    row = build_table("toy", {"table": head, "row": [line]}).row("plain")
    assert row.settings("toy") == {"toy": {"variant": "plain", "switch": 0.1}}
    assert row.needs("toy") == []
    named = build_table("toy", {"table": head | {"data": ["diagonal"]}, "row": [line]}).row("plain")
    assert named.settings("diagonal") == named.settings("toy")
    with pytest.raises(ValueError, match=r"plain of a toy needs \[row.settings.toy\]"):
        build_table("toy", {"table": head, "row": [line | {"settings": {}}]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bases": {}}, "unknown key 'bases'.*did you mean 'base'"),
        ({"table__sources": "x"}, r"unknown key 'sources' in \[table\].*did you mean 'source'"),
        ({"row__0__label_": "x"}, r"unknown key 'label_' in \[row ours\].*did you mean 'label'"),
        ({"table__kind": "tabel"}, "table.kind must be one of 'table'.*did you mean 'table'"),
        ({"table__metrics": []}, "names no column"),
        ({"table__metrics": ["recall@1", "mapp@r"]}, "unknown metric 'mapp@r'.*did you mean 'map@r'"),
        ({"table__metrics": ["recall@1", "recall@1"]}, "each thing once"),
        ({"table__data": ["cub", "carts"]}, "'carts' is not in the data sets .did you mean 'cars'"),
        ({"table__data": ["cub"]}, r"\[on\]: 'cars' is not in table.data"),
        ({"table__protocol": None}, "table.protocol must be one of 'classic'"),
        ({"table__kind": "curve"}, r"a curve needs \[table.vary\]"),
        ({"table__vary": {"loss.k": [1]}}, r"\[table.vary\] is the axis of a curve"),
        ({"table__kind": "runtime", "table__vary": {"loss.k": [1], "seed": [1, 2]}}, "all of one length"),
        ({"table__kind": "runtime", "table__vary": {"loss.k": 1}}, "lists of values"),
        ({"row__0__name": "Ours (D)"}, "lower-case letters, digits and hyphens"),
        ({"row__0__name": "theirs"}, "two rows are named 'theirs'"),
        (
            {"row__0__published": {"cub": {"recall@2": 1}}},
            "'recall@2' is not in table.metrics .did you mean 'recall@1'",
        ),
        ({"row__0__published": {"cubs": {}}}, "'cubs' is not in table.data .did you mean 'cub'"),
        ({"row__0__published": {"cub": 5}}, "published.cub must be a table of metrics"),
        ({"row__0__published": {"cub": {"recall@1": "67.4"}}}, r"must be a number, \[value, spread\] or 'unreadable'"),
        ({"row__0__published": {"cub": {"recall@1": True}}}, "must be a number"),
        ({"row__0__published": {"cub": {"recall@1": [1, 2, 3]}}}, "must be a number"),
        ({"row__0__published": {"cub": {"recall@1": [1]}}}, "must be a number"),
        ({"row__0__on": {"cubs": {}}}, r"\[row.on\]: 'cubs' is not in table.data .did you mean 'cub'"),
        ({"row__1__settings": {"seed": 1}}, "theirs has settings and a reason why it is not run"),
        ({"row__0__quoted": "Others 2017", "row__0__settings": {}, "row__0__on": {}}, "ours is quoted: give settings"),
        ({"row__0__quoted_on": {"cub": 5}}, "ours: quoted_on must be data set -> source"),
        ({"row__0__quoted_on": {"sop": "x"}}, "'sop' is not in the data that it has numbers for"),
        ({"row__0__quoted_on": {"cub": "x"}, "row__0__quoted": "y"}, "ours has quoted and quoted_on"),
        ({"row__0__settings": {"los": {}}}, "row ours on cub: unknown key 'los'.*did you mean 'loss'"),
        ({"row__0__on": {"cars": {"training": {"epochs": 2, "steps": 3}}}}, "row ours on cars: .*steps or epochs"),
    ],
)
def test_errors_in_a_file_are_reported_with_the_nearest_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^example: .*{message}"):
        build_table("example", example(**changes))


def test_a_curve_of_another_length_than_its_axis_is_an_error() -> None:
    tables = example(table__kind="curve", table__vary={"loss.k": [10, 20, 30]})
    tables["row"] = [{"name": "ours", "label": "Ours", "published": {"cub": {"recall@1": [1.0, 2.0]}}}]
    with pytest.raises(ValueError, match="'unreadable' or a list of 3 values"):
        build_table("example", tables)


def test_unknown_tables_rows_and_data_sets_come_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown table 'dro/tabel1' .did you mean 'dro/table1'"):
        published.load_table("dro/tabel1")
    with pytest.raises(ValueError, match=r"no row 'dro-topk-margins' .did you mean 'dro-topk-margin'"):
        found("dro/table1").row("dro-topk-margins")
    with pytest.raises(ValueError, match=r"no settings for 'cubs' .did you mean 'cub'"):
        found("dro/table1").row("dro-topk-margin").settings("cubs")


@pytest.mark.parametrize("name", published.list_tables())
def test_every_table_can_be_run_row_by_row(name: str) -> None:
    kept = found(name)
    assert kept.rows
    for row, data, settings in runs(kept):
        assert row.needs(data)
        create_pipeline(settings.data.pipeline if settings.data.pipeline != "auto" else "study")
        assert settings.model.backbone.partition("/")[0] in registry.names("backbones")
        assert settings.model.head in registry.names("heads")
        names = inspect.signature(registry.resolve("samplers", settings.sampler.name)).parameters
        assert {*settings.sampler.options} <= {*names}
        assert settings.sampler.options["batch_size"] % settings.sampler.options.get("per_class", 1) == 0


@pytest.mark.parametrize("name", published.list_tables())
def test_the_loss_of_every_row_learns_from_a_batch_with_its_miner(name: str) -> None:
    embeddings = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) // 5
    checked = set()
    for row, data, settings in runs(found(name)):
        what = repr((settings.loss, settings.miner))
        if what in checked:
            continue
        checked.add(what)
        leaf = embeddings.clone().requires_grad_()
        small = replace(settings, model=replace(settings.model, dim=16))
        value = components.build_objective(small, num_classes=8).compute_batch_loss(leaf, labels)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert value.isfinite(), (row.name, data)
        assert gradient.isfinite().all(), (row.name, data)
        assert gradient.any(), (row.name, data)


@pytest.mark.parametrize("name", published.list_tables())
def test_published_recall_grows_with_its_depth(name: str) -> None:
    # it must, so that a digit that was mistyped or misread often shows here
    misprinted = {("dro/table4", "dro-kl-grouped-0.01", "in-shop")}
    for row in found(name).rows:
        for data, numbers in row.published.items():
            recalls = {
                column: number.value for column, number in numbers.items() if re.fullmatch(r"recall@\d+", column)
            }
            by_depth = sorted(recalls, key=lambda column: int(column.removeprefix("recall@")))
            values = [recalls[column] for column in by_depth if recalls[column] is not None]
            grows = all(low <= high for low, high in pairwise(values))
            assert grows != ((name, row.name, data) in misprinted), (row.name, data, values)


def test_published_numbers_are_percentages() -> None:
    for name in published.list_tables():
        for row in found(name).rows:
            for numbers in row.published.values():
                for number in numbers.values():
                    assert number.value is None or 0 < number.value < 100, (name, row.name)


@pytest.mark.parametrize(
    ("name", "row", "data", "metric", "value"),
    [  # read again from the papers, apart from the files
        ("dro/table1", "dro-topk-binomial", "cub", "recall@1", 68.1),
        ("dro/table1", "dro-kl-margin", "cub", "recall@1", 67.7),
        ("dro/table1", "dro-kl-margin", "cars", "recall@1", 86.4),
        ("dro/table1", "margin", "cars", "recall@16", 97.3),
        ("dro/table2", "dro-kl-grouped-0.001", "cars", "recall@1", 75.0),
        ("dro/table2", "multi-similarity", "cub", "recall@32", 95.8),
        ("dro/table2", "multi-similarity", "cars", "recall@8", 92.6),
        ("dro/table3", "dro-topk-pn-margin", "in-shop", "recall@1", 91.3),
        ("dro/table4", "lifted", "in-shop", "recall@50", 97.4),
        ("dro/imbalance-1024", "dro-topk-pn-margin@640", "in-shop", "recall@1", 90.86),
        ("dro/imbalance-512", "dro-topk-margin@640", "in-shop", "recall@1", 90.58),
        ("dro/imbalance-512", "dro-topk-margin@80", "in-shop", "recall@1", None),
        ("dro/earlier-runs", "dro-topk-binomial", "cub", "recall@1", 67.9),
        ("precision-at-k/table1", "precision-at-k", "cub", "precision@1", 54.12),
        ("precision-at-k/table1", "precision-at-k", "cars", "precision@1", 73.34),
        ("precision-at-k/table1", "precision-at-k", "sop", "precision@1", 74.95),
        ("precision-at-k/table1", "hard-triplet", "sop", "map", 37.45),
        ("precision-at-k/table1", "n-pair", "cub", "precision@3", None),
        ("precision-at-k/table2", "precision-at-k-bn-inception", "sop", "nmi", 90.07),
        ("precision-at-k/table2", "precision-at-k-densenet201", "sop", "nmi", 91.94),
    ],
)
def test_numbers_that_were_read_from_the_papers_again(
    name: str, row: str, data: str, metric: str, value: float | None
) -> None:
    assert found(name).row(row).published[data][metric].value == value


def test_entries_that_a_paper_leaves_empty_are_absent() -> None:
    assert [*found("dro/table1").row("abe").published["cub"]] == ["recall@1", "recall@2", "recall@4", "recall@8"]


def test_what_a_row_needs_names_archives_weights_and_packages() -> None:
    needs = found("precision-at-k/table1").row("precision-at-k").needs("cars")
    assert [line.partition(": ")[0] for line in needs] == ["data", "weights"]
    assert "car_ims.tgz" in needs[0]
    assert "bn_inception-52deb4733.pth" in needs[1]
    dense = found("precision-at-k/table2").row("precision-at-k-densenet201").needs("sop")
    assert [line.partition(": ")[0] for line in dense] == ["data", "weights", "package"]
    assert "Stanford_Online_Products.zip" in dense[0]
    assert "downloads" in dense[1]
    assert "torchvision" in dense[2]


def test_every_package_that_may_be_needed_is_that_of_a_name() -> None:
    assert {*published.PACKAGES} <= {*registry.names("datasets"), *registry.names("backbones")}


def test_tables_are_no_training_recipes() -> None:
    assert "drml/proxy-anchor" in recipes.list_recipes()
    assert not any(name.startswith("papers") for name in recipes.list_recipes())
    with pytest.raises(ValueError, match=r"recipe .* not found"):
        recipes.find_recipe("papers/dro/table1")


def test_listing_tables_loads_no_torch() -> None:
    code = "import sys; from kinfold import papers; papers.list_tables(); print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_folder_of_tables_holds_no_code() -> None:
    assert published.FOLDER.is_dir()
    assert not [*published.FOLDER.rglob("*.py")]


def test_every_public_name_can_be_imported() -> None:
    papers = importlib.import_module("kinfold.papers")
    for name in papers.__all__:
        assert getattr(papers, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'find'"):
        papers.find  # noqa: B018
