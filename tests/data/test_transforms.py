"""Sizes, ranges and draws of the transforms, and the numbers of the normalizations."""

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.data import (
    BN_INCEPTION,
    EFFICIENTNET_LITE,
    IMAGENET,
    CenterCrop,
    ColorJitter,
    Normalize,
    RandomCrop,
    RandomFlip,
    RandomGray,
    RandomResizedCrop,
    Resize,
    Warp,
    create_pipeline,
)
from kinfold.data.normalize import STUDY_BN_INCEPTION
from kinfold.data.pipelines import PIPELINES
from kinfold.seeding import derive_generator


def noise(width=40, height=30, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_resize_sets_the_short_side():
    assert Resize(15)(noise(40, 30), generator()).size == (20, 15)
    assert Resize(15)(noise(30, 41), generator()).size == (15, 20)
    assert Resize(30)(noise(40, 30), generator()).size == (40, 30)
    assert Warp(16)(noise(), generator()).size == (16, 16)


def test_center_crop_takes_the_middle_and_pads_small_images():
    pixels = np.arange(25, dtype=np.uint8).reshape(5, 5)
    assert np.asarray(CenterCrop(3)(Image.fromarray(pixels), generator())).tolist() == pixels[1:4, 1:4].tolist()
    padded = np.asarray(CenterCrop(7)(Image.fromarray(pixels), generator()))
    assert padded[1:6, 1:6].tolist() == pixels.tolist()
    assert padded[0].sum() == padded[:, 0].sum() == 0


def test_random_crop_reaches_every_offset():
    pixels = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4))
    corners = {RandomCrop(2)(pixels, generator(seed)).getpixel((0, 0)) for seed in range(200)}
    assert corners == {row * 4 + column for row in range(3) for column in range(3)}
    assert RandomCrop(6)(pixels, generator()).size == (6, 6)


def test_random_resized_crop_stays_in_its_ranges():
    crop = RandomResizedCrop(8, scale=(0.16, 0.5), ratio=(0.75, 1.33))
    width, height = 400, 300
    boxes = [crop.draw_box(width, height, generator(seed)) for seed in range(300)]
    for left, upper, right, lower in boxes:
        assert 0 <= left < right <= width
        assert 0 <= upper < lower <= height
        assert 0.155 < (right - left) * (lower - upper) / (width * height) < 0.505
        assert 0.74 < (right - left) / (lower - upper) < 1.35
    # anywhere in the image, in both directions
    offsets = np.array(
        [[left / (width - right + left), upper / (height - lower + upper)] for left, upper, right, lower in boxes]
    )
    assert (offsets.min(axis=0) < 0.05).all()
    assert (offsets.max(axis=0) > 0.95).all()
    assert crop(noise(), generator()).size == (8, 8)


def test_random_resized_crop_falls_back_to_the_middle_of_a_narrow_image():
    crop = RandomResizedCrop(8, scale=(1, 1))
    assert crop.draw_box(400, 100, generator()) == (133, 0, 266, 100)
    assert crop.draw_box(100, 400, generator()) == (0, 133, 100, 266)


def test_flips_happen_as_often_as_asked():
    image = noise()
    flipped = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    draws = [RandomFlip(0.25)(image, generator(seed)).tobytes() == flipped.tobytes() for seed in range(400)]
    assert 0.18 < np.mean(draws) < 0.32
    assert RandomFlip(0.0)(image, generator()).tobytes() == image.tobytes()
    assert RandomFlip(1.0)(image, generator()).tobytes() == flipped.tobytes()


def test_gray_makes_all_channels_equal():
    pixels = np.asarray(RandomGray(1.0)(noise(), generator()))
    assert (pixels[..., 0] == pixels[..., 1]).all()
    assert RandomGray(0.0)(noise(), generator()).tobytes() == noise().tobytes()


def test_color_jitter_changes_colors_and_keeps_size():
    jitter = ColorJitter(0.2, 0.2, 0.2, 0.2)
    results = {jitter(noise(), generator(seed)).tobytes() for seed in range(5)}
    assert len(results) == 5
    assert ColorJitter()(noise(), generator()).tobytes() == noise().tobytes()
    assert jitter(noise(mode="L"), generator()).mode == "L"
    bright = np.asarray(ColorJitter(brightness=0.5)(Image.new("RGB", (2, 2), (100, 100, 100)), generator()))
    assert 50 <= bright.min() <= bright.max() <= 150
    with pytest.raises(ValueError, match="hue must lie in"):
        ColorJitter(hue=0.6)
    with pytest.raises(ValueError, match="must not be negative"):
        ColorJitter(contrast=-1)


def test_normalizations_give_the_numbers_of_the_papers():
    batch = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8, generator=generator())
    x = batch.double()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (x / 255 - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(IMAGENET(batch), expected.float())
    caffe = x.flip(1) - torch.tensor([104.0, 117.0, 128.0])[:, None, None]
    assert torch.equal(BN_INCEPTION(batch), caffe.float())
    torch.testing.assert_close(STUDY_BN_INCEPTION(batch), caffe.float(), rtol=0.01, atol=0.8)
    torch.testing.assert_close(EFFICIENTNET_LITE(batch), ((x - 127) / 128).float())
    assert batch.dtype == torch.uint8


def test_invalid_batches_and_numbers_are_errors():
    with pytest.raises(ValueError, match=r"uint8 images of shape \(B, 3, H, W\)"):
        IMAGENET(torch.zeros(1, 3, 2, 2))
    with pytest.raises(ValueError, match=r"uint8 images of shape \(B, 3, H, W\)"):
        IMAGENET(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="std > 0"):
        Normalize((0.5,), (0.0,))


SIZES = {
    "study-big": 256,
    "study-googlenet": 227,
    "bn-inception": 227,
    "warp": 227,
    "small-grey": 28,
    "small-color": 28,
}
DRAWS_NOTHING = (
    "small-color",
    "small-grey",
)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_give_one_size_and_repeat_with_the_generator(name):
    chosen, image = create_pipeline(name), noise(300, 200)
    size = SIZES.get(name, 224)
    assert chosen.test(image, generator()).size == (size, size)
    first, again = chosen.train(image, generator(3)), chosen.train(image, generator(3))
    assert first.size == (size, size)
    assert first.tobytes() == again.tobytes()
    drawn = {chosen.train(image, generator(seed)).tobytes() for seed in range(4)}
    assert len(drawn) == 1 if name in DRAWS_NOTHING else len(drawn) > 1
    assert chosen.test(image, generator(1)).tobytes() == chosen.test(image, generator(2)).tobytes()


def test_an_unknown_pipeline_is_an_error_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean 'study-red'"):
        create_pipeline("study-redd")


def test_derived_generators_differ_in_every_number():
    draws = {
        float(torch.rand((), generator=derive_generator(seed, epoch, item)))
        for seed in range(4)
        for epoch in range(10)
        for item in range(50)
    }
    assert len(draws) == 2000
