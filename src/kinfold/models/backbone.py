"""What every backbone says about itself, whoever wrote it."""

from torch import Tensor, nn

from kinfold.data.image_reading import Mode


class Backbone(nn.Module):
    """Images to features: (B, C, H, W) -> (B, width, h, w), or (B, width) where it pools by itself.

    width: channels of the features
    stages: submodules in the order they run, after each of which activations may be mixed (`get_submodule` finds them)
    pipeline: the name in `kinfold.data.create_pipeline` it was made for; None where it takes what the data set gives
    mode: how images are read for it, "RGB" or grey "L"; None for rows of features
    weight_file: which file of weights fits, in words
    classifier: beginnings of the keys in such a file that belong to a classifier, which has no place here
    """

    width: int
    stages: tuple[str, ...] = ()
    pipeline: str | None = None
    mode: Mode | None = "RGB"
    weight_file: str = "its own state_dict()"
    classifier: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()  # without it a subclass would seem to take any options

    def get_network(self) -> nn.Module:
        """The module whose keys a weight file has: itself, or the network of a library that it stands for."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no forward")
