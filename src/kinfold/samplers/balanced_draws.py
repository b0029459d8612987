"""Dealing from shuffled decks: everything comes once before anything comes twice."""

import torch
from torch import Tensor


def draw_in_turns(sizes: Tensor, decks: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Cards (sum(counts),) for visits to decks: visit v takes the next counts[v] >= 1 cards of deck decks[v].

    Deck g has cards 0..sizes[g]-1. A deck that runs out is shuffled anew. Two things hold at any time: cards of one
    deck have been dealt equally often up to one, and a visit holds no card twice unless it takes more than the deck has
    (then each as evenly as possible). Work is that of sorting the cards dealt and those of the decks used.

    >>> cards = draw_in_turns(torch.tensor([3]), torch.tensor([0, 0, 0]), torch.tensor([2, 2, 2]), torch.Generator())
    >>> torch.bincount(cards)
    tensor([2, 2, 2])
    """
    order = torch.argsort(decks, stable=True)
    deck, count = decks[order], counts[order]
    demand = torch.zeros_like(sizes).index_add_(0, decks, counts)
    begin = _before(count) - _before(demand)[deck]  # where a visit begins in the stream of its deck
    passes = (demand + sizes - 1) // sizes
    stream_begin = _before(passes * sizes)
    stream = _shuffled_streams(sizes, passes, stream_begin, deck, begin, count, generator)
    visit_begin = torch.empty_like(begin).index_copy_(0, order, begin) + stream_begin[decks]
    total = int(counts.sum())
    within = torch.arange(total) - _before(counts).repeat_interleave(counts, output_size=total)
    return stream[visit_begin.repeat_interleave(counts, output_size=total) + within]


def draw_distinct(sizes: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """One visit to each deck, (sum(counts),): as `deal`, but a large deck is not shuffled for a few cards.

    >>> draw_distinct(torch.tensor([10**9, 1]), torch.tensor([3, 2]), torch.Generator()).shape
    torch.Size([5])
    """
    large = sizes > 8 * counts
    owner = torch.arange(sizes.shape[0]).repeat_interleave(counts)
    cards = torch.empty_like(owner)
    if not bool(large.all()):
        small = (~large).nonzero().flatten()
        cards[~large[owner]] = draw_in_turns(sizes[small], torch.arange(small.shape[0]), counts[small], generator)
    if bool(large.any()):
        size, count = sizes[large], counts[large]
        hand = torch.full((size.shape[0], int(count.max())), -1)
        for step in range(hand.shape[1]):
            # Floyd's draw of a set: a card that is held already gives way to the highest one allowed, which is not
            highest = size - count + step
            card = draw_with_replacement(highest + 1, generator)
            held = (hand == card[:, None]).any(dim=1)
            hand[:, step] = torch.where(held, highest, card)
        cards[large[owner]] = hand[torch.arange(hand.shape[1]) < count[:, None]]
    return cards


def _shuffled_streams(
    sizes: Tensor,
    passes: Tensor,
    stream_begin: Tensor,
    deck: Tensor,
    begin: Tensor,
    count: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """For every deck as many shuffles as it needs, one after the other; visits are given sorted by deck and begin."""
    longest = passes * sizes
    stream = torch.empty(int(longest.sum()), dtype=torch.int64)
    stride = int(longest.max()) + 1
    visits = deck * stride + begin
    card_begin = _before(sizes)
    late = torch.zeros(int(sizes.sum()), dtype=torch.bool)  # cards that the visit across the last shuffle holds already
    for number in range(int(passes.max())):
        active = (passes > number).nonzero().flatten()
        size = sizes[active]
        owner = torch.arange(active.shape[0]).repeat_interleave(size)
        position = torch.arange(owner.shape[0]) - _before(size)[owner]
        slot = card_begin[active][owner]
        key = torch.rand(owner.shape[0], generator=generator, dtype=torch.float64)
        cards = position[torch.argsort(key + late[slot + position] + 2.0 * owner)]
        stream[(stream_begin[active] + number * size)[owner] + position] = cards
        # the visit across the end of this pass: its cards come last in the next one, so that it gets none twice
        done = (number + 1) * size
        visit = torch.searchsorted(visits, active * stride + done - 1, right=True) - 1
        across = begin[visit] + count[visit] > done
        held = begin[visit] - number * size  # below zero: it began in an earlier pass, and holds what was late then
        newly = position >= held[owner]
        late[slot + cards] = across[owner] & torch.where(held[owner] < 0, late[slot + cards], newly)
    return stream


def draw_with_replacement(sizes: Tensor, generator: torch.Generator) -> Tensor:
    """Independent uniform numbers in 0..sizes-1, of the shape of `sizes`: draws with replacement."""
    chance = torch.rand(sizes.shape, generator=generator, dtype=torch.float64)
    return torch.minimum((chance * sizes).long(), sizes - 1)


def _before(lengths: Tensor) -> Tensor:
    """Where each of consecutive stretches begins."""
    return lengths.cumsum(0) - lengths
