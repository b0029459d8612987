"""Figures of queries with their images."""

import numpy as np
from PIL import Image

from kinfold.report import collect_content
from kinfold.report.figures.files import draw_figures
from kinfold.report.figures.space_figures import SpriteSheets
from kinfold.report.figures.style import use_style
from tests.report.runs import image_run


def test_queries_are_drawn_from_the_sheets(tmp_path):
    run = image_run(tmp_path)
    content = collect_content(run.folder)
    tiles = SpriteSheets(content["thumbnails"])
    data = run.data("test")
    (space,) = content["spaces"]
    query = space["worst"][0]["query"]
    item = data.items.paths.tolist().index(query["text"])
    with Image.open(data.items[item].path) as picture:
        expected = np.asarray(picture.convert("L").resize((48, 48), Image.Resampling.BICUBIC), dtype=float)
    tile = np.asarray(Image.fromarray(tiles.get_tile(query["thumbnail"])).convert("L"), dtype=np.float64)
    assert np.corrcoef(tile.flatten(), expected.flatten())[0, 1] > 0.9
    with use_style():
        titles = [title for title, _ in draw_figures(content)]
    assert any(title.startswith("best queries") for title in titles)
    assert tiles.get_tile(-1) is None
