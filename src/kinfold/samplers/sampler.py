"""What all samplers share: an epoch of global batches, and this rank's part of each."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import Sampler as TorchSampler

from kinfold.samplers.bank import Bank
from kinfold.samplers.classes import Classes
from kinfold.samplers.options import place, whole


class Sampler(TorchSampler[list[int]]):
    """A torch batch sampler: `DataLoader(dataset, batch_sampler=sampler)`, and `set_epoch` before every epoch.

    `batch_size` is that of all ranks together. Every rank works out the same global batches from seed and epoch and
    takes its own stretch of each, so the stretches in the order of the ranks are the global batch. Without `rank` and
    `ranks` torch.distributed is asked, where it is initialised. Stretches differ by one item where `ranks` does not
    divide the batch. The global random state is neither used nor changed.

    Samplers with `needs_embeddings` choose by where items lie: `update` writes embeddings, those of all items first
    and then those of every training step. Their batches are fixed at `set_epoch`, whatever is written later. On several
    ranks every rank must be given the same (gathered) updates.
    """

    needs_embeddings: bool = False

    def __init__(
        self,
        classes: Classes,
        batch_size: int,
        batches: int,
        seed: int,
        rank: int | None,
        ranks: int | None,
    ) -> None:
        whole(1, batch_size=batch_size, batches=batches)
        whole(0, seed=seed)
        self.classes = classes
        self.batch_size = batch_size
        self.batches = batches
        self.seed = seed
        self.rank, self.ranks = place(rank, ranks, batch_size)
        self.epoch = 0
        self.bank: Bank | None = Bank(len(classes.items)) if self.needs_embeddings else None
        self._planned: Tensor | None = None

    def plan(self, epoch: int) -> Tensor:
        """The global batches of an epoch, (batches, batch_size) item indices: the same on every rank."""
        raise NotImplementedError(f"{type(self).__name__} does not say which batches it makes")

    def set_epoch(self, epoch: int) -> None:
        """Turn to the batches of this epoch. An epoch that is already under way keeps the batches it has."""
        whole(0, epoch=epoch)
        if epoch != self.epoch:
            self.epoch, self._planned = epoch, None
        if self.bank is not None:
            self._plan()

    @property
    def ready(self) -> bool:
        """Whether batches can be made: False while a sampler that needs embeddings lacks those of some items."""
        return self.bank is None or self.bank.complete

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        """Write the embeddings (B, D) of the items `indices` (B,); nothing happens where none are needed."""
        if self.bank is not None:
            self.bank.write(indices, embeddings)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._plan()[:, self._stretch()]:
            yield batch.tolist()

    def draws(self) -> Iterator[list[tuple[int, int]]]:
        """This rank's part of the batches, each item with how often it came before in the epoch, on any rank."""
        mine = self._stretch()
        drawn: Counter[int] = Counter()
        for batch in self._plan():
            found = []
            for item in batch.tolist():
                found.append((item, drawn[item]))
                drawn[item] += 1
            yield found[mine]

    def _stretch(self) -> slice:
        return slice(self.rank * self.batch_size // self.ranks, (self.rank + 1) * self.batch_size // self.ranks)

    def __len__(self) -> int:
        return self.batches

    def state_dict(self) -> dict[str, Any]:
        """What changes while training: the epoch, and with a memory bank its rows and the batches under way."""
        if self.bank is None:
            return {"epoch": self.epoch}
        return {"epoch": self.epoch, "planned": self._planned, **self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, on a sampler made with the same labels and options."""
        expected = [*self.state_dict()]
        if set(state) != set(expected):
            raise ValueError(
                f"the state of this sampler has {', '.join(expected)}; got {', '.join(state) or 'nothing'}"
            )
        planned = state.get("planned")
        if planned is not None and tuple(planned.shape) != (self.batches, self.batch_size):
            raise ValueError(
                f"the saved batches have shape {tuple(planned.shape)}, this sampler makes "
                f"{(self.batches, self.batch_size)}; create it with the options of the saved one"
            )
        whole(0, epoch=state["epoch"])
        if self.bank is not None:
            self.bank.load_state_dict(state)
        self.epoch = state["epoch"]
        self._planned = None if planned is None else planned.clone()

    def _plan(self) -> Tensor:
        if self._planned is None:
            self._planned = self.plan(self.epoch)
        return self._planned
