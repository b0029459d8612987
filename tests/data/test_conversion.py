"""What a trained run can embed beside a dataset of its own kind, and what is said about anything else."""

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.data import Batches, ImageError, Rows, create_dataset, to_dataset

from .trees import picture


class Pictures(torch.utils.data.Dataset):
    """A torch dataset of (image, label), as torchvision's are."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (2, 8, 12, 3), dtype=np.uint8)


def read(things):
    return next(iter(Batches(to_dataset(things, features=False)))).images.permute(0, 2, 3, 1).numpy()


def test_one_image_in_any_form_becomes_a_dataset_of_one_item(tmp_path, pixels):
    Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    image = Image.open(tmp_path / "a.png")
    for thing in (tmp_path / "a.png", str(tmp_path / "a.png"), image, pixels[0], torch.tensor(pixels[0]).movedim(2, 0)):
        assert np.array_equal(read(thing), pixels[:1])


def test_several_images_in_any_form_keep_their_order(tmp_path, pixels):
    for name, each in zip("ab", pixels, strict=True):
        Image.fromarray(each).save(tmp_path / f"{name}.png")
    paths = [tmp_path / "a.png", str(tmp_path / "b.png")]
    images = [Image.fromarray(each) for each in pixels]
    tensor = torch.tensor(pixels).movedim(3, 1)
    dictionaries = [{"image": image, "label": 0} for image in images]
    for things in (paths, images, [paths[0], images[1]], pixels, [*pixels], tensor, [*tensor], dictionaries):
        assert np.array_equal(read(things), pixels)
    for dataset in (Pictures(images), Pictures(tensor), Pictures(paths)):
        assert np.array_equal(read(dataset), pixels)


def test_gray_images_need_no_channels():
    pixels = np.arange(30, dtype=np.uint8).reshape(2, 3, 5)
    dataset = to_dataset(pixels, features=False)
    assert np.array_equal(next(iter(Batches(dataset, mode="L"))).images[:, 0].numpy(), pixels)
    assert len(to_dataset(pixels[0], features=False)) == 1


def test_rows_of_features_come_as_arrays_tensors_lists_and_torch_data_sets():
    rows = np.arange(6.0).reshape(2, 3)
    tensor = torch.tensor(rows)
    dataset = torch.utils.data.TensorDataset(tensor, torch.zeros(2))
    for things in (rows, tensor, rows.tolist(), [*rows], [*tensor], dataset):
        batch = next(iter(Batches(to_dataset(things, features=True))))
        assert batch.images.tolist() == rows.tolist()
    for thing in (rows[0], tensor[0], rows[0].tolist()):
        assert next(iter(Batches(to_dataset(thing, features=True)))).images.tolist() == rows[:1].tolist()


def test_a_dataset_is_used_unchanged_unless_it_is_of_the_other_kind():
    rows = create_dataset("rows", Rows(np.eye(2)), ["a", "b"], ["test"] * 2)
    assert to_dataset(rows, features=True) is rows
    with pytest.raises(ValueError, match="the run x embeds images, but rows holds features"):
        to_dataset(rows, features=False, taker="the run x")


@pytest.mark.parametrize(
    ("things", "message"),
    [
        (3, "embeds images, and cannot read int; give paths, Pillow images or uint8 arrays"),
        (None, "cannot read NoneType"),
        (iter([]), "cannot read list_iterator"),
        ({"a": 1}, "cannot read dict"),
        (torch.utils.data.DataLoader([1, 2]), "cannot read DataLoader"),
        ([], "nothing to embed"),
        (np.zeros((2, 3, 4, 3)), r"uint8 with values in 0..255, got float64"),
        (torch.zeros(3, 8, 8), r"uint8 with values in 0..255, got float32"),
        (np.zeros((1, 2, 3, 4, 5), dtype=np.uint8), "images are uint8 of shape"),
    ],
)
def test_an_error_explains_why_something_is_no_image(things, message):
    with pytest.raises(ValueError, match=message):
        to_dataset(things, features=False)


@pytest.mark.parametrize(
    ("things", "message"),
    [
        ([3], "item 0 is of type int; an image is a path, the bytes of a file, a Pillow"),
        (["photos.npz"], r"photos.npz is no image; read it with kinfold.data.load\('features'"),
        (["."], r". is a folder; read it with kinfold.data.load\('folder'"),
        (Pictures(torch.zeros(2, 3, 4, 4)), r"item 0 holds float32; .*leave conversions to floats, such as ToTensor"),
    ],
)
def test_an_item_that_is_no_image_is_named_by_its_position(things, message):
    with pytest.raises(ValueError, match=message):
        list(Batches(to_dataset(things, features=False)))


def test_a_missing_file_of_a_list_is_named_with_its_row(tmp_path):
    picture(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"the list row 2: .*gone.png is missing"):
        list(Batches(to_dataset([tmp_path / "a.png", tmp_path / "gone.png"], features=False)))


@pytest.mark.parametrize(
    ("things", "message"),
    [
        ("x.png", "embeds features, and cannot read"),
        (Image.new("L", (2, 2)), "embeds features, and cannot read Image"),
        (np.zeros((2, 2, 2)), r"numbers of shape \(N, d\), got float64 \(2, 2, 2\)"),
        ([[1.0, 2.0], [3.0]], "all rows must have the same length"),
        (np.array(["a"]), r"numbers of shape \(N, d\)"),
    ],
)
def test_an_error_explains_why_something_is_no_row_of_features(things, message):
    with pytest.raises(ValueError, match=message):
        to_dataset(things, features=True)


def test_an_iterable_data_set_is_refused_because_it_has_no_positions():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield Image.new("L", (2, 2))

    with pytest.raises(ValueError, match="Stream has no length; give a list"):
        to_dataset(Stream(), features=False)
