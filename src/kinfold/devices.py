"""Devices: by name, their hardware, their generators."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def resolve_device(name: torch.device | str) -> torch.device:
    """Return the device of this name if it can be used.

    Args:
        name: "cpu", "cuda", "cuda:1", ...

    Raises:
        ValueError: This machine has no such device, or torch cannot use it.

    Examples:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises any of these
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ValueError(
            f"the device {str(name)!r} cannot be used here: {reason}; use 'cpu', or name no device to get the best one"
        ) from None
    return device


def describe_device(device: torch.device) -> str:
    """Return the device and, where its driver tells it, the name of the hardware.

    Examples:
        >>> describe_device(torch.device("cpu"))
        'cpu'
    """
    if device.type == "cpu":
        return str(device)
    get_name = getattr(torch.get_device_module(device), "get_device_name", None)  # torch.mps has none
    return str(device) if get_name is None else f"{device} ({get_name(device)})"


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished what was queued."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def seed_global_generators(seed: int, device: torch.device) -> None:
    """Seed the global generators of the CPU and of the device, which dropout draws from."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed records every call for a later GPU
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


@contextmanager
def keep_global_generators(device: torch.device) -> Iterator[None]:
    """Restore the global generators of the CPU and of the device at the end of the block."""
    with torch.random.fork_rng(devices=[]):
        if device.type == "cpu":
            yield
            return
        module = torch.get_device_module(device)
        arguments = () if device.type == "mps" else (device,)  # torch.mps knows one device
        state = module.get_rng_state(*arguments)
        try:
            yield
        finally:
            module.set_rng_state(state, *arguments)
