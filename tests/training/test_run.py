"""`Run.embed` takes what people have at hand."""

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.training import Run
from tests.cli.runs import feature_rows, feature_run, glyph_files, image_run


def test_a_run_on_images_embeds_paths_pillow_images_arrays_and_torch_datasets():
    run = Run.open(image_run())
    paths = sorted((glyph_files() / "test").rglob("*.png"))[:3]
    expected = torch.cat([run.embed(path) for path in paths])
    assert expected.shape == (3, 8)
    images = [Image.open(path) for path in paths]
    torch_dataset = torch.utils.data.StackDataset([np.asarray(image) for image in images], [0, 1, 2])
    for things in (paths, [*map(str, paths)], images, np.stack([*map(np.asarray, images)]), torch_dataset):
        assert torch.allclose(run.embed(things), expected, atol=1e-6)


def test_a_run_on_features_embeds_rows_and_names_the_width_it_needs():
    run = Run.open(feature_run())
    rows = feature_rows()[0][:4, :12]
    assert run.embed(rows).shape == (4, 4)
    assert torch.allclose(run.embed(rows[0].tolist()), run.embed(rows)[:1], atol=1e-6)
    with pytest.raises(ValueError, match=r"takes features of shape \(B, 12\); each item of the list has 11"):
        run.embed(rows[:, :11])
    with pytest.raises(ValueError, match="embeds features, and cannot read the path"):
        run.embed("x.png")


def test_a_run_on_images_refuses_features_with_a_message():
    run = Run.open(image_run())
    with pytest.raises(ValueError, match="embeds images, which are uint8"):
        run.embed(np.zeros((2, 12)))
    with pytest.raises(ValueError, match=r"embeds images, but .* holds features"):
        run.embed(Run.open(feature_run()).data("test"))
