"""Figures and tables as files: all of them, in all formats."""

import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
from PIL import Image

from kinfold.report import write_figures
from kinfold.report.figures import style as drawing


def test_every_figure_is_written_in_both_formats_and_every_table_in_both(content, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "DPI", 40)  # two hundred take long
    before = dict(matplotlib.rcParams)
    written = write_figures(content, tmp_path / "new" / "folder")
    assert dict(matplotlib.rcParams) == before
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(written)
    names = {suffix: {path.stem for path in written if path.suffix == suffix} for suffix in (".png", ".svg", ".md")}
    assert names[".png"] == names[".svg"]
    kinds = ["training-loss", "training-validation", "map", "confused", "similarities", "roc", "precision-recall"]
    kinds += [
        "recall-at-k",
        "spectrum-whole",
        "spectrum-classes",
        "pair-weights",
        "rho-at-1",
        "uniformity",
        "alignment",
    ]
    for kind in kinds:
        assert any(name.startswith(kind) for name in names[".png"]), kind
    assert names[".md"] == {path.stem for path in written if path.suffix == ".tex"}
    for path in written:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert np.asarray(picture.convert("L")).std() > 1
