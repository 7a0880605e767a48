"""Cells: the part of [0, 1] that each value of a dimension owns, for many places at once."""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.parameters import Choice, Integer, Parameter, Uniform

Units = NDArray[np.float64]


class Cells:
    """Of these dimensions, in order: the columns of all places."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        even, logs = [], []
        for column, parameter in enumerate(parameters):
            match parameter:
                case Uniform():
                    pass
                case Integer(low=low, high=high, log=True):
                    logs.append((column, low, high, log(low), log(high + 1)))
                case Integer(low=low, high=high):
                    even.append((column, high - low + 1, high - low))
                case Choice(values=values):
                    even.append((column, len(values), len(values) - 1))
        even_columns, *self._even = np.array(even, dtype=float).reshape(-1, 3).T
        log_columns, *self._logs = np.array(logs, dtype=float).reshape(-1, 5).T
        self._even_columns, self._log_columns = even_columns.astype(int), log_columns.astype(int)

    def middles(self, units: Units) -> Units:
        """Places (n, d) in [0, 1]: each the middle of its cell; real numbers are not rounded."""
        middles = units.copy()
        if len(at := self._even_columns):
            num, last = self._even
            middles[:, at] = (np.minimum(np.floor(units[:, at] * num), last) + 0.5) / num
        if len(at := self._log_columns):
            low, high, low_log, high_log = self._logs
            inside = units[:, at]
            values = np.floor(np.exp(low_log * (1.0 - inside) + high_log * inside))
            values = np.minimum(np.maximum(values, low), high)
            middle = (np.log(values) + np.log(values + 1.0)) / 2.0
            middles[:, at] = (middle - low_log) / (high_log - low_log)
        return middles
