"""Balanced random draws from groups: every member comes once before any comes twice."""

import torch
from torch import Tensor


def draw_in_turns(sizes: Tensor, groups: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Draw members of groups for a sequence of visits, without repetition as long as possible.

    Group g has the members 0..sizes[g]-1. The members of a group come in a random order; when all have come, they are
    shuffled again. At any time the members of a group have been drawn equally often up to one, and a visit holds no
    member twice unless it takes more than the group has (then each as evenly as possible). The cost is that of sorting
    the draws and the members of the visited groups.

    Args:
        sizes: Number of members of each group, (G,).
        groups: The group of each visit, (V,).
        counts: How many members each visit takes, at least 1, (V,).
        generator: Source of random numbers.

    Returns:
        The members of all visits, one visit after the other, (sum(counts),).

    Examples:
        >>> sizes, groups, counts = torch.tensor([3]), torch.tensor([0, 0, 0]), torch.tensor([2, 2, 2])
        >>> torch.bincount(draw_in_turns(sizes, groups, counts, torch.Generator()))
        tensor([2, 2, 2])
    """
    order = torch.argsort(groups, stable=True)
    group, count = groups[order], counts[order]
    demand = torch.zeros_like(sizes).index_add_(0, groups, counts)
    begin = _compute_offsets(count) - _compute_offsets(demand)[group]  # where a visit begins in the stream of its group
    passes = (demand + sizes - 1) // sizes
    stream_begin = _compute_offsets(passes * sizes)
    stream = _shuffle_streams(sizes, passes, stream_begin, group, begin, count, generator)
    visit_begin = torch.empty_like(begin).index_copy_(0, order, begin) + stream_begin[groups]
    total = int(counts.sum())
    within = torch.arange(total) - _compute_offsets(counts).repeat_interleave(counts, output_size=total)
    return stream[visit_begin.repeat_interleave(counts, output_size=total) + within]


def draw_distinct(sizes: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Draw members for one visit to each group: as `draw_in_turns`, but a large group is not shuffled for a few draws.

    Args:
        sizes: Number of members of each group, (G,).
        counts: How many members to draw from each group, (G,).
        generator: Source of random numbers.

    Returns:
        The members of all groups, one group after the other, (sum(counts),).

    Examples:
        >>> draw_distinct(torch.tensor([10**9, 1]), torch.tensor([3, 2]), torch.Generator()).shape
        torch.Size([5])
    """
    large = sizes > 8 * counts
    owner = torch.arange(sizes.shape[0]).repeat_interleave(counts)
    members = torch.empty_like(owner)
    if not bool(large.all()):
        small = (~large).nonzero().flatten()
        members[~large[owner]] = draw_in_turns(sizes[small], torch.arange(small.shape[0]), counts[small], generator)
    if bool(large.any()):
        size, count = sizes[large], counts[large]
        drawn = torch.full((size.shape[0], int(count.max())), -1)
        for step in range(drawn.shape[1]):
            # Floyd's algorithm: a member that was drawn before is replaced by the highest allowed one, which was not
            highest = size - count + step
            member = draw_with_replacement(highest + 1, generator)
            repeated = (drawn == member[:, None]).any(dim=1)
            drawn[:, step] = torch.where(repeated, highest, member)
        members[large[owner]] = drawn[torch.arange(drawn.shape[1]) < count[:, None]]
    return members


def draw_with_replacement(sizes: Tensor, generator: torch.Generator) -> Tensor:
    """Draw independent uniform numbers in 0..sizes-1, of the shape of `sizes`."""
    chance = torch.rand(sizes.shape, generator=generator, dtype=torch.float64)
    return torch.minimum((chance * sizes).long(), sizes - 1)


def _shuffle_streams(
    sizes: Tensor,
    passes: Tensor,
    stream_begin: Tensor,
    group: Tensor,
    begin: Tensor,
    count: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """For every group as many shuffles as it needs, one after the other; visits are sorted by group and begin."""
    longest = passes * sizes
    stream = torch.empty(int(longest.sum()), dtype=torch.int64)
    stride = int(longest.max()) + 1
    visits = group * stride + begin
    member_begin = _compute_offsets(sizes)
    late = torch.zeros(int(sizes.sum()), dtype=torch.bool)  # members that the visit across the last shuffle holds
    for number in range(int(passes.max())):
        active = (passes > number).nonzero().flatten()
        size = sizes[active]
        owner = torch.arange(active.shape[0]).repeat_interleave(size)
        position = torch.arange(owner.shape[0]) - _compute_offsets(size)[owner]
        slot = member_begin[active][owner]
        key = torch.rand(owner.shape[0], generator=generator, dtype=torch.float64)
        members = position[torch.argsort(key + late[slot + position] + 2.0 * owner)]
        stream[(stream_begin[active] + number * size)[owner] + position] = members
        # the visit across the end of this pass: its members come last in the next one, so that it gets none twice
        end = (number + 1) * size
        visit = torch.searchsorted(visits, active * stride + end - 1, right=True) - 1
        across = begin[visit] + count[visit] > end
        held = begin[visit] - number * size  # negative: it began in an earlier pass, and holds what was late then
        newly = position >= held[owner]
        late[slot + members] = across[owner] & torch.where(held[owner] < 0, late[slot + members], newly)
    return stream


def _compute_offsets(lengths: Tensor) -> Tensor:
    """Where each of consecutive segments begins."""
    return lengths.cumsum(0) - lengths
