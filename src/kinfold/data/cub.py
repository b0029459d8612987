"""CUB-200-2011: photos of 200 bird species (Wah et al., 2011); the first 100 classes train, the others test."""

from pathlib import Path

import numpy as np

from kinfold.data.class_folders import list_class_folders, parse_number
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.dataset_source import DatasetSource
from kinfold.data.items import ImageFiles

SOURCE = DatasetSource(
    name="cub",
    home="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    archives="CUB_200_2011.tgz",
    tree="""\
  CUB_200_2011/
    images.txt  image_class_labels.txt  classes.txt  bounding_boxes.txt
    images/001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg ...""",
)
COUNTS = {"train": (5864, 100), "test": (5924, 100)}
TRAIN_CLASSES = 100


def cub(root: Path | str, boxes: bool = False, check: bool = True) -> Dataset:
    """Read CUB-200-2011: classes 1-100 train (5,864 photos), classes 101-200 test (5,924).

    The folder `images` with its 200 class folders is enough where the text files are missing: their names start with
    the numbers of the classes.

    Args:
        root: The folder CUB_200_2011, or a folder that holds it.
        boxes: Crop every photo to its bird.
        check: Compare the counts with those of the papers, and look for every file.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: Files are missing, or the copy is incomplete; the message says what to download.
    """
    for folder in (Path(root), Path(root) / "CUB_200_2011"):
        if (folder / "images").is_dir() and not (folder / "images.txt").exists() and not boxes:
            dataset = _read_class_folders(folder / "images")
            return SOURCE.check_complete(dataset, COUNTS) if check else dataset
    needed = ["images.txt", "image_class_labels.txt", "classes.txt", "images"]
    folder = SOURCE.find_folder(root, "CUB_200_2011", [*needed, "bounding_boxes.txt"] if boxes else needed)
    listed = SOURCE.read_rows(folder / "images.txt", fields=2)
    class_of = dict(SOURCE.read_rows(folder / "image_class_labels.txt", fields=2))
    names = dict(SOURCE.read_rows(folder / "classes.txt", fields=2))
    for image, path in listed:
        if class_of.get(image) not in names:
            raise ValueError(f"cub: {path} (image {image}) has no class in image_class_labels.txt and classes.txt")
    numbers = SOURCE.parse_integers(folder / "image_class_labels.txt", [class_of[image] for image, _ in listed])
    ordered = [str(number) for number in sorted(SOURCE.parse_integers(folder / "classes.txt", list(names)))]
    box_array = None
    if boxes:
        listing = folder / "bounding_boxes.txt"
        rows = {image: box for image, *box in SOURCE.read_rows(listing, fields=5)}
        x, y, width, height = SOURCE.parse_boxes(listing, rows, [image for image, _ in listed]).T
        box_array = np.stack([x, y, x + width, y + height], axis=1).round()
    dataset = create_dataset(
        "cub",
        ImageFiles(folder / "images", [path for _, path in listed], box_array, source="images.txt"),
        labels=[names[class_of[image]] for image, _ in listed],
        split=["train" if number <= TRAIN_CLASSES else "test" for number in numbers],
        classes=[names[key] for key in ordered],
    )
    return SOURCE.check_complete(dataset, COUNTS) if check else dataset


def _read_class_folders(folder: Path) -> Dataset:
    classes = list_class_folders(folder)
    numbers = {name: parse_number(name) for name in classes}
    unnumbered = next((name for name, number in numbers.items() if number is None), None)
    if unnumbered is not None or not classes:
        raise ValueError(
            f"cub: {folder.parent} has no images.txt, and {folder / (unnumbered or '...')} is not named as a class, "
            f"such as 001.Black_footed_Albatross. {SOURCE.explain_download(folder.parent)}"
        )
    listed = [(numbers[name] or 0, name, path) for name, paths in classes.items() for path in paths]
    return create_dataset(
        "cub",
        ImageFiles(folder, [path for _, _, path in listed], source="class folders"),
        labels=[name for _, name, _ in listed],
        split=["train" if number <= TRAIN_CLASSES else "test" for number, _, _ in listed],
        classes=sorted(classes, key=lambda name: numbers[name] or 0),
    )
