"""Low-rank adapters in a tiny vision transformer."""

import pytest
import torch

from kinfold import models
from kinfold.models.lora import add_adapters
from tests.models.test_image_processors import tiny_vit

pytest.importorskip("peft")
pytest.importorskip("transformers")


@pytest.fixture
def vit(tmp_path):
    return models.create(f"transformers/{tiny_vit(tmp_path)}", weights="pretrained", dim=4).backbone


def test_adapters_start_as_nothing_and_compute_what_the_paper_says(vit):
    images = torch.randn(2, 3, 32, 32)
    before = vit.eval()(images)
    weights = {name: value.clone() for name, value in vit.state_dict().items()}
    add_adapters(vit, rank=2, alpha=6.0, seed=1)
    assert torch.equal(vit.eval()(images), before)
    trained = {name for name, parameter in vit.named_parameters() if parameter.requires_grad}
    assert len(trained) == 3 * 2 * 2  # blocks, queries and values, A and B
    assert all("lora_" in name for name in trained)
    layer = next(module for name, module in vit.named_modules() if name.endswith("q_proj"))
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert (a.shape, b.shape) == ((2, 16), (16, 2))
    torch.nn.init.normal_(b)
    x = torch.randn(5, 16)
    expected = x @ layer.base_layer.weight.T + layer.base_layer.bias + (6.0 / 2) * x @ a.T @ b.T
    torch.testing.assert_close(layer(x), expected)
    kept = {name: value for name, value in vit.state_dict().items() if "lora_" not in name}
    assert {name.replace("base_layer.", "") for name in kept} == set(weights)


def test_adapters_depend_on_the_seed_alone(tmp_path):
    folder = tiny_vit(tmp_path)

    def draw(seed):
        backbone = models.create(f"transformers/{folder}", dim=4).backbone
        torch.rand(seed + 1)
        state = torch.get_rng_state()
        add_adapters(backbone, rank=2, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        return next(value for name, value in backbone.state_dict().items() if "lora_A" in name)

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


def test_targets_name_the_layers(vit):
    with pytest.raises(ValueError, match=r"no layer of the backbone ends in nothing.*set lora.targets to some of"):
        add_adapters(vit, targets=["nothing"])
    add_adapters(vit, targets=["fc1"])
    assert {name.split(".lora_")[0].rpartition(".")[2] for name, _ in vit.named_parameters() if "lora_" in name} == {
        "fc1"
    }
