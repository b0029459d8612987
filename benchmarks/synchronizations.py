"""Count how often the host waits for the device in a loss call and in a training step; write the table to the docs.

python -m benchmarks.synchronizations
"""

import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kinfold
from benchmarks.docs import fill
from kinfold.data import Batch
from kinfold.testing import load_second_device
from kinfold.training import Objective, Step

PAGE = Path(__file__).parent.parent / "docs" / "devices.md"
PACKAGE = str(Path(kinfold.__file__).parent)
BATCH, DIM, CLASSES = 80, 32, 16


class WaitLocations(TorchDispatchMode):
    """Counts waits by the function of the package that caused them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.ops.second_device.take_waits()
        result = func(*args, **(kwargs or {}))
        count = len(torch.ops.second_device.take_waits())
        if count:
            self.counts[_find_caller()] += count
        return result


def _find_caller() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            module = Path(frame.f_code.co_filename).relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
            return f"{module}.{frame.f_code.co_name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "torch"


def create(name: str, device: torch.device) -> kinfold.losses.Loss:
    """Create a loss on the device, with class vectors where it has them."""
    parameters = inspect.signature(kinfold.registry.resolve("losses", name)).parameters
    options = {"num_classes": CLASSES, "dim": DIM} if "dim" in parameters else {}
    return kinfold.losses.create(name, **options).to(device)


def count_loss(name: str, device: torch.device) -> tuple[Counter[str], Counter[str]]:
    """Return the waits of forward and backward, in the second call: the first one may check and warn once."""
    loss = create(name, device)
    loss.warn_missing_pairs = False
    labels = (torch.arange(BATCH) % CLASSES).to(device)
    for _ in range(2):
        embeddings = torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
        with WaitLocations() as forward:
            value = loss(embeddings, labels)
        with WaitLocations() as backward:
            value.backward()
    return forward.counts, backward.counts


def count_step(precision: str, micro_batch: int | None, device: torch.device) -> Counter[str]:
    """Return the waits of a training step with multi-similarity."""
    model = kinfold.models.create("features", DIM, backbone_options={"width": 64}).to(device)
    objective = Objective(kinfold.losses.create("multi-similarity")).to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
    step = Step(model, objective, device=device, precision=precision, micro_batch=micro_batch, scaler=scaler)
    rows = torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(0))
    batch = Batch(rows, torch.arange(BATCH) % CLASSES, torch.arange(BATCH))
    counts: Counter[str] = Counter()
    for number in range(2):
        with WaitLocations() as waits:
            step(batch, number)
        counts = waits.counts
    return counts


def format_tables(device: torch.device) -> str:
    """Write both tables."""
    lines = ["| loss | forward | backward | where |", "|---|---:|---:|---|"]
    for name in kinfold.list("losses"):
        forward, backward = count_loss(name, device)
        lines.append(f"| {name} | {forward.total()} | {backward.total()} | {_list(forward + backward)} |")
    lines += ["", "| training step, multi-similarity | waits | where |", "|---|---:|---|"]
    for precision, micro_batch in (("float32", None), ("bfloat16", None), ("float16", None), ("float32", 20)):
        waits = count_step(precision, micro_batch, device)
        title = precision if micro_batch is None else f"{precision}, micro-batches of {micro_batch}"
        lines.append(f"| {title} | {waits.total()} | {_list(waits)} |")
    return "\n".join(lines)


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"`{location}` {count}" for location, count in counts.most_common())


if __name__ == "__main__":
    fill(PAGE, "waits", format_tables(load_second_device()))
    print(f"wrote {PAGE}")
