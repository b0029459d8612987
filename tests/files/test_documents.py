"""Whatever a JSON or TOML file contains: its values have the described shape, or one line names file and error."""

import json
import re

import pytest

from kinfold.files.checksums import SHA256
from kinfold.files.documents import IntegerRange, read_json, read_result, read_toml, write_result

SHAPE = {"name": str, "count": int, "share?": (float, None), "rows": [{str: float}], "threads?": IntegerRange(1, 8)}
GOOD = {"name": "a", "count": 3, "share": 0.5, "rows": [{"x": 1}, {}], "more": {"of": ["anything"]}}


def read(tmp_path, text, shape=SHAPE):
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_json(path, shape)


def test_a_value_of_the_described_shape_is_returned_unchanged(tmp_path):
    assert read(tmp_path, json.dumps(GOOD)) == GOOD
    assert read(tmp_path, '"0" ', re.compile("[0-9]")) == "0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name must be a string, got 3"),
        ({"count": True}, "count must be an integer, got True"),
        ({"count": 2.0}, "count must be an integer, got 2.0"),
        ({"count": 10**30}, "count must be an integer, got a number of more than 64 bits"),
        ({"share": "x" * 100}, "share must be a finite number or null, got 'xxx"),
        ({"share": float("nan")}, "share must be a finite number or null, got nan"),
        ({"share": float("inf")}, "share must be a finite number or null, got inf"),
        ({"rows": {}}, "rows must be a list, got a table of 0"),
        ({"rows": [1]}, r"rows\[0\] must be a table, got 1"),
        ({"rows": [{}, {"x": None}]}, r"rows\[1\].x must be a finite number, got None"),
        ({"threads": 9}, "threads must be an integer from 1 to 8, got 9"),
        ({"threads": 0}, "threads must be an integer from 1 to 8, got 0"),
    ],
)
def test_a_value_of_another_shape_is_named_with_what_was_expected(change, message, tmp_path):
    with pytest.raises(ValueError, match=rf"^\S*/file.json is damaged: {message}") as error:
        read(tmp_path, json.dumps(GOOD | change))
    assert len(str(error.value)) < 300


def test_a_key_that_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"file.json is damaged: it has no 'count'"):
        read(tmp_path, json.dumps({key: value for key, value in GOOD.items() if key != "count"}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2", '{"a": 1} x', "nul", b"\xff\xfe{}", b"\x00", "1" * 5000, "[" * 100_000, '{"a":' * 100_000],
)
def test_invalid_json_is_reported_in_one_line(text, tmp_path):
    with pytest.raises(ValueError, match=r"^\S*/file.json is (not valid JSON: |damaged: |not a text file)") as error:
        read(tmp_path, text, object)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("depth", [101, 400, 900])
def test_deep_nesting_that_the_parser_accepts_is_refused(depth, tmp_path):
    with pytest.raises(ValueError, match="more than 100 deep"):
        read(tmp_path, "[" * depth + "]" * depth, object)
    assert read(tmp_path, "[" * 100 + "]" * 100, object)


@pytest.mark.parametrize(
    "text",
    [
        "a = ",
        "a = 1\na = 2",
        b"\xff",
        "a = " + "[" * 100_000,
        "a = " + "{b = " * 5_000,
        ".".join("a" * 5_000) + " = 1",
        "a = " + "9" * 5_000,
    ],
)
def test_invalid_toml_is_reported_in_one_line(text, tmp_path):
    path = tmp_path / "file.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"^\S*/file.toml is (not valid TOML: |damaged: |not a text file)") as error:
        read_toml(path)
    assert "\n" not in str(error.value)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing.json is missing"):
        read_json(tmp_path / "nothing.json", object)
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_json(tmp_path, object)


def test_a_result_is_read_back_and_every_changed_value_is_detected(tmp_path):
    path, table = tmp_path / "scores.json", {"recall@1": 0.125, "ü": [1, None, {"a": "b"}], "steps": 10}
    write_result(path, table)
    assert read_result(path, {"steps": int}) == table
    assert SHA256.fullmatch(json.loads(path.read_bytes())["sha256"])
    content = path.read_bytes()
    detected = 0
    for position in range(len(content)):
        for bit in (0, 3, 5):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            path.write_bytes(changed)
            message = read_error(path)
            assert message is None or str(path) in message
            detected += message is not None
    assert detected > 0.9 * 3 * len(content)  # all but spaces that became other spaces


def read_error(path):
    """Return the error of reading a result; None if it is what was written."""
    try:
        table = read_result(path, {"steps": int})
    except ValueError as error:
        return str(error)
    assert table == {"recall@1": 0.125, "ü": [1, None, {"a": "b"}], "steps": 10}
    return None


def test_a_result_without_a_checksum_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "scores.json").write_text('{"steps": 10}')
    with pytest.raises(ValueError, match=r"scores.json has no checksum: an earlier version .* Write it again"):
        read_result(tmp_path / "scores.json", {"steps": int})
