"""Cars-196: photos of 196 models of cars (Krause et al., 2013); the first 98 classes train, the others test."""

from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.items import Array, ImageFiles

SOURCE = DatasetSource(
    name="cars",
    home="https://ai.stanford.edu/~jkrause/cars/car_dataset.html (or a mirror of it)",
    archives="car_ims.tgz and cars_annos.mat",
    tree="""\
  cars_annos.mat
  car_ims/000001.jpg ...""",
)
COUNTS = {"train": (8054, 98), "test": (8131, 98)}
TRAIN_CLASSES = 98


def cars(root: Path | str, boxes: bool = False, check: bool = True) -> Dataset:
    """Read Cars-196: classes 1-98 train (8,054 photos), classes 99-196 test (8,131).

    Reads `cars_annos.mat`, which lists all photos in `car_ims`; its classification split is not used.

    Args:
        root: Folder that holds cars_annos.mat and car_ims, or a folder that holds it as `cars`.
        boxes: Crop every photo to its car.
        check: Compare the counts with those of the papers, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    folder = SOURCE.find_folder(root, "cars", ["cars_annos.mat", "car_ims"])
    content = _read_mat(folder / "cars_annos.mat")
    missing = {"annotations", "class_names"} - set(content)
    if missing:
        raise ValueError(f"cars: {folder / 'cars_annos.mat'} has no {' and no '.join(sorted(missing))}")
    rows = content["annotations"].reshape(-1)
    fields = {"relative_im_path", "class", *_CORNERS}
    if not fields <= set(rows.dtype.names or ()):
        raise ValueError(f"cars: annotations in cars_annos.mat must have the fields {', '.join(sorted(fields))}")
    names = [str(entry.item()) for entry in content["class_names"].reshape(-1)]
    numbers = [int(entry.item()) for entry in rows["class"]]
    outside = next((number for number in numbers if not 1 <= number <= len(names)), None)
    if outside is not None:
        raise ValueError(f"cars: cars_annos.mat has the class {outside} but names 1..{len(names)}")
    box_array = np.array([[entry.item() for entry in rows[corner]] for corner in _CORNERS], dtype=np.int64).T
    box_array[:, :2] -= 1  # MATLAB counts pixels from 1, both ends included
    dataset = create_dataset(
        "cars",
        ImageFiles(
            folder,
            [str(entry.item()) for entry in rows["relative_im_path"]],
            box_array if boxes else None,
            source="cars_annos.mat",
        ),
        labels=[_name_class(names, number) for number in numbers],
        split=["train" if number <= TRAIN_CLASSES else "test" for number in numbers],
        classes=[_name_class(names, number) for number in range(1, len(names) + 1)],
    )
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset


_CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


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
