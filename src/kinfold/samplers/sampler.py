"""What all samplers share: an epoch of global batches, and this rank's part of each."""

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

    Every iteration is a new epoch with batches of its own: 0, 1, 2, ... `set_epoch(n)` makes the next iteration epoch
    n, and the ones after it count on from there. An epoch begins when its first batch is asked for.

    `batch_size` is that of all ranks together. Every rank works out the same global batches from seed and epoch and
    takes its own part of each, so the parts in the order of the ranks are the global batch. Parts differ by one item
    where `ranks` does not divide the batch. Without `rank` and `ranks` torch.distributed is asked whenever an epoch
    begins, so a sampler may be made before the process group. The global random state is neither used nor changed.

    Samplers with `needs_embeddings` choose by where items lie: `update` writes embeddings, those of all items first
    and then those of every training step. The batches of an epoch are chosen when it begins, whatever is written
    later. On several ranks every rank must be given the same (gathered) updates.

    Args:
        classes: The items of every class.
        batch_size: Items of a batch, over all ranks.
        batches: Batches of an epoch.
        seed: With the epoch, decides every draw.
        rank, ranks: Process rank and world size; give both or neither. `rank=0, ranks=1` gives whole batches on every
            process, for libraries that share them out themselves.
    """

    needs_embeddings: bool = False

    def __init__(
        self,
        classes: ClassIndex,
        batch_size: int,
        batches: int,
        seed: int,
        rank: int | None,
        ranks: int | None,
    ) -> None:
        check_integer(1, batch_size=batch_size, batches=batches)
        check_integer(0, seed=seed)
        resolve_process(rank, ranks, batch_size)
        self.classes = classes
        self.batch_size = batch_size
        self.batches = batches
        self.seed = seed
        self.epoch = 0  # of the latest iteration, or of the next one where set_epoch chose it
        self.bank: EmbeddingBank | None = EmbeddingBank(len(classes.items)) if self.needs_embeddings else None
        self._fixed_place = rank, ranks
        self._planned: Tensor | None = None  # the batches of `epoch`
        self._begun = False  # whether an iteration of `epoch` has begun
        self._finished = False  # whether it has given all of its batches

    @property
    def rank(self) -> int:
        """Process rank: the one given, else that of the process group at this moment."""
        return self._place()[0]

    @property
    def ranks(self) -> int:
        """World size: the one given, else that of the process group at this moment."""
        return self._place()[1]

    @property
    def sampler(self) -> "Sampler":
        """This sampler. Lightning and accelerate call `set_epoch` of `batch_sampler.sampler`."""
        return self

    @property
    def drop_last(self) -> bool:
        """Not an attribute of this sampler: whoever asks is about to share out its batches among processes.

        Raises:
            ValueError: Where the batches are shared out already; accelerate would silently drop most of them.
            AttributeError: Otherwise.
        """
        if self._fixed_place == (None, None) and self.ranks > 1:
            raise ValueError(
                f"this sampler already gives each of the {self.ranks} processes its part of every batch, and must not "
                "be shared out once more. accelerate: create it with rank=0, ranks=1 and use "
                "Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True)), or leave the loader out "
                "of accelerator.prepare. Lightning: Trainer(use_distributed_sampler=False)"
            )
        raise AttributeError("kinfold samplers have no drop_last: all of their batches are full")

    def plan(self, epoch: int) -> Tensor:
        """The global batches of an epoch, (batches, batch_size) item indices: the same on every rank."""
        raise NotImplementedError(f"{type(self).__name__} does not say which batches it makes")

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch. An epoch that is under way keeps the batches it has."""
        check_integer(0, epoch=epoch)
        self._turn_to(epoch)

    @property
    def ready(self) -> bool:
        """Whether batches can be made: False while a sampler that needs embeddings lacks those of some items."""
        return self.bank is None or self.bank.is_complete

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        """Write the embeddings (B, D) of the items `indices` (B,); nothing happens where none are needed."""
        if self.bank is not None:
            self.bank.write(indices, embeddings)

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, so that the epoch begins with the first batch that is asked for: Lightning makes the first
        # iterator of a resumed training before it calls set_epoch
        epoch, plan, part = self._begin()
        for batch in plan[:, part]:
            yield batch.tolist()
        self._end(epoch)

    def iterate_draws(self) -> Iterator[list[tuple[int, int]]]:
        """This rank's part of the batches, each item with how often it came before in the epoch, on any rank.

        The epoch begins at once, so that `epoch` is its number.
        """
        return self._draws(*self._begin())

    def _draws(self, epoch: int, plan: Tensor, part: slice) -> Iterator[list[tuple[int, int]]]:
        counts: Counter[int] = Counter()
        for batch in plan:
            draws = []
            for item in batch.tolist():
                draws.append((item, counts[item]))
                counts[item] += 1
            yield draws[part]
        self._end(epoch)

    def _begin(self) -> tuple[int, Tensor, slice]:
        """Begin an iteration: its epoch, the global batches, and which part of each is this rank's."""
        if self._begun or self._finished:
            self._turn_to(self.epoch + 1)
        rank, ranks = self._place()
        if self._planned is None:
            self._planned = self.plan(self.epoch)
        self._begun = True
        return self.epoch, self._planned, slice(rank * self.batch_size // ranks, (rank + 1) * self.batch_size // ranks)

    def _end(self, epoch: int) -> None:
        if epoch == self.epoch and self._begun:  # nobody has turned to another one meanwhile
            self._finished = True

    def _turn_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self._planned = epoch, None
        self._begun = self._finished = False

    def _place(self) -> tuple[int, int]:
        return resolve_process(*self._fixed_place, self.batch_size)

    def __len__(self) -> int:
        return self.batches

    def state_dict(self) -> dict[str, Any]:
        """What changes while training: the epoch, whether it is over, and with a memory bank its rows and batches."""
        state = {"epoch": self.epoch, "finished": self._finished}
        return state if self.bank is None else {**state, "planned": self._planned, **self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, on a sampler made with the same labels and options.

        The next iteration is the epoch that was under way, from its first batch, or the one after it where that was
        over.
        """
        expected = [*self.state_dict()]
        if {"finished", *state} != set(expected):  # states of kinfold 0.1 do not say whether the epoch was over
            raise ValueError(
                f"the state of this sampler has {', '.join(expected)}; got {', '.join(state) or 'nothing'}"
            )
        planned = state.get("planned")
        if planned is not None and tuple(planned.shape) != (self.batches, self.batch_size):
            raise ValueError(
                f"the saved batches have shape {tuple(planned.shape)}, this sampler makes "
                f"{(self.batches, self.batch_size)}; create it with the options of the saved one"
            )
        check_integer(0, epoch=state["epoch"])
        if self.bank is not None:
            self.bank.load_state_dict(state)
        self.epoch = state["epoch"]
        self._planned = None if planned is None else planned.clone()
        self._begun, self._finished = False, bool(state.get("finished", False))
