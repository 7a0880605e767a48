"""Small data for the scripts of this folder: each makes its own, with fixed numbers."""

import torch
from torch.utils.data import TensorDataset

torch.set_num_threads(1)


def points(number: int = 48, width: int = 6) -> TensorDataset:
    """Two classes of points."""
    x = torch.randn(number, width, generator=torch.Generator().manual_seed(5))
    return TensorDataset(x, (x.sum(1) > 0).long())


def text(length: int = 400, symbols: int = 11) -> torch.Tensor:
    """Symbols, each of which depends on the two before."""
    out = [1, 2]
    while len(out) < length:
        out.append((out[-1] + 3 * out[-2] + len(out) % 3) % symbols)
    return torch.tensor(out)


class Kept:
    """Numbers of the script that a checkpoint must hold."""

    def __init__(self, **values: object) -> None:
        self.values = values

    def state_dict(self) -> dict[str, object]:
        return dict(self.values)

    def load_state_dict(self, values: dict[str, object]) -> None:
        self.values = dict(values)
