"""Columns of a Parquet file, also as Hugging Face's library writes them. Needs pyarrow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data.columns import Columns, ImageColumn, check_distinct
from kinfold.data.items import Array
from kinfold.files.parquet import import_arrow, read_table


def read_parquet(path: Path) -> Columns:
    """Read all columns of a Parquet file."""
    types = import_arrow("types", f"reading {path}")
    table = _read(path, read_table)
    check_distinct(path, table.column_names)
    class_names = find_class_names(table.schema.metadata or {})
    values, objects, images = dict[str, Array](), list[str](), dict[str, ImageColumn]()
    for name in table.column_names:
        column = table.column(name)
        if is_image_type(column.type):
            images[name] = _read_images(column)
        elif types.is_struct(column.type) or types.is_map(column.type) or types.is_union(column.type):
            objects.append(name)
        else:
            values[name] = replace_by_names(read_values(column), class_names.get(name))
    return Columns(path, values, np.arange(1, 1 + table.num_rows), tuple(objects), images)


def read_schema(path: Path) -> Any:
    """Read the names and Arrow types of the columns alone."""
    return _read(path, import_arrow("parquet", f"reading {path}").read_schema)


def is_image_type(kind: Any) -> bool:
    """Whether a column of this Arrow type holds encoded images: bytes, or the structs {bytes, path} of Hugging Face."""
    types = import_arrow("types")
    if types.is_struct(kind):
        fields = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
        return "bytes" in fields and set(fields) <= {"bytes", "path"} and _is_bytes(types, fields["bytes"])
    return _is_bytes(types, kind)


def _is_bytes(types: Any, kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _read(path: Path, read: Callable[[str], Any]) -> Any:
    import_arrow("parquet", f"reading {path}")
    try:
        return read(str(path))
    except Exception as error:  # pyarrow raises exceptions of its own for a cut or foreign file
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from None


def _read_images(column: Any) -> ImageColumn:
    arrow, compute = import_arrow(), import_arrow("compute")
    names = np.full(len(column), "")
    if arrow.types.is_struct(column.type):
        if column.type.get_field_index("path") >= 0:
            names = np.array([path or "" for path in compute.struct_field(column, "path").to_pylist()], dtype=str)
        column = compute.struct_field(column, "bytes")
    missing = np.asarray(column.is_null().to_numpy(), dtype=bool)
    joined = arrow.concat_arrays(column.cast(arrow.large_binary()).chunks or [arrow.array([], arrow.large_binary())])
    _, offset_buffer, content = joined.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
    buffer = np.zeros(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return ImageColumn(buffer, offsets[:-1], offsets[1:], names, missing)


def find_class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Names of numbered classes by column, from the metadata that Hugging Face's library writes."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        names_of = {name: about["names"] for name, about in features.items() if about.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no metadata, or of another library
        return {}
    return {
        column: names
        for column, names in names_of.items()
        if isinstance(names, list) and all(isinstance(name, str) for name in names) and len({*names}) == len(names)
    }


def replace_by_names(numbers: Array, names: list[str] | None) -> Array:
    """Replace class numbers by names; -1, which stands for no label, becomes empty text."""
    if names is None or numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        return numbers
    if numbers.min() < -1 or numbers.max() >= len(names):
        return numbers
    return np.array([*names, ""])[numbers]


def read_values(column: Any) -> Array:
    """Numbers, text, or equally long lists of numbers as an array; a missing value becomes empty text."""
    compute = import_arrow("compute")
    is_list = str(column.type).startswith(("list", "large_list", "fixed_size_list"))
    if is_list and not column.null_count and len(compute.unique(compute.list_value_length(column))) == 1:
        # a million embeddings as one array, not as Python numbers
        return np.asarray(compute.list_flatten(column).to_numpy()).reshape(len(column), -1)
    values = ["" if value is None else value for value in column.to_pylist()]
    return np.array([" ".join(map(str, value)) if isinstance(value, list) else value for value in values])
