"""Official layouts on disk: what is missing and where to get it, and counts compared with the papers'."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinfold.data.dataset import Dataset
from kinfold.data.items import Array, ImageFiles


@dataclass(frozen=True)
class DatasetSource:
    """Where a data set comes from and how it lies on disk: `tree` shows what the root folder must hold."""

    name: str
    home: str
    archives: str
    tree: str

    def explain_download(self, root: Path) -> str:
        """Two lines that say what to fetch and what to put where."""
        return (
            f"Get {self.archives} from {self.home} and unpack it (kinfold.data.unpack(archive, folder)) so that "
            f"{root} holds\n{self.tree}"
        )

    def find_folder(self, root: Path | str, inner: str, needed: Sequence[str]) -> Path:
        """The folder with the needed files: `root` itself, or the folder `inner` of the archive inside it."""
        root = Path(root)
        if not root.is_dir():
            raise ValueError(f"{self.name}: there is no folder {root}. {self.explain_download(root)}")
        # the folder that holds more of what is needed is the one to complain about
        folder = max((root, root / inner), key=lambda place: sum((place / name).exists() for name in needed))
        missing = [name for name in needed if not (folder / name).exists()]
        if missing:
            raise ValueError(f"{self.name}: {folder} has no {' and no '.join(missing)}. {self.explain_download(root)}")
        return folder

    def read_rows(self, path: Path, fields: int, header: int = 0) -> list[list[str]]:
        """The lines of a text file split at blanks, the last field with its blanks kept; a short line is named."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.name}: {path} is not a text file; fetch it again") from None
        rows = []
        for number, line in enumerate(text.splitlines()[header:], start=header + 1):
            if not line.strip():
                continue
            row = line.split(maxsplit=fields - 1)
            if len(row) != fields:
                raise ValueError(f"{self.name}: {path} line {number} has {len(row)} fields instead of {fields}")
            rows.append([field.strip() for field in row])
        return rows

    def parse_integers(self, path: Path, words: Sequence[str]) -> list[int]:
        """Words of a file that must be whole numbers."""
        try:
            return [int(word) for word in words]
        except ValueError as wrong:
            raise ValueError(f"{self.name}: {path} has a field that should be a number: {wrong}") from None

    def parse_boxes(self, path: Path, rows: Mapping[str, Sequence[str]], keys: Sequence[str]) -> Array:
        """Four numbers for each key, (N, 4) float; `rows` are those of the file at `path`."""
        lost = next((key for key in keys if key not in rows), None)
        if lost is not None:
            raise ValueError(f"{self.name}: {path} has no box for {lost}")
        try:
            return np.array([[float(word) for word in rows[key]] for key in keys])
        except ValueError as wrong:
            raise ValueError(f"{self.name}: {path} has a field that should be a number: {wrong}") from None

    def check_complete(self, dataset: Dataset, expected: Mapping[str, tuple[int, int]]) -> Dataset:
        """The data set itself, after its counts and files were found complete.

        `expected`: images and classes for a split, a role, or "all".
        """
        wrong = []
        for part, (images, classes) in expected.items():
            mask = dataset.split == part
            if part == "all":
                mask = mask | True
            elif part in ("query", "gallery") and dataset.role is not None:
                mask = dataset.role == part
            found = dataset.where(mask)
            present = int((found.class_sizes() > 0).sum())
            if (len(found), present) != (images, classes):
                wrong.append(
                    f"{part}: expected {images:,} images of {classes:,} classes, "
                    f"found {len(found):,} images of {present:,} classes"
                )
        if wrong:
            raise ValueError(
                f"{self.name}: this copy is not the complete one of the papers. {'; '.join(wrong)}. "
                "check=False loads it all the same"
            )
        if isinstance(dataset.items, ImageFiles):
            self._check_files(dataset.items)
        return dataset

    def _check_files(self, items: ImageFiles) -> None:
        missing = [index for index in range(len(items)) if not items[index].path.is_file()]
        if missing:
            raise ValueError(
                f"{self.name}: {len(missing):,} of {len(items):,} listed images are not there; the first is "
                f"{items[missing[0]]}. Unpack the archive of images again, or pass check=False"
            )
