"""Which classes `anchor-neighbor` puts together, and which negatives `smart-mining` draws, compared with loops."""

import numpy as np
import pytest
import torch

import kinfold
from kinfold.samplers import SmartMiningSampler
from tests.problems import generator
from tests.samplers.problems import embeddings_of, epoch_of, labels_of

LABELS = labels_of([4, 3, 5, 6, 2, 4, 4, 3, 5])
ROWS = embeddings_of(len(LABELS), dim=4)
UNIT = (ROWS / ROWS.norm(dim=1, keepdim=True)).numpy()


def create(name, **options):
    sampler = kinfold.samplers.create(name, LABELS, **options)
    sampler.update(torch.arange(len(LABELS)), ROWS)
    return sampler


def class_distance(p, q):
    labels = LABELS.numpy()
    pairs = [((a - b) ** 2).sum() for a in UNIT[labels == p] for b in UNIT[labels == q]]
    return np.mean(pairs)


@pytest.mark.parametrize("neighborhood", [2, 3])
def test_every_neighborhood_is_a_class_with_its_nearest_classes(neighborhood):
    firsts = []
    for batch in epoch_of(create("anchor-neighbor", batch_size=12, per_class=2, neighborhood=neighborhood)):
        classes = LABELS[batch].view(6, 2)
        assert bool((classes[:, 0] == classes[:, 1]).all())
        order = classes[:, 0].tolist()
        assert len(set(order)) == 6, "all classes of a batch are different"
        starts = order[::neighborhood]
        taken = set(starts)
        for number, first in enumerate(starts):
            for neighbor in order[number * neighborhood + 1 : (number + 1) * neighborhood]:
                free = [c for c in range(9) if c not in taken]
                assert neighbor == min(free, key=lambda c: class_distance(first, c))
                taken.add(neighbor)
        firsts += starts
    counts = np.bincount(firsts, minlength=9)
    assert counts.max() - counts.min() <= 1, "first classes take turns"


def test_a_batch_that_neighborhoods_do_not_divide_has_a_smaller_one():
    batch = epoch_of(create("anchor-neighbor", batch_size=8, per_class=1, neighborhood=5))[0]
    assert len(set(LABELS[batch].tolist())) == 8


def test_triplets_stand_one_after_the_other_and_negatives_are_in_the_window():
    sampler = create("smart-mining", batch_size=9, neighbors=8, window=3)
    assert sampler.offset == 5
    ranks = []
    for batch in epoch_of(sampler):
        for anchor, positive, negative in np.array(batch).reshape(3, 3):
            assert LABELS[anchor] == LABELS[positive] != LABELS[negative]
            assert anchor != positive
            others = [i for i in range(len(LABELS)) if LABELS[i] != LABELS[anchor]]
            others.sort(key=lambda i: ((UNIT[i] - UNIT[anchor]) ** 2).sum())
            ranks.append(others.index(negative))
    assert set(ranks) == {5, 6, 7}


def train_epoch(sampler, rows):
    """One epoch, of which every batch is measured with these embeddings."""
    for batch in sampler:
        sampler.update(torch.tensor(batch), rows[batch])


def test_the_window_moves_to_harder_negatives_while_triplets_are_easy_and_back_otherwise():
    separated = torch.eye(9)[LABELS]
    collapsed = torch.ones(len(LABELS), 9)
    sampler = SmartMiningSampler(LABELS, batch_size=9, neighbors=8, window=3)
    sampler.update(torch.arange(len(LABELS)), separated)
    offsets = []
    for rows in [separated] * 3 + [collapsed] * 3:
        train_epoch(sampler, rows)
        offsets.append(sampler.offset)
    sampler.plan(9)  # the last epoch is judged when the next one begins
    assert [*offsets, sampler.offset] == [5, 2, 0, 0, 3, 5, 5]


def test_a_resumed_sampler_continues_with_the_window_and_what_was_measured():
    rows = torch.randn(len(LABELS), 4, generator=generator(3))
    sampler, resumed = (SmartMiningSampler(LABELS, batch_size=9, neighbors=8, window=3) for _ in range(2))
    sampler.update(torch.arange(len(LABELS)), rows)
    train_epoch(sampler, rows)
    train_epoch(sampler, rows)
    resumed.load_state_dict(sampler.state_dict())
    assert resumed.state_dict()["measured"] == 9 // 3 * len(sampler)
    train_epoch(sampler, rows)
    train_epoch(resumed, rows)
    assert resumed.offset == sampler.offset
    assert torch.equal(resumed._planned, sampler._planned)


def test_wrong_options():
    with pytest.raises(ValueError, match="window=9 is wider than neighbors=8"):
        create("smart-mining", batch_size=9, neighbors=8, window=9)
    with pytest.raises(ValueError, match="target is a share"):
        create("smart-mining", batch_size=9, target=1.0)
    with pytest.raises(ValueError, match="neighborhood must be an integer of at least 1"):
        create("anchor-neighbor", batch_size=8, neighborhood=0)
