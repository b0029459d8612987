"""Tests for the code of others: a second device for machines without a GPU.

| module | public functions and classes |
|---|---|
| `second_device` | `load_second_device`, `count_waits`, `SecondDeviceError` |
"""

from kinfold.testing.second_device import SecondDeviceError, count_waits, load_second_device

__all__ = ["SecondDeviceError", "count_waits", "load_second_device"]
