"""The second device refuses what a GPU refuses, counts what a GPU waits for, and computes what the CPU computes."""

import copy
import io

import pytest
import torch
from torch import nn

from kinfold.testing import count_waits
from tests.on_second_device import DEVICE

CPU = torch.device("cpu")


def host(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), device=CPU)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: b + a,
        lambda a, b: a @ b.T,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, b, a),
        lambda a, b: a.add_(b),
        lambda a, b: torch.nn.functional.linear(a, b),
        lambda a, b: a.masked_fill(b > 0, 0.0),
        lambda a, b: a.gather(1, b.long().clamp(0, 1)),
    ],
)
def test_tensors_of_two_devices_are_not_mixed(mix):
    with pytest.raises(RuntimeError, match="on the same device, but found at least two devices"):
        mix(host(3, 4).to(DEVICE), host(3, 4))


def test_numbers_without_dimensions_and_indices_may_come_from_the_host():
    x = host(4, 3).to(DEVICE)
    assert torch.equal((x * torch.tensor(2.0, device=CPU)).cpu(), x.cpu() * 2)
    assert torch.equal(x[torch.tensor([2, 0], device=CPU)].cpu(), x.cpu()[[2, 0]])


def test_a_generator_draws_for_its_own_device_only():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, generator=torch.Generator(), device=DEVICE)
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, generator=torch.Generator(DEVICE), device=CPU)
    drawn = torch.rand(3, generator=torch.Generator(DEVICE).manual_seed(5), device=DEVICE)
    assert torch.equal(drawn.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(5), device=CPU))


def test_the_global_generators_are_separate():
    torch.get_device_module(DEVICE).manual_seed(1)
    first = torch.rand(3, device=DEVICE)
    before = torch.get_rng_state()
    torch.get_device_module(DEVICE).manual_seed(1)
    torch.rand(5, device=CPU)
    assert torch.equal(torch.rand(3, device=DEVICE), first)
    torch.set_rng_state(before)


MASK = torch.tensor([True, False, True], device=DEVICE)
SIZES = torch.tensor([1, 2, 0], device=DEVICE)


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: float(x[0, 0]) + float(x[1, 1]), 2),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[MASK], 1),
        (lambda x: x.__setitem__(MASK, x[:2]), 1),
        (lambda x: x.masked_select(x > 0), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: torch.equal(x, x), 1),
        (lambda x: x.unique(), 1),
        (lambda x: SIZES.repeat_interleave(SIZES), 1),
        (lambda x: torch.tensor([1.0, 2.0], device=DEVICE), 1),
        (lambda x: host(2, 2).to(DEVICE), 1),
        (lambda x: host(2, 2).to(DEVICE, non_blocking=True), 0),
        (lambda x: SIZES.repeat_interleave(SIZES, output_size=3), 0),
        (lambda x: x.__setitem__(MASK, 0.0), 0),
        (lambda x: torch.where(x > 0, x, 0.0).softmax(1).sort().values.cumsum(0), 0),
        (lambda x: x.masked_fill(x > 0, 1.0).topk(2).indices + torch.arange(2, device=DEVICE), 0),
    ],
)
def test_what_makes_the_host_wait_is_counted(waiting, count):
    x = host(3, 4).to(DEVICE)
    with count_waits() as waits:
        waiting(x)
    assert sum(waits.values()) == count


def test_views_strides_and_writes_through_views_are_those_of_torch():
    def program(x):
        y = x.clone()
        y.t()[1:, ::2] += 1
        y[:, 1].mul_(3)
        y.view(-1)[::3] = 7
        z = y.unfold(1, 2, 1).transpose(0, 2)
        out = torch.empty(0, device=x.device)
        torch.add(z, 1, out=out)
        return out.diagonal(0, 0, 1), z.stride(), y.expand(2, *y.shape).reshape(-1), z.contiguous().stride()

    for actual, expected in zip(program(host(4, 6).to(DEVICE)), program(host(4, 6)), strict=True):
        assert torch.equal(actual.cpu(), expected) if isinstance(expected, torch.Tensor) else actual == expected


def test_a_network_trains_to_the_weights_of_the_cpu():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    twins = [network, copy.deepcopy(network).to(DEVICE)]
    for twin, device in zip(twins, (CPU, DEVICE), strict=True):
        optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            twin(host(6, 1, 8, 8, seed=step).to(device)).square().mean().backward()
            optimizer.step()
    for one, other in zip(*(twin.state_dict().values() for twin in twins), strict=True):
        torch.testing.assert_close(other.cpu(), one)


def test_saved_tensors_come_back_to_their_device_or_to_the_host():
    stream = io.BytesIO()
    saved = host(3, 4).to(DEVICE).t()
    torch.save(saved, stream)
    for target, device in ((None, DEVICE), ("cpu", CPU)):
        stream.seek(0)
        loaded = torch.load(stream, weights_only=True, map_location=target)
        assert loaded.device == device
        assert torch.equal(loaded.cpu(), saved.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_lowers_products_and_nothing_else(dtype):
    x = host(4, 4).to(DEVICE)
    with torch.autocast(DEVICE.type, dtype=dtype):
        assert (x @ x).dtype == dtype
        assert (x + x).dtype == torch.float32
        assert (x.double() @ x.double()).dtype == torch.float64
    assert (x @ x).dtype == torch.float32


def test_other_threads_may_compute_at_the_same_time():
    x = host(64, 64).to(DEVICE).requires_grad_()
    (x @ x).square().sum().backward()  # the engine runs a thread for each device
    y = host(64, 64).requires_grad_()
    (y @ y).square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)
