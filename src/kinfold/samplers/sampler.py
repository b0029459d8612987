"""The base class of samplers: an epoch of global batches, and the part of each that this process gets."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import Sampler as TorchSampler

from kinfold.samplers.checks import check_integer, resolve_process
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.embedding_bank import EmbeddingBank


class Sampler(TorchSampler[list[int]]):
    """A torch batch sampler: `DataLoader(dataset, batch_sampler=sampler)`.

    Every iteration is a new epoch with other batches: 0, 1, 2, ... `set_epoch(n)` makes the next iteration epoch n, and
    later iterations count on from it. An epoch begins when its first batch is requested.

    `batch_size` is that of all processes together. Every process computes the same global batches from seed and epoch,
    and takes its part of each; the parts in the order of the ranks are the global batch. Parts differ by one item if
    the world size does not divide the batch. If `rank` and `world_size` are left out, torch.distributed is asked
    whenever an epoch begins, so a sampler may be created before the process group. The global random state is neither
    used nor changed.

    Samplers with `needs_embeddings` choose items by their embeddings. `update` writes these: first those of all items,
    then those of every training step. The batches of an epoch are chosen when it begins; later updates do not change
    them. With several processes, every process must get the same (gathered) updates.

    A new sampler is a subclass that implements `plan`.

    Args:
        classes: The items of every class.
        batch_size: Items per batch, over all processes.
        batches: Batches per epoch.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Give both or neither. `rank=0, world_size=1` gives complete batches on every process, for
            libraries that distribute them themselves.

    Attributes:
        epoch: Number of the latest epoch, or of the next one after `set_epoch`.
        needs_embeddings: Whether the sampler chooses items by their embeddings.
        bank: The latest embedding of every item, if `needs_embeddings`; else None.
    """

    needs_embeddings: bool = False

    def __init__(
        self,
        classes: ClassIndex,
        batch_size: int,
        batches: int,
        seed: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        check_integer(1, batch_size=batch_size, batches=batches)
        check_integer(0, seed=seed)
        resolve_process(rank, world_size, batch_size)
        self.classes = classes
        self.batch_size = batch_size
        self.batches = batches
        self.seed = seed
        self.epoch = 0
        self.bank: EmbeddingBank | None = EmbeddingBank(len(classes.items)) if self.needs_embeddings else None
        self._fixed_rank = rank, world_size
        self._planned: Tensor | None = None  # the batches of `epoch`
        self._begun = False  # whether an iteration of `epoch` has begun
        self._finished = False  # whether it has yielded all of its batches

    @property
    def rank(self) -> int:
        """Process rank: the constructor argument, else that of the current process group."""
        return self._resolve_rank()[0]

    @property
    def world_size(self) -> int:
        """World size: the constructor argument, else that of the current process group."""
        return self._resolve_rank()[1]

    @property
    def sampler(self) -> "Sampler":
        """This sampler. Lightning and accelerate call `set_epoch` of `batch_sampler.sampler`."""
        return self

    @property
    def drop_last(self) -> bool:
        """Not an attribute of this sampler: libraries read it before they distribute its batches over processes.

        Raises:
            ValueError: The batches are already distributed; accelerate would silently drop most of them.
            AttributeError: Otherwise.
        """
        if self._fixed_rank == (None, None) and self.world_size > 1:
            raise ValueError(
                f"this sampler already gives each of the {self.world_size} processes its part of every batch, and must "
                "not be distributed again. accelerate: create it with rank=0, world_size=1 and use "
                "Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True)), or leave the loader out "
                "of accelerator.prepare. Lightning: Trainer(use_distributed_sampler=False)"
            )
        raise AttributeError("kinfold samplers have no drop_last: all of their batches are full")

    def plan(self, epoch: int) -> Tensor:
        """Return the global batches of an epoch, (batches, batch_size) item indices: the same on every process."""
        raise NotImplementedError(f"{type(self).__name__} has no method plan(epoch)")

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch. An iteration that has begun keeps its batches."""
        check_integer(0, epoch=epoch)
        self._move_to(epoch)

    @property
    def ready(self) -> bool:
        """Whether batches can be chosen: False if the sampler needs embeddings and lacks those of some items."""
        return self.bank is None or self.bank.is_complete

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        """Store embeddings of items. Samplers that need no embeddings ignore it.

        Args:
            indices: Positions of the items, integers (B,).
            embeddings: (B, D).

        Raises:
            ValueError: Shapes do not fit, an index is out of range, or an embedding is not finite.
        """
        if self.bank is not None:
            self.bank.write(indices, embeddings)

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, so that the epoch begins with the first batch: Lightning creates the first iterator of a resumed
        # training before it calls set_epoch
        epoch, plan, part = self._begin()
        for batch in plan[:, part]:
            yield batch.tolist()
        self._end(epoch)

    def iterate_draws(self) -> Iterator[list[tuple[int, int]]]:
        """Iterate over this process's part of the batches, each item with how often it came before on any process.

        The epoch begins at once, so that `epoch` is its number.
        """
        return self._iterate_draws(*self._begin())

    def _iterate_draws(self, epoch: int, plan: Tensor, part: slice) -> Iterator[list[tuple[int, int]]]:
        counts: Counter[int] = Counter()
        for batch in plan:
            draws = []
            for item in batch.tolist():
                draws.append((item, counts[item]))
                counts[item] += 1
            yield draws[part]
        self._end(epoch)

    def _begin(self) -> tuple[int, Tensor, slice]:
        """Begin an iteration; returns its epoch, the global batches, and which part of each this process gets."""
        if self._begun or self._finished:
            self._move_to(self.epoch + 1)
        rank, world_size = self._resolve_rank()
        if self._planned is None:
            self._planned = self.plan(self.epoch)
        self._begun = True
        start, end = rank * self.batch_size // world_size, (rank + 1) * self.batch_size // world_size
        return self.epoch, self._planned, slice(start, end)

    def _end(self, epoch: int) -> None:
        if epoch == self.epoch and self._begun:  # no other epoch was chosen meanwhile
            self._finished = True

    def _move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self._planned = epoch, None
        self._begun = self._finished = False

    def _resolve_rank(self) -> tuple[int, int]:
        return resolve_process(*self._fixed_rank, self.batch_size)

    def __len__(self) -> int:
        return self.batches

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training: the epoch, whether it is over, and the embedding bank and its batches."""
        state = {"epoch": self.epoch, "finished": self._finished}
        return state if self.bank is None else {**state, "planned": self._planned, **self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, with a sampler of the same labels and options.

        The next iteration is the epoch that had begun, from its first batch, or the next one if that epoch was over.

        Raises:
            ValueError: The state is that of another sampler.
        """
        expected = [*self.state_dict()]
        if {"finished", *state} != set(expected):  # states of kinfold 0.1 do not say whether the epoch was over
            raise ValueError(
                f"the state of this sampler has {', '.join(expected)}; got {', '.join(state) or 'nothing'}"
            )
        planned = state.get("planned")
        if planned is not None and tuple(planned.shape) != (self.batches, self.batch_size):
            raise ValueError(
                f"the saved batches have shape {tuple(planned.shape)}, those of this sampler "
                f"{(self.batches, self.batch_size)}; create it with the options of the saved one"
            )
        check_integer(0, epoch=state["epoch"])
        if self.bank is not None:
            self.bank.load_state_dict(state)
        self.epoch = state["epoch"]
        self._planned = None if planned is None else planned.clone()
        self._begun, self._finished = False, bool(state.get("finished", False))
