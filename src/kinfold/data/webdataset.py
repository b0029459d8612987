"""WebDataset shards: .tar files in which files of one name make up a sample, as in 0001.jpg and 0001.cls.

Nothing is unpickled and nothing is extracted. The headers are read once; an image is read from its place in the shard
when it is used.
"""

import glob
import hashlib
import json
import os
import re
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.archives import read_tar_members
from kinfold.data.columns import resolve_column_names
from kinfold.data.dataset import SPLITS, Dataset, create_dataset
from kinfold.data.items import Array, ImageBytes

IMAGE_EXTENSIONS = ("jpg", "jpeg", "png", "webp", "bmp", "ppm", "gif", "tif", "tiff")
TEXT_EXTENSIONS = ("cls", "json", "txt")
PICKLES = ("pkl", "pickle", "pyd", "pth", "pt")
LARGEST_IMAGE = 256 << 20  # bytes
LARGEST_TEXT = 1 << 20  # bytes
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class TarImages:
    """Images inside of tar files. An image is read when it is used.

    Args:
        shards: Paths of the tar files.
        shard: Number of each image's file, (N,).
        offsets, sizes: Where each image lies in its file, in bytes, (N,).
        names: Name of each image in its file, (N,).
    """

    def __init__(self, shards: Sequence[Path], shard: Array, offsets: Array, sizes: Array, names: Array) -> None:
        self.shards, self.shard, self.offsets, self.sizes, self.names = [*shards], shard, offsets, sizes, names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int, /) -> ImageBytes:
        path = self.shards[int(self.shard[index])]
        with path.open("rb") as file:
            file.seek(int(self.offsets[index]))
            content = file.read(int(self.sizes[index]))
        return ImageBytes(content, None, index + 1, path.name, str(self.names[index]))

    def take(self, indices: Array) -> "TarImages":
        """Return the images at these positions, in this order, without reading any of them."""
        parts = (self.shard[indices], self.offsets[indices], self.sizes[indices], self.names[indices])
        return TarImages(self.shards, *parts)

    def compute_digest(self) -> bytes:
        """Return the sha256 of names and sizes of shards and images."""
        shards = [(path.name, path.stat().st_size if path.is_file() else -1) for path in self.shards]
        digest = hashlib.sha256(json.dumps(shards).encode())
        for array in (self.shard, self.offsets, self.sizes):
            digest.update(array.astype(np.int64).tobytes())
        digest.update("\n".join(self.names.tolist()).encode())
        return digest.digest()


@dataclass
class _Sample:
    """What one sample holds: its image, and its small text files by extension."""

    shard: int
    name: str
    offset: int = -1
    size: int = 0
    texts: dict[str, str] = field(default_factory=dict)


def webdataset(
    root: Path | str | Sequence[Path | str], columns: Mapping[str, str] | None = None, split: str = "train"
) -> Dataset:
    """Read WebDataset shards: uncompressed .tar files with an image and its class for each sample.

    Files of a sample have one name and different extensions: an image (jpg, png, webp, ...), and cls, json or txt for
    the class. Other files are not read, but pickles (pkl, pyd, pth, pt) are refused.

    Args:
        root: A shard, a folder of shards (optionally inside train/, validation/ and test/), a pattern such as
            shards/train-{000..012}.tar or shards/*.tar, or a list of shards.
        columns: Where values are, as in {"label": "json.species"} for an entry of json files, {"label": "txt"} for a
            whole file, {"image": "png"} for the extension of the images. The default label is cls, or json.label, or
            txt, whichever the first sample has. split, role and coarse can be named in the same way.
        split: Split of all samples, if neither folders nor a column say it.

    Returns:
        A dataset of images.

    Raises:
        ValueError: A shard is missing, compressed, damaged or holds pickles, or a sample has no image or no class.
    """
    names = resolve_column_names(columns, ("image", "label", "split", "role", "coarse"))
    shards, splits = _list_shards(root, split)
    wanted = (columns or {}).get("image")
    samples = [sample for number, path in enumerate(shards) for sample in _read_shard(path, number, wanted)]
    if not samples:
        raise ValueError(f"{shards[0]} holds no samples")
    for sample in samples:
        if sample.offset < 0:
            kinds = "." + (wanted or ", .".join(IMAGE_EXTENSIONS))
            raise ValueError(f"{shards[sample.shard]}: the sample {sample.name!r} has no image ({kinds})")
    label = names["label"] if "label" in (columns or {}) else _choose_label(samples[0], shards)
    optional = {
        key: [_get_value(sample, names[key], shards) for sample in samples]
        for key in ("split", "role", "coarse")
        if key in (columns or {})
    }
    numbers = np.array([sample.shard for sample in samples])
    items = TarImages(
        shards,
        numbers,
        np.array([sample.offset for sample in samples]),
        np.array([sample.size for sample in samples]),
        np.array([sample.name for sample in samples]),
    )
    return create_dataset(
        shards[0].stem if len(shards) == 1 else shards[0].parent.name or "webdataset",
        items,
        labels=[_get_value(sample, label, shards) for sample in samples],
        split=optional.get("split", np.array(splits)[numbers]),
        coarse=optional.get("coarse"),
        role=optional.get("role"),
    )


def _list_shards(root: Any, split: str) -> tuple[list[Path], list[str]]:
    """Paths of all shards, and the split of each."""
    if isinstance(root, str | Path):
        path = Path(root)
        if path.is_dir():
            folders = [path / name for name in SPLITS if (path / name).is_dir() and any((path / name).glob("*.tar"))]
            shards = [shard for folder in folders or [path] for shard in sorted(folder.glob("*.tar"))]
            if not shards:
                raise ValueError(f"{path} holds no .tar files")
            return shards, [shard.parent.name if folders else split for shard in shards]
        shards = _expand(str(path))
    else:
        shards = [shard for each in root for shard in _expand(str(each))]
    if not shards:
        raise ValueError("give at least one shard")
    for shard in shards:
        if not shard.is_file():
            raise ValueError(f"there is no shard {shard}")
    return shards, [split] * len(shards)


def _expand(pattern: str) -> list[Path]:
    """Paths of a pattern with {000..012} and *."""
    match = _RANGE.search(pattern)
    if match is not None:
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < 1_000_000:
            raise ValueError(f"{pattern}: the range {match[0]} must ascend, over at most a million shards")
        numbers = [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
        return [path for number in numbers for path in _expand(pattern.replace(match[0], number, 1))]
    if "*" not in pattern or Path(pattern).exists():
        return [Path(pattern)]
    paths = [Path(path) for path in sorted(glob.glob(pattern))]
    if not paths:
        raise ValueError(f"no file matches {pattern}")
    return paths


def _read_shard(path: Path, number: int, image: str | None) -> list[_Sample]:
    samples: dict[str, _Sample] = {}
    extensions = IMAGE_EXTENSIONS if image is None else (image,)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        for member in read_tar_members(path, file):
            if member.isdir():
                continue
            _check_member(path, member, status.st_size)
            folder, _, base = member.name.rpartition("/")
            stem, dot, extension = base.partition(".")
            extension = extension.lower()
            if not dot or not stem:
                continue
            key = f"{folder}/{stem}" if folder else stem
            sample = samples.setdefault(key, _Sample(number, member.name))
            if extension in extensions:
                if sample.offset >= 0:
                    raise ValueError(
                        f"{path}: the sample {key!r} has two images; say which one: columns={{'image': 'jpg'}}"
                    )
                _check_size(path, member, LARGEST_IMAGE)
                sample.name, sample.offset, sample.size = member.name, member.offset_data, member.size
            elif extension in TEXT_EXTENSIONS:
                _check_size(path, member, LARGEST_TEXT)
                position = file.tell()
                file.seek(member.offset_data)
                sample.texts[extension] = _decode(path, member.name, file.read(member.size))
                file.seek(position)
    return [*samples.values()]


def _check_member(path: Path, member: tarfile.TarInfo, length: int) -> None:
    if member.name.lower().endswith(tuple(f".{extension}" for extension in PICKLES)):
        raise ValueError(
            f"{path} is refused: {member.name!r} is a pickle, which could run code. Write samples with plain files: "
            "jpg or png, and cls, json or txt"
        )
    if not member.isreg() or member.issparse():
        raise ValueError(f"{path} is refused: {member.name!r} is a link, a device or a sparse file, not a plain file")
    if member.offset_data + member.size > length:
        raise ValueError(f"{path} is cut short: {member.name!r} ends after it; fetch it again")


def _check_size(path: Path, member: tarfile.TarInfo, limit: int) -> None:
    if member.size > limit:
        raise ValueError(f"{path} is refused: {member.name!r} has {member.size:,} bytes, more than {limit:,}")


def _decode(path: Path, name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: {name!r} is not text") from None


def _choose_label(sample: _Sample, shards: Sequence[Path]) -> str:
    if "cls" in sample.texts:
        return "cls"
    if "json" in sample.texts and "label" in _parse(sample, shards):
        return "json.label"
    if "txt" in sample.texts:
        return "txt"
    has = ", ".join(sample.texts) or "an image alone"
    raise ValueError(
        f"{shards[sample.shard]}: where is the class of a sample? {sample.name!r} has {has}. Say it: "
        "columns={'label': 'json.species'} in Python, --set data.options.columns.label=json.species on the command line"
    )


def _get_value(sample: _Sample, key: str, shards: Sequence[Path]) -> str:
    extension, dot, entry = key.partition(".")
    where = f"{shards[sample.shard]}: the sample {sample.name!r}"
    if extension not in sample.texts:
        raise ValueError(f"{where} has no .{extension}")
    if not dot:
        value: Any = sample.texts[extension]
    else:
        content = _parse(sample, shards)
        if entry not in content:
            raise ValueError(
                f"{where} has no {entry!r} in its .json; it has {', '.join(map(str, content)) or 'nothing'}"
            )
        value = content[entry]
    if not isinstance(value, str | int | float) or value == "":
        raise ValueError(f"{where}: {key} must be text or a number, got {value!r}")
    return str(value)


def _parse(sample: _Sample, shards: Sequence[Path]) -> dict[str, Any]:
    try:
        content = json.loads(sample.texts["json"])
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{shards[sample.shard]}: the .json of {sample.name!r} is not a JSON object")
    return content
