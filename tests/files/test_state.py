"""State files: values are read back exactly, damaged or foreign files are refused."""

import hashlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from kinfold.files.state import read_state, states_equal, write_state

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@st.composite
def tensors(draw):
    """Of any type and shape, with any bits, sometimes not contiguous."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=dtype).reshape(shape)
    size = count * torch.empty(0, dtype=dtype).element_size()
    content = bytearray(draw(st.binary(min_size=size, max_size=size)))
    flat = torch.frombuffer(content, dtype=dtype) if size else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    return tensor.transpose(0, -1) if tensor.ndim > 1 and draw(st.booleans()) else tensor


plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters(codec="utf-8"))
)
keys = st.text(max_size=5) | st.integers(-5, 5) | st.tuples(st.text(max_size=2), st.integers(0, 3))
states = st.recursive(
    plain | tensors(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(state=states)
def test_any_nested_state_is_read_back_exactly(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("state") / "a.safetensors"
    sha256 = write_state(path, state)
    assert states_equal(read_state(path), state)
    assert states_equal(read_state(path, sha256), state)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ([1], (1,)),
        ({1: 2}, {True: 2}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, 2], [1]),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(1, 2)),
        (torch.zeros(1), -torch.zeros(1)),
        (torch.ones(1), torch.ones(1).nextafter(torch.tensor(2.0))),
        (torch.ones(1), nn.Parameter(torch.ones(1))),
        (None, 0),
        ("1", 1),
    ],
)
def test_states_that_differ_in_type_order_or_one_bit_are_not_equal(one, other):
    assert states_equal(one, one)
    assert states_equal(other, other)
    assert not states_equal(one, other)


def test_nan_equals_itself(tmp_path):
    write_state(tmp_path / "a", {"best": math.nan, "weights": torch.tensor([math.nan, math.inf])})
    assert states_equal(read_state(tmp_path / "a"), {"best": math.nan, "weights": torch.tensor([math.nan, math.inf])})


def test_shared_and_strided_memory_is_saved_value_by_value(tmp_path):
    base = torch.arange(12.0)
    state = {"tied": base, "again": base, "part": base[2:5], "odd": base[::2], "wide": torch.ones(1).expand(3, 2)}
    write_state(tmp_path / "a", state)
    loaded = read_state(tmp_path / "a")
    assert states_equal(loaded, state)
    loaded["tied"].zero_()
    assert loaded["again"][1] == 1  # what is read shares nothing


def test_a_parameter_is_read_back_as_a_plain_tensor(tmp_path):
    write_state(tmp_path / "a", nn.Parameter(torch.ones(2)))
    assert states_equal(read_state(tmp_path / "a"), torch.ones(2))


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), 1j, nn.Linear(1, 1), torch.Generator(), print])
def test_a_value_that_cannot_be_saved_is_refused_by_its_type(value, tmp_path):
    with pytest.raises(TypeError, match=f"{type(value).__name__} cannot be saved"):
        write_state(tmp_path / "a", {"deep": [value]})
    assert not any(tmp_path.iterdir())


def test_an_optimizer_continues_identically_from_a_saved_state(tmp_path):
    def stepped(optimizer, parameter, times):
        for _ in range(times):
            parameter.grad = parameter.detach().sin()
            optimizer.step()

    for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop):
        options = {} if kind is torch.optim.Adam else {"momentum": 0.9}
        parameter = nn.Parameter(torch.linspace(1, 2, 5))
        optimizer = kind([parameter], lr=0.1, **options)
        stepped(optimizer, parameter, 3)
        write_state(tmp_path / "a", {"optimizer": optimizer.state_dict(), "parameter": parameter})
        stepped(optimizer, parameter, 2)
        loaded = read_state(tmp_path / "a")
        other = nn.Parameter(loaded["parameter"])
        again = kind([other], lr=0.1, **options)
        again.load_state_dict(loaded["optimizer"])
        stepped(again, other, 2)
        assert states_equal(parameter, other)
        assert states_equal(optimizer.state_dict(), again.state_dict())


def test_weights_have_their_names_in_safetensors(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"step": 3, "model": {"head.weight": weight, "head": {"weight": weight + 1}}, "list": [weight + 2]}
    write_state(tmp_path / "a.safetensors", state)
    tensors = load_file(tmp_path / "a.safetensors")
    assert {name: tensor[0, 0].item() for name, tensor in tensors.items()} == {
        "model.head.weight": 0,
        "model.head.weight'": 1,  # two tensors of one name get different names
        "list.0": 2,
    }
    assert states_equal(read_state(tmp_path / "a.safetensors"), state)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "state.safetensors"
    sha256 = write_state(
        path, {"a": torch.arange(20.0), "b": [1, {"c": torch.ones(3, dtype=torch.int64)}], "d": "word"}
    )
    return path.read_bytes(), sha256


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_always_detected_by_the_checksum(tmp_path_factory, written, data):
    content, sha256 = written
    position = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("changed") / "state.safetensors"
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"state.safetensors is damaged.*sha256"):
        read_state(path, sha256)
    with pytest.raises(ValueError, match=r"state.safetensors is damaged"):  # by the checksum in the file itself
        read_state(path)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -1])
def test_a_truncated_file_is_damaged_with_and_without_a_checksum(written, length, tmp_path):
    content, sha256 = written
    path = tmp_path / "state.safetensors"
    path.write_bytes(content[:length])
    for checksum in (None, sha256):
        with pytest.raises(ValueError, match=r"state.safetensors is damaged"):
            read_state(path, checksum)


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "other"
    with pytest.raises(ValueError, match="other is missing"):
        read_state(path)
    path.mkdir()
    with pytest.raises(ValueError, match="other cannot be read: Is a directory"):
        read_state(path)
    path = tmp_path / "pickle"
    torch.save({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="pickle is damaged or not a file of this kind"):
        read_state(path)
    path = tmp_path / "foreign"
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="foreign is damaged or not a file of this kind"):
        read_state(path)


def test_a_state_of_an_earlier_version_without_a_checksum_is_refused(tmp_path):
    path = tmp_path / "old.safetensors"
    save_file({"model.a": torch.ones(1)}, path, {"structure": '{"dict": [[{"value": "a"}, {"tensor": "model.a"}]]}'})
    with pytest.raises(
        ValueError, match=r"old.safetensors has no checksum: an earlier version .* wrote it. Write it again"
    ):
        read_state(path)


def test_the_bytes_of_a_state_depend_on_the_state_alone(tmp_path):
    state = {"b": [torch.ones(2), 1.5], "a": {"c": torch.zeros(3, dtype=torch.int8)}}
    first, second = (write_state(tmp_path / name, state) for name in "ab")
    assert first == second == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()


def test_every_changed_bit_is_detected(tmp_path):
    path = tmp_path / "state.safetensors"
    write_state(path, {"a": torch.arange(3.0), "b": [1]})
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"state.safetensors is damaged"):
            read_state(path)
