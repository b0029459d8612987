"""What each rank of tests/samplers/test_distributed.py runs with Lightning, under torchrun with gloo."""

import json
import logging
import sys
import warnings

import lightning
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import kinfold

LABELS = torch.arange(40) // 5
EPOCHS = 3


class Recorder(lightning.LightningModule):
    """Trains a linear map, and notes which items each training batch held."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)
        self.epochs = []

    def on_train_epoch_start(self):
        self.epochs.append([])

    def training_step(self, batch, _):
        self.epochs[-1].append(batch.tolist())
        return self.layer(batch[:, None].float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def loader():
    sampler = kinfold.samplers.create("spc", LABELS, batch_size=16, per_class=4, seed=3)
    return DataLoader(torch.arange(40), batch_sampler=sampler)


def trainer(epochs, **options):
    return lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def recorded(epochs, path=None):
    """The batches of this rank in every epoch; the sampler is made before the process group."""
    module, training = Recorder(), trainer(epochs, use_distributed_sampler=False)
    training.fit(module, loader(), ckpt_path=path)
    return module.epochs, training


def refusal():
    """What is said where use_distributed_sampler=False is left out."""
    try:
        trainer(1).fit(Recorder(), loader())
    except ValueError as refused:
        return str(refused)


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    whole, training = recorded(EPOCHS)
    checkpoint = f"{sys.argv[1]}.ckpt"
    _, short = recorded(EPOCHS - 1)
    short.save_checkpoint(checkpoint)
    resumed, _ = recorded(EPOCHS, checkpoint)
    mine = {"whole": whole, "resumed": resumed, "refusal": refusal()}
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, mine)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as out:
            json.dump(gathered, out)
    dist.barrier()
    dist.destroy_process_group()
