"""Devices by name."""

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
