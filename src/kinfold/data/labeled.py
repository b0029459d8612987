"""Datasets with classes, from whatever holds images or features in Python, or from a path."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from kinfold import registry
from kinfold.data.cells import Cells, channels_last, get_input, to_row
from kinfold.data.columns import Columns
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.feature_file import USUAL_NAMES, build_feature_dataset
from kinfold.data.image_table import COLUMNS, build_image_dataset, is_image_table
from kinfold.data.items import Array, Rows
from kinfold.data.memory_tables import is_memory_table, read_memory_table
from kinfold.files.paths import describe_missing

_META = ("label", "split", "role", "coarse")
HUB_FILES = ("dataset_info.json", "dataset_dict.json")


def convert(
    data: Any,
    labels: Any = None,
    *,
    columns: Mapping[str, str] | None = None,
    images: Path | str | None = None,
    split: str | Sequence[str] | Array = "train",
) -> Dataset:
    """Make a dataset from images or features with their classes. Images are read one at a time, when they are used.

    Args:
        data: One of

            - a `Dataset`, which is returned unchanged;
            - the path of a folder, a table (.csv, .parquet), a feature file (.npz, .npy) or a .tar file;
            - a data frame of pandas or polars, a table of pyarrow, or a dataset of Hugging Face, with a row for each
              image (paths or bytes) or for each row of features;
            - features (N, d) or uint8 images (N, H, W), (N, H, W, 3) as an array or tensor;
            - a list of images: paths, bytes of files, Pillow images, uint8 arrays; or a list of rows of features;
            - a torch dataset with a length and positions, whose samples are such images or rows, alone or as
              (image, label).
        labels: The class of each item: strings or integers, (N,). If left out, a column, the attribute `targets` of a
            torch dataset, or the second entry of its samples.
        columns: Of a table: columns with another name, as in {"image": "photo", "label": "species"}.
        images: Of a table: folder that its paths are relative to; the current one, or the folder of a file, if left
            out.
        split: "train", "validation" or "test" for all items or for each, where a table does not say it.

    Returns:
        The dataset.

    Raises:
        ValueError: The data is of another kind, or has no classes; the message says what to give instead.

    Examples:
        >>> convert(np.zeros((3, 8)), ["wren", "robin", "wren"])
        <Dataset 'rows of features': 3 items (3 train), 2 classes ('robin', 'wren')>
    """
    if isinstance(data, Dataset):
        _refuse(labels=labels, columns=columns, images=images)
        return data
    if isinstance(data, str | Path):
        return _load(Path(data), labels, columns, images, split)
    if is_memory_table(data):
        return _convert_table(data, labels, columns, images, split)
    _refuse(columns=columns, images=images)
    return _convert_sequence(data, labels, split)


def find_reader(path: Path) -> str:
    """Return the registered dataset that reads a file or folder.

    Raises:
        ValueError: There is nothing at the path, or no reader for it.
    """
    if path.is_dir():
        if any((path / name).is_file() for name in HUB_FILES):
            return "hugging-face"
        has_shards = next((each for each in path.glob("*.tar")), next(iter(path.glob("*/*.tar")), None)) is not None
        return "webdataset" if has_shards else "folder"
    suffix = path.suffix.lower()
    readers = {".csv": "table", ".npz": "features", ".npy": "features", ".tar": "webdataset"}
    if suffix in (".parquet", ".pq") and path.is_file():
        return "table" if is_image_table(path) else "features"
    if not path.exists() and "{" not in path.name and "*" not in path.name:
        raise ValueError(describe_missing(path, "file or folder"))
    if suffix not in readers:
        raise ValueError(
            f"{path}: no reader for {suffix or 'a file without an extension'}; there are readers for folders, .csv, "
            ".parquet, .npz, .npy and .tar"
        )
    return readers[suffix]


def _load(path: Path, labels: Any, columns: Mapping[str, str] | None, images: Any, split: Any) -> Dataset:
    name = find_reader(path)
    options: dict[str, Any] = {"labels": labels, "columns": columns, "images": images}
    options = {key: value for key, value in options.items() if value is not None}
    if not isinstance(split, str):
        raise ValueError(f"{path} is a file or folder: give one split for all of its items, or a column of splits")
    if split != "train":
        options["split"] = split
    dataset = registry.create("datasets", name, root=path, **options)
    assert isinstance(dataset, Dataset)
    return dataset


def _convert_table(data: Any, labels: Any, columns: Mapping[str, str] | None, images: Any, split: Any) -> Dataset:
    table = read_memory_table(data)
    content, columns = table.columns, dict(columns or {})
    if not len(content.rows):
        raise ValueError(f"{content.path} is empty")
    if labels is not None:
        if "label" in columns:
            raise ValueError("labels= and columns={'label': ...} both give the classes: leave one out")
        labels = _to_labels(labels, len(content.rows))
    elif "label" not in columns:
        usual = next((name for name in USUAL_NAMES["label"] if name in content.names), None)
        columns |= {"label": name} if (name := usual or table.label) else {}
    if len(content.images) == 1 and not {"path", "image"} & {*columns, *content.names}:
        columns["image"] = next(iter(content.images))
    splits = table.split if table.split is not None else split
    one_split = splits if isinstance(splits, str) else "train"
    if _holds_images(content, columns):
        dataset = build_image_dataset(content, columns, images, one_split, labels)
    else:
        _refuse(images=images)
        embeddings = None if _has_embeddings(content, columns) else _join_numbers(content, columns)
        dataset = build_feature_dataset(content.path, content, embeddings, columns, one_split, labels)
    return dataset if isinstance(splits, str) else _assign(dataset, splits)


def _holds_images(content: Columns, columns: Mapping[str, str]) -> bool:
    return bool(content.images) or any(key in columns or key in content.names for key in ("path", "image"))


def _has_embeddings(content: Columns, columns: Mapping[str, str]) -> bool:
    return "embedding" in columns or any(name in content.names for name in USUAL_NAMES["embedding"])


def _join_numbers(content: Columns, columns: Mapping[str, str]) -> Array:
    """Return all columns of numbers side by side, (N, d), without label, split, role and coarse class."""
    meta = {columns.get(key, key) for key in _META}
    names = [name for name in content.values if name not in meta and content.values[name].ndim == 1]
    numbers = [name for name in names if content.values[name].dtype.kind in "fiu"]
    if not numbers or len(numbers) < len(names):
        known = ", ".join(dict.fromkeys((*COLUMNS, "embedding")))
        raise ValueError(
            f"{content.path} has the columns {', '.join(content.names)}, and none is known to hold images or features. "
            f"Say which: columns={{'path': ...}}, {{'image': ...}} or {{'embedding': ...}} (known keys: {known})"
        )
    return np.column_stack([content.values[name] for name in numbers])


def _convert_sequence(data: Any, labels: Any, split: Any) -> Dataset:
    if hasattr(data, "to_numpy"):  # a column of a data frame
        data = data.to_numpy()
    if isinstance(data, Tensor):
        data = channels_last(data.detach().cpu())
    if isinstance(data, str | bytes | Mapping) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise ValueError(
            f"cannot make a dataset of {type(data).__name__}: give a table, a list or array of images or features with "
            "labels=, a torch dataset with a length and positions, or the path of a file or folder. A stream, such as "
            "an IterableDataset, has no positions: give its files, as in kinfold.data.convert('shards/train.tar')"
        )
    if not len(data):
        raise ValueError("there are no items: the list is empty")
    labels = _find_labels(data) if labels is None else _to_labels(labels, len(data))
    items, name = _create_items(data)
    splits = np.full(len(data), split) if isinstance(split, str) else _to_labels(split, len(data), "splits")
    return create_dataset(name, items, labels, splits)


def _create_items(data: Any) -> tuple[Rows | Cells, str]:
    """Items and their name: rows where the first item is a row of numbers, else images."""
    if isinstance(data, np.ndarray) and data.dtype != object:
        if data.ndim == 2 and data.dtype.kind in "fiu":
            return Rows(data), "rows of features"
        if data.dtype != np.uint8 or data.ndim not in (3, 4):
            raise ValueError(
                f"features are numbers (N, d), and images uint8 (N, H, W) or (N, H, W, 3) with values in 0..255; got "
                f"{data.dtype} {data.shape}. Leave normalization out: the pipeline of the run does it"
            )
        return Rows(data), "images"
    first = get_input(data[0])
    first = first.detach().cpu().numpy() if isinstance(first, Tensor) else first
    is_list = isinstance(first, list | tuple) and bool(first) and isinstance(first[0], int | float)
    if is_list or (isinstance(first, np.ndarray) and first.ndim == 1):
        rows = [to_row(get_input(data[index]), index) for index in range(len(data))]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("all rows of features must have the same length")
        return Rows(np.stack(rows)), "rows of features"
    return Cells(data, "image", source=_name(data)), _name(data)


def _name(data: Any) -> str:
    return "the list" if isinstance(data, list | tuple | np.ndarray) else type(data).__name__


def _find_labels(data: Any) -> Array:
    """Labels of a torch dataset or of a list of pairs; names instead of numbers where it has `classes`."""
    inner, positions = data, None
    while type(inner).__name__ == "Subset" and hasattr(inner, "indices"):
        indices = np.asarray(inner.indices)
        positions = indices if positions is None else indices[positions]
        inner = inner.dataset
    stored = getattr(inner, "targets", getattr(inner, "labels", None))
    if stored is not None and not callable(stored) and len(stored) == len(inner):
        labels = _to_labels(stored, len(inner))
        labels = labels if positions is None else labels[positions]
    else:
        labels = _to_labels([_get_label(data[index], index) for index in range(len(data))], len(data))
    names = getattr(inner, "classes", None)
    is_named = isinstance(names, list | tuple) and len({*names}) == len(names)
    if not is_named or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(names or ()):
        return labels
    return np.array([*map(str, names or ())])[labels]


def _get_label(sample: Any, position: int) -> Any:
    if isinstance(sample, tuple) and len(sample) > 1:
        label = sample[1]
    elif isinstance(sample, Mapping) and "label" in sample:
        label = sample["label"]
    else:
        raise ValueError(
            "give the class of each item: kinfold.data.convert(items, labels); samples may also be (image, label), or "
            f"{{'image': ..., 'label': ...}}. Item {position} is of type {type(sample).__name__}"
        )
    return label.item() if isinstance(label, Tensor | np.generic) else label


def _to_labels(labels: Any, count: int, what: str = "labels") -> Array:
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    if not isinstance(labels, Iterable) or isinstance(labels, str | bytes):
        raise ValueError(f"{what} must be a list with one entry for each item, got {type(labels).__name__}")
    array = np.asarray(labels if hasattr(labels, "__array__") else [*labels])
    if array.dtype == object:
        gone = [index for index, label in enumerate(array.tolist()) if label is None or label != label]
        if gone:
            raise ValueError(f"item {gone[0]} has no label ({len(gone)} such): leave such items out")
        array = np.array([*map(str, array.tolist())])
    if array.shape != (count,):
        raise ValueError(f"there are {count:,} items but {what} of shape {array.shape}")
    return array


def _assign(dataset: Dataset, splits: Any) -> Dataset:
    return replace(dataset, split=_to_labels(splits, len(dataset), "splits").astype(str))


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}= does not belong to this kind of data; leave it out")
