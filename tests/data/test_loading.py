"""Batches: order, reproducibility whatever the number of workers, shapes, cache."""

import numpy as np
import pytest
import torch

from kinfold import samplers
from kinfold.data import (
    IMAGENET,
    Batches,
    CenterCrop,
    Compose,
    ImageFiles,
    RandomResizedCrop,
    Resize,
    Rows,
    cache_images,
    create_dataset,
    decode,
)

from .trees import picture


@pytest.fixture
def pictures(tmp_path):
    for index in range(10):
        picture(tmp_path / f"{index}.png", index, size=(24 + index, 20))
    files = ImageFiles(tmp_path, [f"{index}.png" for index in range(10)])
    return create_dataset("pictures", files, labels=[index // 2 for index in range(10)], split=["train"] * 10)


def tensors(batches, epoch=0):
    batches.set_epoch(epoch)
    return [(batch.images, batch.labels, batch.indices) for batch in batches]


def same(first, second):
    return len(first) == len(second) and all(
        torch.equal(a, b) for one, two in zip(first, second, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_any_number_of_workers_gives_the_same_batches(pictures):
    options = {"transform": RandomResizedCrop(8), "batch_size": 4, "shuffle": True, "seed": 5}
    alone = Batches(pictures, **options)
    expected = [tensors(alone, epoch) for epoch in (0, 1)]
    assert not same(*expected)
    for workers in (1, 2):
        several = Batches(pictures, workers=workers, **options)
        assert same(tensors(several, 0), expected[0])
        assert same(tensors(several, 1), expected[1])
        assert same(tensors(several, 0), expected[0])  # workers that live on forget nothing and remember nothing
    assert not same(tensors(Batches(pictures, **{**options, "seed": 6})), expected[0])


def test_each_epoch_and_seed_augments_the_same_item_in_another_way(pictures):
    in_order = Batches(pictures, transform=RandomResizedCrop(8), batch_size=10)
    (first, _, _), *_ = tensors(in_order, epoch=0)
    (later, _, _), *_ = tensors(in_order, epoch=1)
    (other, _, _), *_ = tensors(Batches(pictures, transform=RandomResizedCrop(8), batch_size=10, seed=1))
    for index in range(10):
        assert not torch.equal(first[index], later[index])
        assert not torch.equal(first[index], other[index])


def test_ranks_that_share_a_sampler_see_the_pictures_of_one_process(pictures):
    def batches_of_rank(rank, ranks):
        # more draws than items: the second time an item comes, on whichever rank, it is cropped in another way
        sampler = samplers.create(
            "spc", pictures.labels, batch_size=6, per_class=2, batches=5, seed=1, rank=rank, world_size=ranks
        )
        return tensors(Batches(pictures, transform=RandomResizedCrop(8), batch_sampler=sampler), epoch=2)

    together = [
        tuple(torch.cat(parts) for parts in zip(*batch, strict=True))
        for batch in zip(*(batches_of_rank(rank, 3) for rank in range(3)), strict=True)
    ]
    alone = batches_of_rank(0, 1)
    assert same(together, alone)
    images, _, items = (torch.cat(column) for column in zip(*alone, strict=True))
    first, again, *_ = (items == items[0]).nonzero().flatten().tolist()
    assert not torch.equal(images[first], images[again])


def test_an_epoch_can_start_after_its_first_batches(pictures):
    for transform in (RandomResizedCrop(8), Resize(8)):
        sampler = samplers.create("spc", pictures.labels, batch_size=6, per_class=2, batches=5)
        batches = Batches(pictures, transform=Compose((transform, CenterCrop(8))), batch_sampler=sampler)
        all_batches = tensors(batches, epoch=1)
        batches.set_epoch(1, start=3)
        rest = [(batch.images, batch.labels, batch.indices) for batch in batches]
        assert same(rest, all_batches[3:])


@pytest.mark.parametrize("kind", ["shuffled", "sampled"])
@pytest.mark.parametrize("transform", [RandomResizedCrop(8), None], ids=["augmented", "rows"])
def test_every_iteration_is_a_new_epoch(pictures, kind, transform):
    if transform is None:
        pictures = create_dataset("rows", Rows(np.arange(20.0).reshape(10, 2)), pictures.labels, ["train"] * 10)

    def make_batches():
        if kind == "shuffled":
            return Batches(pictures, transform=transform, batch_size=4, shuffle=True)
        sampler = samplers.create("spc", pictures.labels, batch_size=6, per_class=2)
        return Batches(pictures, transform=transform, batch_sampler=sampler)

    batches = make_batches()
    epochs = [[tuple(batch) for batch in batches] for _ in range(3)]
    assert not same(epochs[0], epochs[1])
    assert all(same(epoch, tensors(make_batches(), number)) for number, epoch in enumerate(epochs))
    batches.set_epoch(6, start=1)
    assert same([tuple(batch) for batch in batches], tensors(make_batches(), 6)[1:])
    assert same([tuple(batch) for batch in batches], tensors(make_batches(), 7)), "which leaves out nothing"


def test_nothing_touches_the_global_generator(pictures):
    before = torch.get_rng_state()
    for workers in (0, 1):
        list(Batches(pictures, transform=RandomResizedCrop(8), shuffle=True, workers=workers))
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_have_images_labels_and_indices(pictures):
    batches = Batches(pictures, transform=RandomResizedCrop(8), batch_size=4)
    all_batches = list(batches)
    assert len(batches) == len(all_batches) == 3
    assert all_batches[0].images.shape == (4, 3, 8, 8)
    assert all_batches[0].images.dtype == torch.uint8
    assert torch.cat([batch.indices for batch in all_batches]).tolist() == list(range(10))
    assert torch.equal(torch.cat([batch.labels for batch in all_batches]), pictures.labels)
    normal = next(iter(Batches(pictures, transform=RandomResizedCrop(8), normalize=IMAGENET, batch_size=4)))
    assert torch.equal(normal.images, IMAGENET(all_batches[0].images))


class Twice:
    """A batch sampler in which an item comes twice, in one batch and over the epoch."""

    def __init__(self):
        self.epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 2

    def __iter__(self):
        yield [3, 3]
        yield [self.epoch, 3]


def test_a_batch_sampler_decides_and_repeated_items_are_augmented_anew(pictures):
    sampler = Twice()
    batches = Batches(pictures, transform=RandomResizedCrop(8), batch_sampler=sampler)
    (first, _, _), (second, _, indices) = tensors(batches, epoch=7)
    assert len(batches) == 2
    assert indices.tolist() == [7, 3]
    assert len({first[0].numpy().tobytes(), first[1].numpy().tobytes(), second[1].numpy().tobytes()}) == 3
    with pytest.raises(ValueError, match="leave shuffle out"):
        Batches(pictures, batch_sampler=sampler, shuffle=True)


def test_images_of_different_sizes_need_a_transform(pictures):
    with pytest.raises(ValueError, match=r"images of 4 sizes.*give a transform that crops to one size"):
        next(iter(Batches(pictures, batch_size=4)))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        Batches(pictures, batch_size=0)


def test_arrays_of_small_images_in_gray_and_color():
    glyphs = create_dataset("g", Rows(np.arange(48, dtype=np.uint8).reshape(3, 4, 4)), [0, 0, 1], ["train"] * 3)
    plain = next(iter(Batches(glyphs, mode="L"))).images
    assert plain.shape == (3, 1, 4, 4)
    assert plain.flatten().tolist() == list(range(48))
    assert next(iter(Batches(glyphs))).images.shape == (3, 3, 4, 4)
    assert next(iter(Batches(glyphs, mode="L", transform=RandomResizedCrop(2)))).images.shape == (3, 1, 2, 2)


def test_features_are_loaded_unchanged():
    rows = create_dataset("f", Rows(np.eye(4, dtype=np.float32)), [0, 0, 1, 1], ["train"] * 4)
    batch = next(iter(Batches(rows, batch_size=3)))
    assert torch.equal(batch.images, torch.eye(4)[:3])


def test_the_cache_gives_the_same_batches(pictures):
    cached, skipped = cache_images(pictures)
    assert not skipped
    options = {"transform": RandomResizedCrop(8), "shuffle": True, "batch_size": 3}
    assert same(tensors(Batches(cached, **options)), tensors(Batches(pictures, **options)))
    assert cached.subset("train").items[9].shape == (20, 33, 3)


def test_the_cache_shrinks_large_images_and_stops_at_its_limit(pictures):
    cached, _ = cache_images(pictures, short_side=10)
    assert cached.items[0].shape == (10, 12, 3)
    expected = Resize(10)(decode(pictures.items[0]), torch.Generator())
    assert cached.items[0].tobytes() == expected.tobytes()
    assert cache_images(pictures, short_side=100)[0].items[0].shape == (20, 24, 3)
    with pytest.raises(ValueError, match=r"already take more than .* GiB; give a smaller short_side"):
        cache_images(pictures, limit=2000)
