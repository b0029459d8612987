"""Small trees in the official layouts, made of tiny pictures."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(path: Path, color: int = 0, size: tuple[int, int] = (12, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    pixels = np.random.default_rng(color).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def cub_tree(root: Path) -> Path:
    """Classes 1, 100, 101 with two photos each; class 2 is named but has none."""
    folder = root / "CUB_200_2011"
    names = {1: "001.Albatross", 2: "002.Auk", 100: "100.Brown_Pelican", 101: "101.White_Pelican"}
    images = [(number, f"{names[number]}/bird_{copy}.jpg") for number in (1, 100, 101) for copy in (1, 2)]
    for row, (_, path) in enumerate(images):
        picture(folder / "images" / path, row)
    write_lines(folder / "images.txt", *(f"{row} {path}" for row, (_, path) in enumerate(images, 1)))
    write_lines(folder / "image_class_labels.txt", *(f"{row} {number}" for row, (number, _) in enumerate(images, 1)))
    write_lines(folder / "classes.txt", *(f"{number} {name}" for number, name in names.items()))
    write_lines(folder / "bounding_boxes.txt", *(f"{row} 2.0 1.0 6.0 5.0" for row in range(1, len(images) + 1)))
    return root


def cars_tree(root: Path) -> Path:
    from scipy.io import savemat

    fields = ["relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test"]
    rows = np.zeros((1, 4), dtype=[(field, object) for field in fields])
    for index, number in enumerate((1, 98, 99, 196)):
        path = f"car_ims/{index + 1:06d}.jpg"
        picture(root / path, index)
        rows[0, index] = (path, 3, 2, 8, 6, number, index % 2)
    names = np.array([f"Maker Model {number}" for number in range(1, 197)], dtype=object)[None]
    savemat(root / "cars_annos.mat", {"annotations": rows, "class_names": names})
    return root


def sop_tree(root: Path) -> Path:
    folder = root / "Stanford_Online_Products"
    header = "image_id class_id super_class_id path"
    lists: dict[str, list[str]] = {"train": [header], "test": [header]}
    kinds = {"bicycle": 1, "chair": 3}
    for row, (part, number, kind) in enumerate(
        [("train", 1, "bicycle"), ("train", 1, "bicycle"), ("train", 2, "chair"), ("test", 11319, "chair")], 1
    ):
        path = f"{kind}_final/{number}_{row}.JPG"
        picture(folder / path, row)
        lists[part].append(f"{row} {number} {kinds[kind]} {path}")
    for part, lines in lists.items():
        write_lines(folder / f"Ebay_{part}.txt", *lines)
    return root


def in_shop_tree(root: Path) -> Path:
    rows = [
        ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
        ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "query"),
        ("img/MEN/Denim/id_00000080/01_2_side.jpg", "id_00000080", "gallery"),
    ]
    for index, (path, _, _) in enumerate(rows):
        picture(root / "Img" / path, index)
    listing = [f"{path:<70}{item} {part}" for path, item, part in rows]
    write_lines(root / "Eval/list_eval_partition.txt", "3", "image_name item_id evaluation_status", *listing)
    boxes = [f"{path} 1 1 2 1 8 6" for path, _, _ in rows]
    write_lines(root / "Anno/list_bbox_inshop.txt", "3", "image_name clothes_type pose_type x_1 y_1 x_2 y_2", *boxes)
    return root


def omniglot_tree(root: Path) -> Path:
    for part, alphabet in (("images_background", "Futurama"), ("images_evaluation", "Angelic")):
        for character in ("character01", "character02"):
            for drawing in (1, 2):
                picture(root / part / alphabet / character / f"0001_{drawing:02d}.png", drawing)
    return root


def imagenet_tree(root: Path) -> Path:
    for index, wordnet_id in enumerate(("n01440764", "n01443537", "n01484850", "n01491361")):
        picture(root / "train" / wordnet_id / f"{wordnet_id}_1.JPEG", index)
        picture(root / "val" / wordnet_id / "ILSVRC2012_val_00000001.JPEG", index)
    return root
