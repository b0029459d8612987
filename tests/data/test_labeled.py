"""Datasets from tables, lists, arrays, torch datasets and paths: one conversion, one dataset inside."""

import io

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from kinfold.data import Batches, Dataset, Rows, check_images, convert, to_dataset
from kinfold.data.fingerprint import compute_fingerprint

LABELS = ["wren", "wren", "robin", "robin"]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 12, 3), dtype=np.uint8)
FEATURES = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)


def encode(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def read(dataset: Dataset) -> np.ndarray:
    return next(iter(Batches(dataset))).images.permute(0, 2, 3, 1).numpy()


class Samples(torch.utils.data.Dataset):
    """A torch dataset that counts how often it is read."""

    def __init__(self, samples, targets=None, classes=None):
        self.samples, self.reads = samples, 0
        if targets is not None:
            self.targets, self.classes = targets, classes

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        self.reads += 1
        return self.samples[index]


class Noisy(Samples):
    """One that augments at random, as many do."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image ^ np.random.randint(0, 256, image.shape, dtype=np.uint8), label


def image_inputs(folder) -> dict:
    paths = []
    for index, pixels in enumerate(PIXELS):
        paths.append(str(folder / f"{index}.png"))
        Image.fromarray(pixels).save(paths[-1])
    pictures, contents = [Image.fromarray(pixels) for pixels in PIXELS], [encode(pixels) for pixels in PIXELS]
    structs = [{"bytes": content, "path": None} for content in contents]
    return {
        "array": (PIXELS, LABELS),
        "tensor": (torch.from_numpy(PIXELS).movedim(3, 1), LABELS),
        "Pillow images": (pictures, LABELS),
        "arrays": ([*PIXELS], np.array(LABELS)),
        "paths": (paths, LABELS),
        "bytes": (contents, LABELS),
        "pairs": ([*zip(pictures, LABELS, strict=True)],),
        "dictionaries": ([{"image": a, "label": b} for a, b in zip(contents, LABELS, strict=True)],),
        "torch dataset": (Samples([*zip(pictures, LABELS, strict=True)]),),
        "arrow bytes": (pyarrow.table({"image": contents, "label": LABELS}),),
        "arrow structs": (pyarrow.table({"photo": structs, "label": LABELS}),),
        "arrow paths": (pyarrow.table({"path": paths, "label": LABELS}),),
        "arrow, labels apart": (pyarrow.table({"path": paths}), LABELS),
    }


KINDS = [
    "array",
    "tensor",
    "Pillow images",
    "arrays",
    "paths",
    "bytes",
    "pairs",
    "dictionaries",
    "torch dataset",
    "arrow bytes",
    "arrow structs",
    "arrow paths",
    "arrow, labels apart",
]


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_every_kind_become_the_same_dataset(tmp_path, kind):
    dataset = convert(*image_inputs(tmp_path)[kind])
    assert dataset.classes == ("robin", "wren")
    assert dataset.labels.tolist() == [1, 1, 0, 0]
    assert np.array_equal(read(dataset), PIXELS)
    part = dataset.where(np.array([False, True, False, True]))
    assert np.array_equal(read(part), PIXELS[[1, 3]])
    assert set(dataset.split) == {"train"}
    assert not check_images(dataset).broken


def test_every_kind_is_tested(tmp_path):
    assert [*image_inputs(tmp_path)] == KINDS


@pytest.mark.parametrize(
    "data",
    [
        (FEATURES, LABELS),
        (torch.from_numpy(FEATURES), LABELS),
        ([*FEATURES], LABELS),
        (FEATURES.tolist(), LABELS),
        (Samples([*zip(FEATURES, LABELS, strict=True)]),),
        (Samples([*map(torch.from_numpy, FEATURES)]), LABELS),
        (pyarrow.table({"embedding": [*FEATURES], "label": LABELS}),),
        (pyarrow.table({**{f"f{i}": FEATURES[:, i] for i in range(5)}, "label": LABELS}),),
    ],
)
def test_features_of_every_kind_become_rows(data):
    dataset = convert(*data)
    assert isinstance(dataset.items, Rows)
    assert np.allclose(dataset.items.array(), FEATURES)
    assert dataset.labels.tolist() == [1, 1, 0, 0]


def test_a_table_may_have_other_names_splits_boxes_and_roles(tmp_path):
    for index, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
    table = pyarrow.table(
        {
            "file": [f"{index}.png" for index in range(4)],
            "species": LABELS,
            "split": ["train", "test", "train", "test"],
            "box": ["1 2 5 6", "", "", ""],
            "role": ["query", "gallery", "", ""],
        }
    )
    dataset = convert(table, columns={"path": "file", "label": "species"}, images=tmp_path)
    assert dataset.split.tolist() == ["train", "test", "train", "test"]
    assert dataset.role.tolist() == ["query", "gallery", "", ""]
    assert dataset.items[0].box == (1, 2, 5, 6)
    inside = pyarrow.table({"image": [encode(pixels) for pixels in PIXELS], "label": LABELS, "box": ["1 2 5 6"] * 4})
    assert np.array_equal(read(convert(inside)), PIXELS[:, 2:6, 1:5])


def test_splits_are_one_for_all_or_one_for_each():
    assert set(convert(FEATURES, LABELS, split="test").split) == {"test"}
    splits = ["train", "test", "train", "validation"]
    assert convert(FEATURES, LABELS, split=splits).split.tolist() == splits
    assert convert(pyarrow.table({"x": [*FEATURES], "y": LABELS}), split=splits).split.tolist() == splits


def test_names_of_classes_come_from_the_torch_dataset_and_through_subsets():
    data = Samples([*zip(PIXELS, [5, 5, 5, 5], strict=True)], [1, 1, 0, 0], ["robin", "wren"])
    dataset = convert(data)
    assert dataset.classes == ("robin", "wren")
    assert data.reads == 1  # targets are not read from the samples; one sample says what they are
    inner = torch.utils.data.Subset(torch.utils.data.Subset(data, [3, 1, 0]), [1, 0])
    assert [dataset.classes[label] for label in convert(inner).labels] == ["wren", "robin"]


def test_images_are_read_when_they_are_used():
    data = Samples([*zip(PIXELS, LABELS, strict=True)])
    dataset = convert(data, LABELS)
    before = data.reads
    dataset.where(np.array([True, False, True, True]))
    assert data.reads == before == 1
    assert np.array_equal(np.asarray(dataset.items[3]), PIXELS[3])
    assert data.reads == 2


def test_the_fingerprint_follows_labels_and_pixels():
    same = compute_fingerprint(convert([*PIXELS], LABELS))
    assert compute_fingerprint(convert([Image.fromarray(pixels) for pixels in PIXELS], LABELS)) == same
    assert compute_fingerprint(convert([*PIXELS], LABELS[::-1])) != same
    assert compute_fingerprint(convert([*(PIXELS + 1)], LABELS)) != same


def test_a_dataset_that_draws_at_random_is_refused():
    dataset = convert(Noisy([*zip(PIXELS, LABELS, strict=True)]))
    with pytest.raises(ValueError, match=r"Noisy: two readings of item 0 differ. Leave random transforms out"):
        compute_fingerprint(dataset)


def test_a_path_is_read_by_what_lies_there(tmp_path):
    for index, label in enumerate(LABELS):
        (tmp_path / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[index]).save(tmp_path / "photos" / label / f"{index}.png")
    assert convert(tmp_path / "photos").classes == ("robin", "wren")
    np.savez(tmp_path / "x.npz", embeddings=FEATURES, labels=LABELS)
    assert isinstance(convert(str(tmp_path / "x.npz"), split="test").items, Rows)
    pyarrow.parquet.write_table(pyarrow.table({"image": [encode(PIXELS[0])], "label": ["a"]}), tmp_path / "a.parquet")
    assert convert(tmp_path / "a.parquet").classes == ("a",)
    (tmp_path / "notes.md").write_text("")
    for path, message in (("none", "there is no file or folder"), ("notes.md", "no reader for .md")):
        with pytest.raises(ValueError, match=message):
            convert(tmp_path / path)


def test_a_table_without_classes_can_be_embedded():
    table = pyarrow.table({"image": [encode(pixels) for pixels in PIXELS]})
    assert np.array_equal(read(to_dataset(table, features=False)), PIXELS)
    rows = to_dataset(pyarrow.table({"embedding": [*FEATURES]}), features=True)
    assert rows.items[0].shape == (5,)
    with pytest.raises(ValueError, match="embeds features, but the table holds images"):
        to_dataset(table, features=True)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PIXELS[0][0][0],), {}, r"features are numbers \(N, d\)|give the class of each item"),
        (([*PIXELS],), {}, r"give the class of each item: kinfold.data.convert\(items, labels\)"),
        (([*PIXELS], LABELS[:3]), {}, r"there are 4 items but labels of shape \(3,\)"),
        ((PIXELS.astype(np.float32), LABELS), {}, "Leave normalization out"),
        (([], []), {}, "the list is empty"),
        (([[1.0, 2.0], [1.0]], ["a", "b"]), {}, "all rows of features must have the same length"),
        ((iter([1, 2]), [1, 2]), {}, "cannot make a dataset of list_iterator.*A stream"),
        (({"a": 1}, [1]), {}, "cannot make a dataset of dict"),
        (([*PIXELS], LABELS), {"columns": {"label": "x"}}, "columns= does not belong to this kind of data"),
        (([*PIXELS], ["a", None, "b", "b"]), {}, "item 1 has no label"),
        (([*PIXELS], "wren"), {}, "labels must be a list"),
        ((pyarrow.table({"text": ["a"], "label": ["b"]}),), {}, "none is known to hold images or features"),
        ((pyarrow.table({"path": ["a"]}),), {}, "has no column 'label'"),
        ((pyarrow.table({"path": ["a"], "label": [""]}),), {}, "row 1: label is empty"),
        ((pyarrow.table({"path": ["a"], "l": ["b"]}), ["b"]), {"columns": {"label": "l"}}, "both give the classes"),
    ],
)
def test_what_cannot_be_a_dataset_says_what_to_give(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        convert(*arguments, **options)
