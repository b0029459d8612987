"""Copies of published datasets as one folder of images for each class, which is how many people have them."""

import re
from pathlib import Path

from kinfold.data.image_folder import list_images

PARTS = ("train", "test", "val", "valid")  # splits for classification, which retrieval does not use


def list_class_folders(folder: Path) -> dict[str, list[str]]:
    """List the images of each class folder, by class, as paths below `folder`.

    Folders named as splits for classification (train, test, val, valid) are looked into, and their images of a class
    put together.

    Args:
        folder: Holds class folders, or such splits with class folders.

    Returns:
        Class -> paths, with the classes in alphabetical order.
    """
    classes: dict[str, list[str]] = {}
    for path in list_images(folder):
        parts = path.split("/")
        if parts[0] in PARTS:
            parts = parts[1:]
        if len(parts) > 1:
            classes.setdefault(parts[0], []).append(path)
    return dict(sorted(classes.items()))


def parse_number(name: str) -> int | None:
    """Return the number at the start of the name of a class folder; None if there is none.

    Examples:
        >>> parse_number("007.Parakeet_Auklet"), parse_number("Acura RL Sedan 2012")
        (7, None)
    """
    match = re.match(r"(\d+)[._\- ]", f"{name}.")
    return None if match is None else int(match[1])
