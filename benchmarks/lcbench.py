"""The surrogate of LCBench: 34 data sets, 7 hyperparameters, epochs 1 to 52 (ONNX, from YAHPO Gym).

The folder of the data is `DRIVETRAIN_DATA` (default `../shared/data`). onnxruntime is no dependency
of Drivetrain: it is installed into a folder of its own in the cache, at the first use.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import skip
from services.hpo.core.space import Integer, Parameter, Scalar, Uniform

FLOATS = NDArray[np.float64]
EPOCHS = 52
PARAMETERS: Mapping[str, Parameter] = {
    "batch_size": Integer(16, 512, log=True),
    "learning_rate": Uniform(1e-4, 1e-1, log=True),
    "momentum": Uniform(0.1, 0.99),
    "weight_decay": Uniform(1e-5, 1e-1),
    "num_layers": Integer(1, 5),
    "max_units": Integer(64, 1024, log=True),
    "max_dropout": Uniform(0.0, 1.0),
}
_PACKAGES = ("onnxruntime==1.32.0", "flatbuffers==25.12.19", "protobuf==7.36.2")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drivetrain" / "search"
_NUM_RANDOM = 40_000


class Surrogate:
    """Validation accuracy and training time of any configuration on any of the 34 data sets."""

    epochs = EPOCHS

    def __init__(self, folder: Path) -> None:
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = runtime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._codes: dict[str, int] = json.loads((folder / "encoding.json").read_text())[
            "OpenML_task_id"
        ]
        space = json.loads((folder / "config_space.json").read_text())["hyperparameters"]
        self.tasks: tuple[str, ...] = tuple(space[0]["choices"])

    def run(self, task: str, configs: FLOATS, epochs: FLOATS) -> tuple[FLOATS, FLOATS]:
        """Accuracies (%) and seconds of training, each (n,), of configurations (n, 7).

        The columns of `configs` are in the order of PARAMETERS.
        """
        codes = np.full((len(configs), 1), self._codes[task], dtype=np.int32)
        inputs = np.column_stack([epochs, configs]).astype(np.float32)
        (output,) = self._session.run(None, {"x_cat": codes, "x_cont": inputs})
        return output[:, 1].astype(np.float64), output[:, 0].astype(np.float64)

    def curve(self, task: str, point: Mapping[str, Scalar]) -> tuple[FLOATS, FLOATS]:
        """Accuracies and seconds since the start at the end of each of the 52 epochs."""
        config = np.array([float(point[name]) for name in PARAMETERS])
        epochs = np.arange(1.0, EPOCHS + 1)
        accuracies, seconds = self.run(task, np.tile(config, (EPOCHS, 1)), epochs)
        return accuracies, np.maximum.accumulate(np.maximum(seconds, 1e-3))

    def scale(self, task: str) -> tuple[float, float]:
        """The best accuracy known, of 40,000 random points, then polished; and their median."""
        path = CACHE / "scale" / f"{task}.json"
        if not path.exists():
            keep(path, json.dumps(self._measure_scale(task)))
        best, median = json.loads(path.read_text())
        return best, median

    def _measure_scale(self, task: str) -> tuple[float, float]:
        rng = np.random.default_rng(4711)
        units = rng.random((_NUM_RANDOM, len(PARAMETERS)))
        values = self._full(task, units)
        median = float(np.median(values))
        width = 0.2
        for _ in range(40):
            top = np.argsort(values)[-32:]
            units, values = units[top], values[top]
            moved = np.repeat(units, 32, axis=0)
            step = rng.normal(0.0, width, moved.shape) * (rng.random(moved.shape) < 0.5)
            moved = np.clip(moved + step, 0.0, 1.0)
            units = np.vstack([units, moved])
            values = np.concatenate([values, self._full(task, moved)])
            width *= 0.88
        return float(values.max()), median

    def _full(self, task: str, units: FLOATS) -> FLOATS:
        return self.run(task, configs(units), np.full(len(units), float(EPOCHS)))[0]


def configs(units: FLOATS) -> FLOATS:
    """Configurations (n, 7) of points of the unit cube, in the order of PARAMETERS."""
    columns = []
    for column, parameter in zip(units.T, PARAMETERS.values(), strict=True):
        assert isinstance(parameter, Integer | Uniform)
        whole = isinstance(parameter, Integer)
        low, high = float(parameter.low), float(parameter.high) + whole
        ratio = high / low if parameter.log else 1.0
        values = low * ratio**column if parameter.log else low + (high - low) * column
        columns.append(np.minimum(np.floor(values), parameter.high) if whole else values)
    return np.column_stack(columns)


def keep(path: Path, text: str) -> None:
    """Write a file of the cache, whole at once: other processes read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text(text)
    written.rename(path)


@cache
def surrogate() -> Surrogate:
    folder = Path(os.environ.get("DRIVETRAIN_DATA", "../shared/data")) / "yahpo-lcbench"
    if not (folder / "model.onnx").exists():
        skip(
            f"{folder}/model.onnx is missing: set DRIVETRAIN_DATA to a folder with yahpo-lcbench/ "
            "(the files of github.com/slds-lmu/yahpo_data, folder lcbench)"
        )
    return Surrogate(folder)


def _onnxruntime() -> Any:
    folder = CACHE / "onnxruntime"
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        command: Sequence[str] = (sys.executable, "-m", "uv", "pip", "install", "--quiet")
        subprocess.run([*command, "--no-deps", "--target", str(made), *_PACKAGES], check=True)
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    sys.path.append(str(folder))
    return importlib.import_module("onnxruntime")
