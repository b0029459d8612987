"""The image pipelines of the papers by name: training transforms, test transforms, normalization."""

from dataclasses import dataclass, replace
from typing import Any

from kinfold import registry
from kinfold.data.color import ColorJitter, RandomGray
from kinfold.data.image_reading import BACKGROUND, Mode, parse_background
from kinfold.data.normalize import (
    BN_INCEPTION,
    EFFICIENTNET_LITE,
    IMAGENET,
    SMALL_COLOR,
    SMALL_GRAY,
    STUDY_BN_INCEPTION,
    Normalize,
)
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
    "small-color": Pipeline(Warp(28), Warp(28), SMALL_COLOR),
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


def adjust_pipeline(pipeline: Pipeline, size: int | None = None, flip: bool | None = None) -> Pipeline:
    """Return a pipeline for images of another size, or with or without random flips in training.

    Every length is scaled by the same factor: a pipeline that resizes the short side to 256 and crops 224 resizes to
    146 and crops 128 at size 128.

    Args:
        pipeline: The pipeline.
        size: Width and height of the images that the network gets; None leaves them.
        flip: True flips training images at random, False never; None leaves it to the pipeline. Turn flips off where
            left and right mean something, as in text.

    Raises:
        ValueError: The pipeline has steps without a size.

    Examples:
        >>> adjust_pipeline(create_pipeline("efficientnet-lite"), size=128).test.steps
        (Resize(size=146, resample=<Resampling.BICUBIC: 3>), CenterCrop(size=128))
    """
    train, test = _list_steps(pipeline.train), _list_steps(pipeline.test)
    if size is not None:
        factor = size / _find_size(test)
        train, test = [_scale(step, factor, size) for step in train], [_scale(step, factor, size) for step in test]
    if flip is not None:
        flips = any(isinstance(step, RandomFlip) for step in train)
        train = [step for step in train if flip or not isinstance(step, RandomFlip)]
        train += [RandomFlip()] if flip and not flips else []
    if size is None and flip is None:
        return pipeline
    return replace(pipeline, train=_join_steps(train), test=_join_steps(test))


def _list_steps(transform: Transform) -> list[Any]:
    return [*transform.steps] if isinstance(transform, Compose) else [transform]


def _join_steps(steps: list[Any]) -> Transform:
    return steps[0] if len(steps) == 1 else Compose(tuple(steps))


def _find_size(steps: list[Any]) -> int:
    sizes = [int(step.size) for step in steps if hasattr(step, "size")]
    if not sizes:
        raise ValueError("the pipeline has no step with a size: give one that has, or leave data.size out")
    return sizes[-1]


def _scale(step: Any, factor: float, size: int) -> Any:
    if not hasattr(step, "size"):
        return step
    scaled = round(step.size * factor)
    is_crop = isinstance(step, CenterCrop | RandomCrop | RandomResizedCrop)
    return replace(step, size=size if is_crop else max(size, scaled))
