"""Cars-196: photos of 196 models of cars (Krause et al., 2013); the first 98 classes train, the others test."""

from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.class_folders import list_class_folders, parse_number
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.items import Array, ImageFiles

SOURCE = DatasetSource(
    name="cars",
    home="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (or a mirror of it)",
    archives="car_ims.tgz and cars_annos.mat",
    tree="""\
  cars_annos.mat
  car_ims/000001.jpg ...
or
  devkit/cars_meta.mat  devkit/cars_train_annos.mat  devkit/cars_test_annos_withlabels.mat
  cars_train/00001.jpg ...  cars_test/00001.jpg ...
or
  AM General Hummer SUV 2000/*.jpg ...  (and 195 more folders, or these inside of train/ and test/)""",
)
COUNTS = {"train": (8054, 98), "test": (8131, 98)}
TRAIN_CLASSES = 98


def cars(root: Path | str, boxes: bool = False, check: bool = True) -> Dataset:
    """Read Cars-196: classes 1-98 train (8,054 photos), classes 99-196 test (8,131).

    Three layouts are read: `cars_annos.mat` with all photos in `car_ims`; `cars_train`, `cars_test` and the files of
    the development kit; and one folder for each of the 196 models, with or without folders train and test around them.
    Splits for classification are not used.

    Args:
        root: Folder that holds one of these, or a folder that holds it as `cars`.
        boxes: Crop every photo to its car; class folders have no boxes.
        check: Compare the counts with those of the papers, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    for folder in (Path(root), Path(root) / "cars"):
        if (folder / "cars_train").is_dir() and (folder / "cars_test").is_dir():
            dataset = _read_devkit(folder, boxes)
            break
        if folder.is_dir() and not (folder / "car_ims").exists():
            classes = list_class_folders(folder)
            if len(classes) > 1 and not set(classes) & {"cars", "cars_train", "cars_test", "devkit"}:
                dataset = _read_class_folders(folder, classes, boxes)
                break
    else:
        folder = SOURCE.find_folder(root, "cars", ["cars_annos.mat", "car_ims"])
        rows = _read_annotations(folder / "cars_annos.mat", "relative_im_path")
        names = _read_class_names(folder / "cars_annos.mat")
        paths = [str(entry.item()) for entry in rows["relative_im_path"]]
        dataset = _create(folder, paths, rows, names, boxes, "cars_annos.mat")
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset


def _read_devkit(folder: Path, boxes: bool) -> Dataset:
    """Photos in cars_train and cars_test, labels in the files of the development kit."""
    kit = next((path for path in (folder / "devkit", folder) if (path / "cars_meta.mat").is_file()), None)
    if kit is None:
        raise ValueError(f"cars: {folder} has cars_train and cars_test and no devkit/cars_meta.mat: add car_devkit.tgz")
    tests = [path / "cars_test_annos_withlabels.mat" for path in (kit, folder)]
    test = next((path for path in tests if path.is_file()), None)
    if test is None:
        raise ValueError(
            f"cars: the labels of {folder / 'cars_test'} are missing: put cars_test_annos_withlabels.mat into {kit} "
            "(cars_test_annos.mat has boxes and no labels)"
        )
    names = _read_class_names(kit / "cars_meta.mat")
    parts = [(part, _read_annotations(path, "fname")) for part, path in (("train", _find_train(kit)), ("test", test))]
    rows = np.concatenate([each for _, each in parts])
    paths = [f"cars_{part}/{entry.item()}" for part, each in parts for entry in each["fname"]]
    return _create(folder, paths, rows, names, boxes, "cars_train_annos.mat and cars_test_annos_withlabels.mat")


def _find_train(kit: Path) -> Path:
    path = kit / "cars_train_annos.mat"
    if not path.is_file():
        raise ValueError(f"cars: {kit} has no cars_train_annos.mat: unpack car_devkit.tgz again")
    return path


def _read_class_folders(folder: Path, classes: dict[str, list[str]], boxes: bool) -> Dataset:
    """A folder for each model; their alphabetical order is the official one, unless they start with numbers."""
    if boxes:
        raise ValueError(f"cars: {folder} holds class folders, which have no boxes; use boxes=False")
    numbers = {name: parse_number(name) for name in classes}
    if len({*numbers.values()} - {None}) < len(classes):
        numbers = {name: number for number, name in enumerate(classes, start=1)}
    listed = [(numbers[name] or 0, name, path) for name, paths in classes.items() for path in paths]
    return create_dataset(
        "cars",
        ImageFiles(folder, [path for _, _, path in listed], source="class folders"),
        labels=[name for _, name, _ in listed],
        split=["train" if number <= TRAIN_CLASSES else "test" for number, _, _ in listed],
        classes=sorted(classes, key=lambda name: numbers[name] or 0),
    )


def _create(folder: Path, paths: list[str], rows: Array, names: list[str], boxes: bool, source: str) -> Dataset:
    """Dataset from annotations."""
    numbers = [int(entry.item()) for entry in rows["class"]]
    outside = next((number for number in numbers if not 1 <= number <= len(names)), None)
    if outside is not None:
        raise ValueError(f"cars: {source} has the class {outside} but names 1..{len(names)}")
    box_array = np.array([[entry.item() for entry in rows[corner]] for corner in _CORNERS], dtype=np.int64).T
    box_array[:, :2] -= 1  # MATLAB counts pixels from 1, both ends included
    return create_dataset(
        "cars",
        ImageFiles(folder, paths, box_array if boxes else None, source=source),
        labels=[_name_class(names, number) for number in numbers],
        split=["train" if number <= TRAIN_CLASSES else "test" for number in numbers],
        classes=[_name_class(names, number) for number in range(1, len(names) + 1)],
    )


_CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def _read_class_names(path: Path) -> list[str]:
    content = _read_mat(path)
    if "class_names" not in content:
        raise ValueError(f"cars: {path} has no class_names")
    return [str(entry.item()) for entry in content["class_names"].reshape(-1)]


def _read_annotations(path: Path, image: str) -> Array:
    content = _read_mat(path)
    if "annotations" not in content:
        raise ValueError(f"cars: {path} has no annotations")
    rows: Array = content["annotations"].reshape(-1)
    fields = {image, "class", *_CORNERS}
    if not fields <= set(rows.dtype.names or ()):
        raise ValueError(f"cars: annotations in {path.name} must have the fields {', '.join(sorted(fields))}")
    return rows[[*_CORNERS, "class", image]]


def _name_class(names: list[str], number: int) -> str:
    # the number shows the official order, and distinguishes two models with the same name
    return f"{number:03d}.{names[number - 1]}"


def _read_mat(path: Path) -> dict[str, Array]:
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(str(path))
    except Exception as error:  # scipy raises many kinds for a cut or foreign file
        raise ValueError(f"cars: {path} is not a readable MATLAB file ({error}); fetch it again") from None
    return {key: value for key, value in content.items() if isinstance(value, np.ndarray)}
