"""Official layouts of published datasets: what is missing, where to get it, and counts compared with the papers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinfold.data.dataset import Dataset
from kinfold.data.items import Array, ImageFiles


@dataclass(frozen=True)
class DatasetSource:
    """Where a dataset comes from and how it is laid out on disk.

    Attributes:
        name: Registered name of the dataset.
        home: Address of its web page.
        archives: The files to download.
        tree: What the root folder must hold, as text for error messages.
    """

    name: str
    home: str
    archives: str
    tree: str

    def explain_download(self, root: Path) -> str:
        """Explain what to download and where to put it."""
        return (
            f"Get {self.archives} from {self.home} and unpack it (kinfold.data.unpack(archive, folder)) so that "
            f"{root} holds\n{self.tree}"
        )

    def find_folder(self, root: Path | str, inner: str, needed: Sequence[str]) -> Path:
        """Return the folder with the needed files: `root` itself, or the folder `inner` of the archive inside it."""
        root = Path(root)
        if not root.is_dir():
            raise ValueError(f"{self.name}: there is no folder {root}. {self.explain_download(root)}")
        # if files are missing, the error names the folder that holds more of them
        folder = max((root, root / inner), key=lambda path: sum((path / name).exists() for name in needed))
        missing = [name for name in needed if not (folder / name).exists()]
        if missing:
            raise ValueError(f"{self.name}: {folder} has no {' and no '.join(missing)}. {self.explain_download(root)}")
        return folder

    def read_rows(self, path: Path, fields: int, header: int = 0) -> list[list[str]]:
        """Split the lines of a text file at blanks into `fields` fields; the last field may contain blanks.

        The first `header` lines are skipped, and so are empty lines.
        """
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

    def parse_integers(self, path: Path, values: Sequence[str]) -> list[int]:
        """Parse fields of the file at `path` as integers."""
        try:
            return [int(value) for value in values]
        except ValueError as error:
            raise ValueError(f"{self.name}: {path} has a field that should be a number: {error}") from None

    def parse_boxes(self, path: Path, rows: Mapping[str, Sequence[str]], keys: Sequence[str]) -> Array:
        """Return four numbers for each key, (N, 4) float; `rows` are those of the file at `path`, by key."""
        lost = next((key for key in keys if key not in rows), None)
        if lost is not None:
            raise ValueError(f"{self.name}: {path} has no box for {lost}")
        try:
            return np.array([[float(value) for value in rows[key]] for key in keys])
        except ValueError as error:
            raise ValueError(f"{self.name}: {path} has a field that should be a number: {error}") from None

    def check_complete(self, dataset: Dataset, expected: Mapping[str, tuple[int, int]]) -> Dataset:
        """Return the dataset if its counts are right and all its files exist, otherwise raise a ValueError.

        Args:
            dataset: The dataset that was read.
            expected: Number of images and of classes for a split, a role, or "all".
        """
        problems = []
        for part, (images, classes) in expected.items():
            mask = dataset.split == part
            if part == "all":
                mask = mask | True
            elif part in ("query", "gallery") and dataset.role is not None:
                mask = dataset.role == part
            subset = dataset.where(mask)
            present = int((subset.class_sizes() > 0).sum())
            if (len(subset), present) != (images, classes):
                problems.append(
                    f"{part}: expected {images:,} images of {classes:,} classes, "
                    f"found {len(subset):,} images of {present:,} classes"
                )
        if problems:
            raise ValueError(
                f"{self.name}: this copy is not the complete one of the papers. {'; '.join(problems)}. "
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
