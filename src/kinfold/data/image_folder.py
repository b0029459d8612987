"""A folder of your own: one sub-folder for each class, optionally inside train/, validation/ and test/."""

import os
from pathlib import Path

from kinfold.data.dataset import SPLITS, Dataset, create_dataset
from kinfold.data.items import ImageFiles
from kinfold.files.paths import describe_missing

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def folder(root: Path | str, split: str = "train") -> Dataset:
    """Read images in `root/<class>/...`, or in `root/<split>/<class>/...` if the sub-folders are named after splits.

    A class may have folders inside; its name is that of the outermost one.

    Args:
        root: The folder.
        split: Split of all images, if there are no folders of splits.

    Returns:
        A dataset of image files.

    Raises:
        ValueError: The folder is missing or holds no images, an image lies in no class, or folders of splits and of
            classes are mixed.
    """
    root = Path(root)
    if not root.is_dir():
        if root.suffix.lower() in (".csv", ".parquet"):
            raise ValueError(
                f"{root} is a table, not a folder of images: read it with --data table (load('table', ...))"
            )
        if root.suffix.lower() in (".npz", ".npy"):
            raise ValueError(
                f"{root} is a feature file, not a folder of images: read it with --data features "
                "(load('features', ...); kinfold train features trains on it)"
            )
        if root.is_file():
            raise ValueError(f"{root} is a file, not a folder of images")
        raise ValueError(describe_missing(root, "folder"))
    paths = list_images(root)
    if not paths:
        raise ValueError(
            f"{root} holds no images; put them into one sub-folder for each class: {root / 'wren' / '1.jpg'} "
            f"(files ending in {', '.join(SUFFIXES)})"
        )
    top = {path.split("/")[0] for path in paths}
    depth = 1 if top <= set(SPLITS) else 0
    loose = next((path for path in paths if path.count("/") <= depth), None)
    if loose:
        raise ValueError(f"{root / loose} lies in no sub-folder, so it has no class; move it into one")
    mixed = top & set(SPLITS)
    if mixed and not depth:
        raise ValueError(
            f"{root} mixes folders of splits ({', '.join(sorted(mixed))}) with others "
            f"({', '.join(sorted(top - mixed)[:3])}); put each class into a split, or rename those folders"
        )
    return create_dataset(
        root.name or "folder",
        ImageFiles(root, paths),
        labels=[path.split("/")[depth] for path in paths],
        split=[path.split("/")[0] if depth else split for path in paths],
    )


def list_images(root: Path) -> list[str]:
    """List the image files in a folder and its sub-folders, as sorted relative paths; hidden ones are left out."""
    paths: list[str] = []
    _collect(str(root), "", paths)
    return sorted(paths)


def _collect(parent: str, prefix: str, paths: list[str]) -> None:
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_symlink() and _leads_up(entry.path, parent):
                continue
            if entry.is_dir(follow_symlinks=True):
                _collect(entry.path, f"{prefix}{entry.name}/", paths)
            elif entry.name.lower().endswith(SUFFIXES):
                paths.append(prefix + entry.name)


def _leads_up(link: str, parent: str) -> bool:
    """Whether a link leads to a folder above itself, which would be an endless loop."""
    here, target = os.path.realpath(parent), os.path.realpath(link)
    return os.path.commonpath([here, target]) == target
