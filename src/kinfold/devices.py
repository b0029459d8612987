"""Where tensors live, by name."""

import torch


def resolve_device(name: torch.device | str) -> torch.device:
    """The device of this name; ValueError where there is none on this machine.

    >>> checked_device("cpu")
    device(type='cpu')
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as wrong:  # torch's ways to say that it cannot
        reason = str(wrong).splitlines()[0].rstrip(".") if str(wrong) else type(wrong).__name__
        raise ValueError(
            f"the device {str(name)!r} cannot be used here: {reason}; 'cpu' always can, and where no device is named "
            "the best one is taken"
        ) from None
    return device
