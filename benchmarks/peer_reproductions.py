"""Code that shows the faults of losses of pytorch-metric-learning with torch and that library alone."""

import textwrap
from collections.abc import Sequence

# prints a line for each loss: its name, whether the check holds, and what was observed
LISTING = """import copy

import torch
from pytorch_metric_learning import losses

{prelude}for loss in [
{calls}
]:
    x = torch.randn(24, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(24) % 6
    try:
{body}
    except Exception as error:
        holds, observed = False, f"{{type(error).__name__}}: {{error}}".splitlines()[0]
    print(type(loss).__name__, holds, observed)
"""
FINITE = """
x.requires_grad_()
value = loss.float()(x, y)
value.backward()
finite = value.isfinite().item(), x.grad.isfinite().all().item()
holds, observed = all(finite), (value.item(), finite)"""
HALF = """
low = x.to(torch.{dtype}).requires_grad_()
full = low.detach().float().requires_grad_()
values = [copy.deepcopy(loss).float()(rows, y) for rows in (low, full)]
for value in values:
    value.backward()
off = [float((a.float() - b).abs().max() / b.abs().max()) for a, b in (values, (low.grad, full.grad))]
holds, observed = off[0] <= 0.01 and off[1] <= 0.05, f"value and gradient off by {{off[0]:.1e}} and {{off[1]:.1e}}\""""
COMPARE = """
holds, observed = bool(torch.isclose(*values, rtol=1e-9)), [value.item() for value in values]"""
LARGEST = """
class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and 0 not in leaf.stride():
                self.size = max(self.size, leaf.numel())
        return result


"""
BODIES = {
    "empty batch": "x, y = x[:0].float(), y[:0]" + FINITE,
    "one item": "x, y = x[:1].float(), y[:1]" + FINITE,
    "one class": "x, y = x[:6].float(), torch.full((6,), 2)" + FINITE,
    "all classes different": "x, y = x[:6].float(), torch.arange(6)" + FINITE,
    "duplicates": "x, y = x.repeat_interleave(3, dim=0).float(), torch.arange(72) // 2" + FINITE,
    "equal rows": "x, y = torch.ones(6, 16), torch.tensor([0, 0, 1, 1, 2, 2])" + FINITE,
    "zero rows": "x, y = torch.zeros(6, 16), torch.tensor([0, 0, 1, 1, 2, 2])" + FINITE,
    "large rows": "x, y = x[:6].float() * 1e4, torch.tensor([0, 0, 1, 1, 2, 2])" + FINITE,
    "float16": HALF.format(dtype="float16").strip(),
    "bfloat16": HALF.format(dtype="bfloat16").strip(),
    "NaN": """x[3, 2] = float("nan")
value = loss.double()(x, y)
holds, observed = bool(value.isnan()), value.item()""",
    "float32": """values = loss.double()(x, y), copy.deepcopy(loss).float()(x.float(), y)
is_close = torch.isclose(values[0].double(), values[1].double(), rtol=1e-3)
holds, observed = values[0].dtype == torch.float64 and bool(is_close), (values[0].dtype, *values)""",
    "autocast": """values = [loss.float()(x.float(), y)]
with torch.autocast("cpu", torch.bfloat16):
    values.append(loss(x.float(), y).float())
holds, observed = bool(torch.isclose(*values, rtol=1e-2)), [value.item() for value in values]""",
    "permutation": """order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
values = loss.double()(x, y), loss(x[order], y[order])"""
    + COMPARE,
    "relabeling": """names = torch.tensor([-7, 2**40, 2**40 + 1, 3, 2**33, 0])
values = loss(x, y), loss(x, names[y])"""
    + COMPARE,
    "gradient": """loss.double()
holds = torch.autograd.gradcheck(lambda rows: loss(rows, y), x.requires_grad_(), raise_exception=False)
observed = "by finite differences\"""",
    "parameter gradient": """names, parameters = zip(*loss.double().named_parameters())
call = lambda *values: torch.func.functional_call(loss, dict(zip(names, values)), (x, y))
holds, observed = torch.autograd.gradcheck(call, parameters, raise_exception=False), "by finite differences\"""",
    "random state": """before = torch.get_rng_state()
loss.double()(x, y)
holds, observed = torch.equal(before, torch.get_rng_state()), "the state of the global generator\"""",
    "memory growth": """sizes = []
for factor in (2, 4):
    rows = torch.randn(24 * factor, 16).requires_grad_()
    with Largest() as mode:
        copy.deepcopy(loss).float()(rows, y.repeat(factor)).backward()
    sizes.append(mode.size)
holds, observed = sizes[1] / sizes[0] < 5, f"largest tensor {sizes[0]:,}, for twice the rows {sizes[1]:,}\"""",
    "kept graph": """rows = x.float().requires_grad_()
watched = weakref.ref(rows)
(gradient,) = torch.autograd.grad(loss.float()(rows * 2, y), rows)
del rows, gradient
gc.collect()
holds, observed = watched() is None, "whether the batch is freed\"""",
}
PRELUDES = {"memory growth": LARGEST}

BEYOND = """## Beyond the checks

### ClassWeightedReducer

It multiplies the values of a loss by the weights of their classes. Six losses return their values as a column (n, 1).
Its product with the weights (n,) is a matrix, whose mean weights every value by the mean of all weights. The other
losses return (n,) and are weighted as intended.

```py
import torch
from pytorch_metric_learning import losses, reducers

weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.float64)
for kind in [
    losses.AngularLoss,
    losses.CircleLoss,
    losses.GeneralizedLiftedStructureLoss,
    losses.LiftedStructureLoss,
    losses.MultiSimilarityLoss,
    losses.TupletMarginLoss,
]:
    x = torch.randn(24, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(24) % 6
    parts = kind().compute_loss(x, y, None, x, y)["loss"]
    values, rows = parts["losses"], parts["indices"]
    rows = rows if isinstance(rows, torch.Tensor) else rows[0]  # of pairs: the anchors
    expected = (values.flatten() * weights[y[rows]]).mean()
    value = kind(reducer=reducers.ClassWeightedReducer(weights))(x, y)
    print(kind.__name__, bool(torch.isclose(value, expected)), (value.item(), expected.item()))
```

### SmoothAPLoss

It takes the number of items per class for the number of classes, and groups the rows of a batch by position. With 6
classes of 4 items it compares 4 groups of 6 rows, and the order of the labels does not matter. With as many classes as
items per class, in order, the groups are those of the labels.

```py
import torch
from pytorch_metric_learning import losses

x = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
in_order, mixed = torch.arange(24) // 4, torch.arange(24) % 6
values = [losses.SmoothAPLoss()(x, labels) for labels in (in_order, mixed)]
print("SmoothAPLoss", values[0].item() != values[1].item(), [value.item() for value in values])
```
"""


def write_reproduction(calls: Sequence[str], check: str) -> str | None:
    """Return code that shows a fault with torch and the peer alone; None if that is not possible.

    Args:
        calls: Expressions that create the losses, such as "CircleLoss()".
        check: The name of the check.
    """
    if check not in BODIES:
        return None
    code = LISTING.format(
        prelude=PRELUDES.get(check, ""),
        calls="\n".join(f"    losses.{call}," for call in calls),
        body=textwrap.indent(BODIES[check], " " * 8),
    )
    if "copy." not in code:
        code = code.removeprefix("import copy\n\n")
    if "weakref." in code:
        code = "import gc\nimport weakref\n\n" + code
    return code.rstrip()
