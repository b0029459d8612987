"""Which items of a map are drawn as pictures, and which regions of it are magnified."""

from typing import Any

import numpy as np
from PIL import Image, ImageOps

from kinfold.data import Dataset, decode
from kinfold.data.image_reading import ImageError
from kinfold.data.items import Array

TILE = 32  # pixels of a picture
GRID = 28  # pictures along each side of the whole map
ZOOMS, ZOOM_GRID, ZOOM_SHARE = 3, 8, 0.12  # regions, pictures along a side of one, its side as a share of the map


def choose_pictures(dataset: Dataset, plane: Array, background: str) -> dict[str, Any]:
    """Read the pictures of a map: one for each cell of a grid, and of a finer grid in some dense regions.

    Args:
        dataset: The items of the map.
        plane: Their coordinates, (N, 2).
        background: The color under transparent pixels.

    Returns:
        pictures (P, TILE, TILE, 3) uint8, picture_items (P,) their items, zooms (Z, 4) regions as left, bottom, right,
        top. Empty if the items are not pictures.
    """
    if getattr(dataset.items[0], "ndim", 2) < 2:
        return {}
    zooms = find_dense_regions(plane, dataset.labels.numpy())
    chosen = dict.fromkeys(thin_out(plane, GRID).tolist())
    for left, bottom, right, top in zooms:
        inside = np.flatnonzero(((plane >= (left, bottom)) & (plane <= (right, top))).all(axis=1))
        chosen |= dict.fromkeys(inside[thin_out(plane[inside], ZOOM_GRID)].tolist())
    pictures, items = [], []
    for item in chosen:
        try:
            picture = decode(dataset.items[item], background=background)
        except (ImageError, OSError):
            continue  # one that cannot be read is a point of the map
        pictures.append(np.asarray(ImageOps.pad(picture.convert("RGB"), (TILE, TILE), Image.Resampling.BICUBIC)))
        items.append(item)
    if not items:
        return {}
    return {"pictures": np.stack(pictures), "picture_items": np.array(items), "zooms": zooms}


def thin_out(points: Array, cells: int) -> Array:
    """Choose the item nearest to the middle of each occupied cell of a grid over the points (N, 2).

    Examples:
        >>> thin_out(np.array([[0.0, 0.0], [0.2, 0.2], [1.0, 1.0]]), 2)
        array([1, 2])
    """
    low, high = points.min(axis=0), points.max(axis=0)
    grid_position = (points - low) / np.maximum(high - low, 1e-12) * cells
    cell = np.minimum(grid_position.astype(np.int64), cells - 1)
    distance = np.linalg.norm(grid_position - cell - 0.5, axis=1)
    order = np.lexsort((distance, cell[:, 1], cell[:, 0]))
    _, first = np.unique(cell[order], axis=0, return_index=True)
    return np.sort(order[first])


def find_dense_regions(plane: Array, labels: Array) -> Array:
    """Find squares around the classes that lie closest together, at most `ZOOMS` of them and none over another, (Z, 4).

    A class counts from five items on. Its place is the median of its items, its extent the median distance from there.
    """
    side = ZOOM_SHARE * float((plane.max(axis=0) - plane.min(axis=0)).max())
    centers, extents = [], []
    for label in np.unique(labels):
        items = plane[labels == label]
        if len(items) >= 5:
            centers.append(np.median(items, axis=0))
            extents.append(float(np.median(np.linalg.norm(items - centers[-1], axis=1))))
    regions: list[Array] = []
    for index in np.argsort(extents, kind="stable"):
        center = centers[index]
        if all(np.abs(center - (region[:2] + region[2:]) / 2).max() > side for region in regions):
            regions.append(np.concatenate([center - side / 2, center + side / 2]))
        if len(regions) == ZOOMS:
            break
    return np.array(regions).reshape(-1, 4)
