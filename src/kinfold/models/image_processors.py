"""Image pipelines from the settings that transformers stores beside a model."""

from pathlib import Path
from typing import Any

from PIL import Image

from kinfold.data.normalize import Normalize
from kinfold.data.pipelines import Pipeline
from kinfold.data.transforms import CenterCrop, Compose, RandomFlip, RandomResizedCrop, Resize, Transform, Warp


def read_pipeline(library: Any, model: str) -> Pipeline | None:
    """Return the pipeline that the image processor of a model describes.

    Images are tested as the processor prepares them. In training, a random part is resized to the same size, with the
    same interpolation, and flipped at random.

    Args:
        library: The module transformers.
        model: Name on the hub, or path of a folder.

    Returns:
        The pipeline; None where there is no preprocessor_config.json.

    Raises:
        ValueError: The processor does something that a pipeline cannot do.
    """
    processor = library.image_processing_base.ImageProcessingMixin
    try:
        settings, _ = processor.get_image_processor_dict(model, local_files_only=Path(model).is_dir())
    except (OSError, ValueError):
        return None
    return build_pipeline(settings, model)


def build_pipeline(settings: dict[str, Any], model: str) -> Pipeline:
    """Return the pipeline of the settings of an image processor.

    Args:
        settings: What preprocessor_config.json holds: size, crop_size, crop_pct, resample, image_mean, image_std and
            the switches do_resize, do_center_crop, do_rescale, do_normalize.
        model: Name of the model, for error messages.

    Raises:
        ValueError: Images would not be squares, or values are missing.

    Examples:
        >>> settings = {"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True, "resample": 3}
        >>> build_pipeline(settings, "tiny").test.steps
        (Resize(size=256, resample=<Resampling.BICUBIC: 3>), CenterCrop(size=224))
    """
    resample = Image.Resampling(int(settings.get("resample", Image.Resampling.BILINEAR)))
    steps = _build_test_steps(settings, model, resample)
    size = next(step.size for step in reversed(steps))
    train: Transform = Compose((RandomResizedCrop(size, resample=resample), RandomFlip()))
    test: Transform = steps[0] if len(steps) == 1 else Compose(tuple(steps))
    return Pipeline(train, test, _build_normalization(settings, model))


def _build_test_steps(settings: dict[str, Any], model: str, resample: Image.Resampling) -> list[Any]:
    size = settings.get("size") or {}
    size = {"shortest_edge": size} if isinstance(size, int) else size
    does_crop = bool(settings.get("do_center_crop", settings.get("crop_size") is not None))
    crop = _find_side(settings.get("crop_size", size), model) if does_crop else None
    steps: list[Any] = []
    if settings.get("do_resize", True):
        if "shortest_edge" in size:
            short = int(size["shortest_edge"])
            fraction = settings.get("crop_pct")
            if fraction is not None and short < 384:  # ConvNeXt resizes to more than it crops, but not from 384 on
                steps, crop = [Resize(int(short / fraction), resample)], short
            elif fraction is not None:
                steps, crop = [Warp(short, resample)], None
            else:
                steps = [Resize(short, resample)]
                crop = short if crop is None else crop  # a network takes images of one size
        else:
            steps = [Warp(_find_side(size, model), resample)]
    return steps if crop is None else [*steps, CenterCrop(crop)]


def _find_side(size: Any, model: str) -> int:
    if isinstance(size, int):
        return size
    height, width = (size.get(key) for key in ("height", "width")) if isinstance(size, dict) else (None, None)
    if "shortest_edge" in (size or ()):
        return int(size["shortest_edge"])
    if height is None or height != width:
        raise ValueError(
            f"the image processor of {model} makes images of {size}, and kinfold takes squares: set data.pipeline and "
            "data.size"
        )
    return int(height)


def _build_normalization(settings: dict[str, Any], model: str) -> Normalize:
    factor = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    mean, std = settings.get("image_mean"), settings.get("image_std")
    if not settings.get("do_normalize", True) or mean is None or std is None:
        mean, std = [0.0] * 3, [1.0] * 3
    if len(mean) != 3 or len(std) != 3:
        raise ValueError(f"the image processor of {model} has {len(mean)} channels, not 3: set data.pipeline")
    # x * factor, then (x - mean) / std, as one (x / 255 - mean') / std'
    scale = 255 * float(factor)
    return Normalize(tuple(float(m) / scale for m in mean), tuple(float(s) / scale for s in std))
