"""A checkpoint's weights as a file that any PyTorch program reads."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from drivetrain import tensor_files, tree
from drivetrain.cli import exports
from drivetrain.cli.errors import InvalidInput, NotFound
from drivetrain.cli.exports import ExportFormat


@pytest.fixture
def model(tmp_path: Path) -> nn.Module:
    """Its state and an optimizer's are what `tmp_path` holds, as rank 0 stores them."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    tensors = tree.Collected()
    things = {
        name: tree.encode(thing.state_dict(), name, tensors)
        for name, thing in (("optimizer", optimizer), ("model", model))
    }
    (tmp_path / "rank-0.json").write_text(json.dumps({"things": things}))
    content = b"".join(tensor_files.TensorFile(tensors.tensors))
    (tmp_path / "rank-0.safetensors").write_bytes(content)
    return model


@pytest.mark.parametrize("form", ExportFormat)
def test_an_exported_model_has_equal_weights(
    tmp_path: Path, model: nn.Module, form: ExportFormat
) -> None:
    name, state = exports._state(tmp_path, None)
    exports._write(state, name, form, tmp_path / "exported")
    assert name == "model"
    read = load_file if form is ExportFormat.SAFETENSORS else torch.load
    loaded = read(tmp_path / "exported")
    assert loaded.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded[key], tensor)


def test_what_is_not_there_or_no_tensor_is_refused(tmp_path: Path, model: nn.Module) -> None:
    with pytest.raises(NotFound, match="optimizer, model"):
        exports._state(tmp_path, "ema")
    name, state = exports._state(tmp_path, "optimizer")
    with pytest.raises(InvalidInput, match="more than tensors"):
        exports._write(state, name, ExportFormat.SAFETENSORS, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
    exports._write(state, name, ExportFormat.STATE_DICT, tmp_path / "exported")
    assert torch.load(tmp_path / "exported")["param_groups"][0]["lr"] == 0.001
