"""Arrays in JSON."""

import numpy as np

from kinfold.report.content.json_values import decode_array, encode_array


def test_arrays_survive_encoding():
    for array in (np.arange(6).reshape(2, 3), np.array([70_000, -1]), np.array([0.25, -1.5]), np.zeros((0, 10), int)):
        assert (decode_array(encode_array(array)) == array).all()
        assert decode_array(encode_array(array)).shape == array.shape
    assert encode_array(np.array([40_000]))["type"] == "int32"
