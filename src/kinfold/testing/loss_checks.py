"""The contract of a loss, check by check.

A check returns what it observed or None, raises `Fault` where the loss does not hold it, and `Skip` where it has no
meaning.
"""

import copy
import io
import math
from collections.abc import Callable

import torch
from torch import Tensor

from kinfold.testing.loss_probe import (
    Check,
    Fault,
    LossProbe,
    Skip,
    backward,
    require_close,
    require_finite,
)
from kinfold.testing.scaling_checks import (
    check_chunks,
    check_device,
    check_kept_graph,
    check_memory_growth,
    check_ranks,
)

_DIRECTIONS = 8
# of finite differences: step and tolerance, for values in float64 and in less
_PRECISE, _ROUGH = (1e-6, 1e-4), (1e-3, 2e-2)


def check_gradient(probe: LossProbe) -> None:
    """The gradient by the embeddings is that of finite differences in float64, along 8 random directions."""
    x = probe.embeddings
    _, gradient = probe.differentiate(x)
    _compare_slopes(gradient, lambda shift: probe.call(x + shift), x)


def check_parameter_gradient(probe: LossProbe) -> None:
    """The gradient by the loss' own parameters is that of finite differences."""
    names = [name for name, parameter in probe.loss.named_parameters() if parameter.requires_grad]
    if not names:
        raise Skip("no parameters")
    for name in names:
        loss = probe.copy(torch.float64)
        leaf = loss.get_parameter(name)
        gradient = backward(probe.run(loss, probe.embeddings), leaf)

        def shifted(shift: Tensor, name: str = name) -> Tensor:
            other = probe.copy(torch.float64)
            with torch.no_grad():
                other.get_parameter(name).add_(shift)
            return probe.run(other, probe.embeddings)

        _compare_slopes(gradient, shifted, leaf.detach())


def check_permutation(probe: LossProbe) -> None:
    """The order of the batch does not matter."""
    if probe.draws():
        raise Skip("draws random numbers")
    order = torch.randperm(len(probe.labels), generator=torch.Generator().manual_seed(1))
    value, gradient = probe.differentiate(probe.embeddings)
    other, moved = probe.differentiate(probe.embeddings[order], probe.labels[order])
    require_close(other, value, 1e-9, "value after a permutation")
    require_close(moved, gradient[order], 1e-7, "gradient after a permutation")


def check_relabeling(probe: LossProbe) -> None:
    """Other integers as labels, negative and large ones too, change nothing."""
    if probe.has_parameters:
        raise Skip("has parameters, which may belong to classes")
    names = torch.tensor([-7, 2**40, 2**40 + 1, 3, 2**33, 0])
    value = probe.call(probe.embeddings)
    require_close(probe.call(probe.embeddings, names[probe.labels]), value, 1e-9, "value with other labels")


def check_determinism(probe: LossProbe) -> None:
    """Two calls with equal input and equal random state give the same value and gradient."""
    first, second = probe.differentiate(probe.embeddings), probe.differentiate(probe.embeddings)
    require_close(second[0], first[0], 0.0, "value of a second call")
    require_close(second[1], first[1], 0.0, "gradient of a second call")


def check_random_state(probe: LossProbe) -> None:
    """A call leaves the global random state as it was."""
    loss = probe.copy(torch.float64)
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        try:
            loss(probe.embeddings, probe.labels)
        except Exception as error:
            raise Fault(str(error)) from error
        if not torch.equal(torch.get_rng_state(), before):
            raise Fault("draws from the global generator")


def check_input_unchanged(probe: LossProbe) -> None:
    """Embeddings and labels are not written to."""
    x, y = probe.embeddings, probe.labels.clone()
    probe.call(x, y)
    if not torch.equal(x, probe.embeddings) or not torch.equal(y, probe.labels):
        raise Fault("changes its input")


def check_state(probe: LossProbe) -> None:
    """A saved and loaded state gives the same value."""
    if probe.is_random():
        raise Skip("draws random numbers")
    stream = io.BytesIO()
    torch.save(probe.loss.state_dict(), stream)
    stream.seek(0)
    fresh = copy.deepcopy(probe.loss)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(1.0)
    fresh.load_state_dict(torch.load(stream, weights_only=True))
    value = probe.run(fresh.double(), probe.embeddings)
    require_close(value, probe.call(probe.embeddings), 1e-12, "value after loading the state")


def check_float32(probe: LossProbe) -> None:
    """float64 stays float64, and float32 agrees with it to 1e-3."""
    value = probe.call(probe.embeddings)
    if value.dtype != torch.float64:
        raise Fault(f"float64 embeddings give {value.dtype}")
    require_close(probe.call(probe.embeddings.float()), value, 1e-3, "float32 against float64")


def check_half(dtype: torch.dtype) -> Check:
    """Make the check that half precision agrees with float32 of the same numbers to 1 %."""

    def check(probe: LossProbe) -> None:
        x = probe.embeddings.to(dtype)
        expected, slope = probe.differentiate(x.float())
        value, gradient = probe.differentiate(x)
        require_finite(value, gradient)
        require_close(value.float(), expected, 1e-2, f"{dtype} against float32")
        require_close(gradient.float(), slope, 5e-2, f"gradient of {dtype} against float32")

    return check


def check_autocast(probe: LossProbe) -> None:
    """Inside autocast to bfloat16 the value agrees with float32 to 1 %."""
    x = probe.embeddings.float()
    expected = probe.call(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = probe.call(x)
    require_close(value, expected, 1e-2, "autocast against float32")


def check_batch(select: Callable[[LossProbe], tuple[Tensor, Tensor]]) -> Check:
    """Make the check that an unusual batch gives a finite value with a finite gradient."""

    def check(probe: LossProbe) -> None:
        x, y = select(probe)
        require_finite(*probe.differentiate(x.float(), y))

    return check


def check_nan(probe: LossProbe) -> None:
    """A NaN among the embeddings gives NaN, not a number that looks right, and no other error."""
    x = probe.embeddings
    x[3, 2] = math.nan
    value = probe.call(x)
    if not bool(value.isnan()):
        raise Fault(f"the value is {value.item():.3g} though an embedding is NaN")


def _compare_slopes(gradient: Tensor, evaluate: Callable[[Tensor], Tensor], at: Tensor) -> None:
    generator = torch.Generator().manual_seed(2)
    directions = [torch.randn(at.shape, generator=generator, dtype=torch.float64) for _ in range(_DIRECTIONS)]
    with torch.no_grad():
        step, tolerance = _PRECISE if evaluate(0 * directions[0]).dtype == torch.float64 else _ROUGH
        slopes = [(evaluate(step * d).double() - evaluate(-step * d).double()) / (2 * step) for d in directions]
    expected = torch.stack(slopes)
    actual = torch.stack([(gradient.double() * d).sum() for d in directions])
    scale = float(gradient.double().norm()) + float(expected.abs().max())
    difference = float((actual - expected).abs().max())
    if not difference <= tolerance * scale + 1e-8:
        raise Fault(f"off by {difference / max(scale, 1e-12):.1e} of its length against finite differences")


def _rows(count: int, labels: list[int]) -> Callable[[LossProbe], tuple[Tensor, Tensor]]:
    return lambda probe: (probe.embeddings[:count], torch.tensor(labels, dtype=torch.int64))


SIX = [0, 0, 1, 1, 2, 2]

CHECKS: dict[str, Check] = {
    "gradient": check_gradient,
    "parameter gradient": check_parameter_gradient,
    "permutation": check_permutation,
    "relabeling": check_relabeling,
    "determinism": check_determinism,
    "random state": check_random_state,
    "ranks": check_ranks,
    "input unchanged": check_input_unchanged,
    "state": check_state,
    "float32": check_float32,
    "float16": check_half(torch.float16),
    "bfloat16": check_half(torch.bfloat16),
    "autocast": check_autocast,
    "empty batch": check_batch(_rows(0, [])),
    "one item": check_batch(_rows(1, [0])),
    "one class": check_batch(_rows(6, [2] * 6)),
    "all classes different": check_batch(_rows(6, [*range(6)])),
    "duplicates": check_batch(lambda p: (p.embeddings[[0, 0, 0, 1, 1, 2]], torch.tensor([0, 0, 1, 1, 2, 2]))),
    "equal rows": check_batch(lambda p: (torch.ones(6, p.dim), torch.tensor(SIX))),
    "zero rows": check_batch(lambda p: (torch.zeros(6, p.dim), torch.tensor(SIX))),
    "large rows": check_batch(lambda p: (p.embeddings[:6] * 1e4, torch.tensor(SIX))),
    "NaN": check_nan,
    "second device": check_device,
    "memory growth": check_memory_growth,
    "kept graph": check_kept_graph,
    "chunks": check_chunks,
}
