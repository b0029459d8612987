"""Pipelines at other sizes, with and without flips."""

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.data import CenterCrop, Compose, RandomFlip, RandomResizedCrop, Resize, create_pipeline
from kinfold.data.pipelines import PIPELINES, adjust_pipeline
from kinfold.data.transforms import BICUBIC


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("size", [32, 96, 256])
def test_every_pipeline_gives_images_of_any_size(name, size):
    pipeline = adjust_pipeline(create_pipeline(name), size)
    image = Image.new(pipeline.mode, (90, 60))
    generator = torch.Generator().manual_seed(0)
    assert pipeline.train(image, generator).size == (size, size)
    assert pipeline.test(image, generator).size == (size, size)
    assert pipeline.normalize == create_pipeline(name).normalize


def test_lengths_are_scaled_by_one_factor():
    pipeline = adjust_pipeline(create_pipeline("efficientnet-lite"), 112)
    assert pipeline.train == Compose((RandomResizedCrop(112, resample=BICUBIC), RandomFlip()))
    assert pipeline.test == Compose((Resize(128, BICUBIC), CenterCrop(112)))
    same = create_pipeline("study")
    assert adjust_pipeline(same, 224) == same
    assert adjust_pipeline(same) is same


def test_flips_are_added_and_left_out():
    image = Image.fromarray(np.arange(28 * 28, dtype=np.uint8).reshape(28, 28))
    generator = torch.Generator().manual_seed(0)
    flipped = adjust_pipeline(create_pipeline("small-grey"), flip=True)
    drawn = {flipped.train(image, generator).tobytes() for _ in range(20)}
    assert drawn == {image.tobytes(), image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).tobytes()}
    assert flipped.test(image, generator).tobytes() == image.tobytes()
    plain = adjust_pipeline(create_pipeline("study"), flip=False)
    assert plain.train == RandomResizedCrop(224)
    assert adjust_pipeline(create_pipeline("study"), flip=True) == create_pipeline("study")


def test_a_pipeline_without_sizes_says_so():
    with pytest.raises(ValueError, match=r"no step with a size.*leave data.size out"):
        adjust_pipeline(
            type(create_pipeline("study"))(RandomFlip(), RandomFlip(), create_pipeline("study").normalize), size=32
        )
