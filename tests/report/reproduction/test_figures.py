"""What a paper draws is drawn with our numbers: every row, its interval, and the published number."""

import re
from functools import cache

import numpy as np
import pytest

from kinfold.papers import toy
from kinfold.papers.figure_data import write_toy_arrays
from kinfold.papers.map_pictures import find_dense_regions, thin_out
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.published import list_tables, load_table
from kinfold.papers.reproduce import Reproduction
from kinfold.papers.small_scale import SmallScale
from kinfold.report.figures.style import use_style
from kinfold.report.reproduction import write_reproduction
from kinfold.report.reproduction.figures import draw_figures
from kinfold.report.reproduction.selection import create_looks, select_rows, summarize
from tests.papers.features import feature_file


@cache
def plan_of(name):
    return plan_table(load_table(name), PlanOptions(seeds=3))


def reproduction_of(name, data, columns, **fields) -> Reproduction:
    """Row i has the values i, i + 1 and i + 2 percent."""
    plan = plan_of(name)
    ours = {
        row.name: {column: {seed: (number + seed) / 100 for seed in range(3)} for column in columns}
        for number, row in enumerate(plan.rows)
    }
    return Reproduction(plan, data, [*columns], ours, **fields)


def draw(reproduction, methods=()):
    with use_style():
        return dict(draw_figures(reproduction, methods))


def legend_texts(figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend() is not None)]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_a_curve_has_a_line_with_a_band_for_each_method_over_the_axis_of_the_paper():
    result = reproduction_of("dro/imbalance-512", "in-shop", ["recall@1"])
    (figure,) = draw(result).values()
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert [*lines] == ["SH", "DWS", "DRO-TopK_M", "DRO-TopK-PN_M", "DRO-KL_M", "published"]
    assert lines["SH"].get_xdata().tolist() == [80, 160, 320, 480, 640]
    assert lines["SH"].get_ydata() == pytest.approx([1, 2, 3, 4, 5])
    assert len(axes.collections) == 5
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(5 + 4.302652729749464 / np.sqrt(3))  # Student's t, two degrees of freedom


def test_published_numbers_that_can_be_read_are_crosses():
    (figure,) = draw(reproduction_of("dro/imbalance-512", "in-shop", ["recall@1"])).values()
    crosses = [line.get_ydata() for line in figure.axes[0].lines if line.get_marker() == "x" and len(line.get_ydata())]
    assert [values[~np.isnan(values)].tolist() for values in crosses] == [[90.58], [90.73], [90.21]]


def test_a_table_has_a_place_for_every_row_also_for_24_of_them():
    result = reproduction_of("revisiting/table4", "cub", ["recall@1"])
    figures = draw(result)
    (axes,) = figures["recall@1"].axes
    assert len(axes.get_yticklabels()) == 24
    assert {"ours, 95 % interval", "published"} < {*legend_texts(figures["recall@1"])}


def test_rows_with_and_without_are_beside_each_other():
    figure = draw(reproduction_of("revisiting/figure9", "cub", ["recall@1"]))["recall@1 with and without"]
    (axes,) = figure.axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == pytest.approx([1, 3, 5, 7, 9, 2, 4, 6, 8, 10])  # without, then with
    assert {"without", "with", "published"} == {*legend_texts(figure)}
    assert axes.get_ylim()[0] == 0.0  # lengths of bars are compared
    assert [text.get_text() for text in axes.texts] == ["+1.0"] * 5  # with minus without


def test_a_row_and_the_row_without_what_it_adds_share_a_color():
    looks = create_looks(select_rows(reproduction_of("drml/table1", "cub", ["map@r separated"])))
    assert looks["drml-pa"].style.color == looks["proxy-anchor"].style.color
    assert looks["drml-pa"].style.dash != looks["proxy-anchor"].style.dash
    assert (looks["drml-pa"].filled, looks["proxy-anchor"].filled, looks["contrastive"].filled) == (True, False, True)


def test_running_times_are_bars_in_groups():
    result = reproduction_of("dro/runtime", "in-shop", ["seconds per step"])
    (figure,) = draw(result).values()
    assert len(figure.axes[0].patches) == len(result.plan.rows) == 35
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["80", "160", "320", "480", "640"]
    assert figure.axes[0].get_xlabel() == "batch size"
    assert len({patch.get_hatch() for patch in figure.axes[0].patches}) == 7  # nothing depends on color


def test_an_axis_shows_what_was_run_below_what_the_paper_has(tmp_path):
    small = SmallScale(1, feature_file(tmp_path))
    plan = plan_table(load_table("dro/imbalance-512"), PlanOptions(small=small))
    ours = {row.name: {"recall@1": {0: 0.5}} for row in plan.rows}
    (figure,) = draw(Reproduction(plan, "in-shop", ["recall@1"], ours)).values()
    (axes,) = figure.axes
    sizes = [plan.settings["in-shop"][f"semihard@{size}"]["sampler"]["batch_size"] for size in (80, 640)]
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert (ticks[0], ticks[-1]) == (f"80\n{sizes[0]}", f"640\n{sizes[1]}")
    assert axes.get_xlabel() == (
        "batch size (more negatives per positive to the right)\nsecond line: what was run here"
    )


@pytest.mark.parametrize("name", list_tables())
def test_every_axis_has_a_name_that_readers_know(name):
    table = load_table(name)
    assert (table.axis is None) == (not table.vary)
    assert table.axis is None or ("." not in table.axis and "_" not in table.axis)


def test_recall_is_drawn_against_the_decay_of_the_spectrum(tmp_path):
    result = reproduction_of("revisiting/figure10", "cub", ["recall@1", "rho@2"])
    paths = {}
    for row in result.plan.rows:
        np.savez(tmp_path / f"{row.name}.npz", k=np.ones(1))
        paths[row.name] = str(tmp_path / f"{row.name}.npz")
    figures = draw(Reproduction(result.plan, "cub", result.columns, result.ours, arrays=paths))
    (axes,) = figures["rho@2 against recall@1"].axes
    assert len(axes.containers) == len(result.plan.rows)
    x, y = (values[0] for values in axes.containers[4][0].get_data())
    assert (x, y) == pytest.approx((0.05, 5.0))  # rho is no share


def test_curves_of_all_rows_are_drawn_over_pairs_and_queries(tmp_path):
    plan = plan_of("precision-at-k/curves")
    names = ("pair_recall", "pair_precision", "query_recall", "query_precision")
    names += ("false_positives", "true_positives", "far", "tar")
    np.savez(tmp_path / "c.npz", **{name: np.linspace(0, 1, 5000) for name in names})
    arrays = {row.name: str(tmp_path / "c.npz") for row in plan.rows}
    figures = draw(Reproduction(plan, "cars", ["precision@1"], {}, arrays=arrays))
    assert [*figures] == [
        "precision-recall, all pairs",
        "precision-recall, by query",
        "roc, all pairs",
        "roc, by query",
    ]
    for figure in figures.values():
        assert legend_texts(figure) == [row.label for row in plan.rows]
        assert len(figure.axes[0].lines[0].get_xdata()) == 2000


def test_metrics_along_training_say_which_classes_they_are_of(tmp_path):
    plan = plan_of("precision-at-k/training")
    values = {"steps": np.array([0, 5]), "split": np.array("validation"), "precision@1": np.array([0.25, 0.5])}
    np.savez(tmp_path / "c.npz", **values)
    arrays = {"lifted": str(tmp_path / "c.npz")}
    (figure,) = draw(Reproduction(plan, "sop", ["precision@1"], {}, arrays=arrays)).values()
    assert figure.axes[0].lines[0].get_ydata().tolist() == [25.0, 50.0]
    assert figure.axes[0].get_ylabel() == "precision@1, %, validation classes"


def test_methods_choose_lines_rows_or_labels():
    result = reproduction_of("dro/imbalance-512", "in-shop", ["recall@1"])
    (figure,) = draw(result, ["semihard", "DRO-KL_M"]).values()
    assert legend_texts(figure) == ["SH", "DRO-KL_M", "published"]
    with pytest.raises(ValueError, match=r"there is no method 'semihrd' .did you mean 'semihard'"):
        draw(result, ["semihrd"])


def test_toys_show_points_embeddings_and_spectra(tmp_path):
    plan = plan_of("revisiting/toy-diagonal")
    picture = toy.picture_toy("plain")
    path = tmp_path / "toy.npz"
    write_toy_arrays(picture, path)
    result = Reproduction(plan, "toy", ["recall@1"], {}, arrays={row.name: str(path) for row in plan.rows})
    (figure,) = draw(result).values()
    assert len(figure.axes) == len(plan.rows) + 2
    drawn = np.concatenate([points.get_offsets() for points in figure.axes[1].collections])
    expected = np.concatenate([picture.train.numpy(), picture.test.numpy()])
    assert np.allclose(np.sort(drawn, axis=0), np.sort(expected, axis=0), atol=1e-6)


def test_a_map_shows_framed_pictures_and_magnifies_dense_regions(tmp_path):
    draws = np.random.default_rng(0)
    plane, labels = draws.normal(size=(60, 2)), np.repeat(np.arange(6), 10)
    plane[labels == 2] = plane[labels == 2] * 0.01 + 3.0
    zooms = find_dense_regions(plane, labels)
    assert ((zooms[0, :2] + zooms[0, 2:]) / 2) == pytest.approx([3.0, 3.0], abs=0.05)
    arrays = {"plane": plane, "labels": labels, "pictures": np.zeros((4, 8, 8, 3), np.uint8), "zooms": zooms}
    np.savez(tmp_path / "map.npz", picture_items=np.array([0, 1, 20, 21]), **arrays)
    plan = plan_of("drml/figure1")
    result = Reproduction(plan, "cub", ["recall@1"], {}, arrays={"drml-mdw": str(tmp_path / "map.npz")})
    (figure,) = draw(result).values()
    assert [len(axes.artists) for axes in figure.axes[:2]] == [4, 2]


def test_thinning_keeps_one_item_of_each_cell():
    points = np.random.default_rng(0).uniform(size=(500, 2))
    chosen = thin_out(points, 5)
    low, high = points.min(axis=0), points.max(axis=0)
    cells = np.minimum(((points[chosen] - low) / (high - low) * 5).astype(int), 4)
    assert len(chosen) == len(np.unique(cells, axis=0)) == 25


def test_no_seed_gives_no_interval():
    assert np.isnan(summarize({}, "recall@1")).all()
    mean, half_width = summarize({0: 0.5}, "recall@1")
    assert mean == 50.0
    assert np.isnan(half_width)


def test_the_page_holds_figures_and_numbers_and_loads_nothing(tmp_path):
    result = reproduction_of("dro/table3", "in-shop", ["recall@1"])
    page, *figures = write_reproduction(result, tmp_path, ["dro-kl-margin", "fashion-net"])
    text = page.read_text()
    assert sorted(path.name for path in figures) == ["recall-at-1.png", "recall-at-1.svg"]
    assert text.count("<img") == 1
    assert not re.search(r"https?://|<script", text)
    assert "FashionNet (quoted from Liu et al. 2016)" in text
    assert "90.8" in text  # published
    for caveat in result.plan.table.caveats:
        assert caveat.split(":")[0].split("'")[0] in text
