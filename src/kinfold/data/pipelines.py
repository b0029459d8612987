"""The image pipelines of the papers by name: training transforms, test transforms, normalization."""

from dataclasses import dataclass

from kinfold import registry
from kinfold.data.color import ColorJitter, RandomGray
from kinfold.data.image_reading import BACKGROUND, Mode, parse_background
from kinfold.data.normalize import BN_INCEPTION, EFFICIENTNET_LITE, IMAGENET, SMALL_GRAY, STUDY_BN_INCEPTION, Normalize
from kinfold.data.transforms import (
    BICUBIC,
    CenterCrop,
    Compose,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Transform,
    Warp,
)


@dataclass(frozen=True)
class Pipeline:
    """Transforms of single images for training and testing, and the normalization of batches.

    Args:
        train, test: Transforms of single images.
        normalize: Normalization of uint8 batches; None leaves them as bytes.
        mode: "RGB", or "L" for gray.
        background: Color under transparent pixels, a name or "#rrggbb".

    Raises:
        ValueError: The background is not a color.
    """

    train: Transform
    test: Transform
    normalize: Normalize | None
    mode: Mode = "RGB"
    background: str = BACKGROUND

    def __post_init__(self) -> None:
        parse_background(self.background)


def _study(*steps: Transform, size: int = 224, normalize: Normalize = IMAGENET) -> Pipeline:
    return Pipeline(Compose((*steps, RandomFlip())), Compose((Resize(256), CenterCrop(size))), normalize)


_BN_INCEPTION_TRAIN = Compose((Resize(256), RandomResizedCrop(227, (0.16, 1.0), (0.75, 1.33)), RandomFlip()))
_BN_INCEPTION_TEST = Compose((Resize(256), CenterCrop(227)))

PIPELINES: dict[str, Pipeline] = {
    # Roth et al., ICML 2020, and its variants
    "study": _study(RandomResizedCrop(224)),
    "study-adv": _study(RandomResizedCrop(224), RandomGray(0.2), ColorJitter(0.2, 0.2, 0.2, 0.2)),
    "study-big": _study(RandomResizedCrop(256), size=256),
    "study-red": _study(Resize(256), RandomCrop(224)),
    "study-googlenet": _study(RandomResizedCrop(227), size=227),
    "study-bn-inception": _study(RandomResizedCrop(224), normalize=STUDY_BN_INCEPTION),
    # Musgrave et al., ECCV 2020; the DRO paper's code does the same
    "bn-inception": Pipeline(_BN_INCEPTION_TRAIN, _BN_INCEPTION_TEST, BN_INCEPTION),
    # warp and crop, as in the Prec@k paper
    "warp": Pipeline(
        Compose((Warp(256), RandomCrop(227), RandomFlip())), Compose((Warp(256), CenterCrop(227))), BN_INCEPTION
    ),
    # glyphs and Omniglot for small networks: 28 x 28, gray
    "small-grey": Pipeline(Warp(28), Warp(28), SMALL_GRAY, "L"),
    "efficientnet-lite": Pipeline(
        Compose((RandomResizedCrop(224, resample=BICUBIC), RandomFlip())),
        Compose((Resize(256, BICUBIC), CenterCrop(224))),
        EFFICIENTNET_LITE,
    ),
}


def create_pipeline(name: str) -> Pipeline:
    """Return a pipeline by its name.

    Args:
        name: One of `kinfold.data.pipelines.PIPELINES`, such as "study" or "bn-inception".

    Raises:
        ValueError: The name is unknown.

    Examples:
        >>> create_pipeline("bn-inception").normalize.bgr
        True
    """
    registry.check_known("pipeline", name, PIPELINES)
    return PIPELINES[name]
