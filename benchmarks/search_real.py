"""Real models on scikit-learn's bundled data, as objectives of a search: SVM, boosting, MLP.

Those with epochs have the validation loss after each of 81; the others are one loss. Nothing of
them was looked at while the sampler and the pruner were chosen.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.lcbench import FLOATS
from services.hpo.core.space import (
    Choice,
    Integer,
    Parameter,
    Point,
    Scalar,
    Space,
    Uniform,
    make_space,
)

EPOCHS = 81
# A loss that is no number, or larger: that of a diverged model.
WORST = 1e6
Split = tuple[FLOATS, FLOATS, FLOATS, FLOATS]
# The losses on the second half after each epoch, or the one in the end.
Training = Callable[[Mapping[str, Scalar], Split], Iterator[float]]


@dataclass(frozen=True, slots=True)
class RealModel:
    """What `search_simulation` asks of a surrogate. The seed is that of the search alone."""

    training: Training
    data: str
    parameters: tuple[tuple[str, Parameter], ...]
    epochs: int = EPOCHS

    @property
    def space(self) -> Space:
        return make_space(dict(self.parameters))

    def curve(self, seed: str, point: Mapping[str, Scalar]) -> tuple[FLOATS, FLOATS]:
        """Negative losses and seconds at the end of each epoch."""
        losses = _trained(self, tuple(sorted(point.items())))
        return -np.array(losses), np.arange(1.0, self.epochs + 1)


@lru_cache(maxsize=50_000)
def _trained(model: RealModel, point: Point) -> tuple[float, ...]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            losses = list(model.training(dict(point), _split(model.data)))
        except ValueError:  # its weights are no numbers
            losses = []
    found = np.nan_to_num(np.array(losses), nan=WORST, posinf=WORST, neginf=WORST)
    padded = np.pad(found, (0, model.epochs - len(found)), constant_values=WORST)
    return tuple(np.minimum(padded, WORST))


@cache
def _split(name: str) -> Split:
    load = {"cancer": load_breast_cancer, "diabetes": load_diabetes, "digits": load_digits}[name]
    inputs, labels = load(return_X_y=True)
    left, right, of_left, of_right = train_test_split(
        inputs[:1000], labels[:1000], test_size=0.5, random_state=0
    )
    scaler = StandardScaler().fit(left)
    return scaler.transform(left), of_left, scaler.transform(right), of_right


def _svc(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = SVC(C=float(point["c"]), gamma=float(point["gamma"]), kernel=str(point["kernel"]))
    model.fit(split[0], split[1])
    yield 1.0 - float(model.score(split[2], split[3]))


def _svr(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = SVR(
        C=float(point["c"]), gamma=float(point["gamma"]), epsilon=float(point["epsilon"])
    ).fit(split[0], split[1])
    yield float(mean_squared_error(split[3], model.predict(split[2])))


def _boosting(point: Mapping[str, Scalar]) -> dict[str, float | int]:
    return {
        "n_estimators": EPOCHS,
        "learning_rate": float(point["learning_rate"]),
        "max_depth": int(point["max_depth"]),
        "subsample": float(point["subsample"]),
        "min_samples_leaf": int(point["min_leaf"]),
        "random_state": 0,
    }


def _boosted_trees(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = GradientBoostingClassifier(**_boosting(point)).fit(split[0], split[1])
    for chances in model.staged_predict_proba(split[2]):
        yield float(log_loss(split[3], chances))


def _boosted_regression(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = GradientBoostingRegressor(**_boosting(point)).fit(split[0], split[1])
    for predicted in model.staged_predict(split[2]):
        yield float(mean_squared_error(split[3], predicted))


def _last_of_boosted_regression(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    *_, last = _boosted_regression(point, split)
    yield last


def _mlp(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = MLPClassifier(
        (int(point["width"]),),
        solver="sgd",
        learning_rate_init=float(point["learning_rate"]),
        momentum=float(point["momentum"]),
        alpha=float(point["weight_decay"]),
        batch_size=int(point["batch_size"]),
        random_state=0,
    )
    yield from _epochs(model, split)


def _logistic(point: Mapping[str, Scalar], split: Split) -> Iterator[float]:
    model = SGDClassifier(
        loss="log_loss",
        penalty="elasticnet",
        learning_rate="constant",
        eta0=float(point["learning_rate"]),
        alpha=float(point["weight_decay"]),
        l1_ratio=float(point["l1"]),
        random_state=0,
    )
    yield from _epochs(model, split)


def _epochs(model: MLPClassifier | SGDClassifier, split: Split) -> Iterator[float]:
    classes = np.unique(split[1])
    for _ in range(EPOCHS):
        model.partial_fit(split[0], split[1], classes=classes)
        chances = np.nan_to_num(model.predict_proba(split[2]), nan=1.0 / len(classes))
        yield float(log_loss(split[3], np.clip(chances, 1e-15, 1.0), labels=classes))


def _logarithmic(low: float, high: float) -> Uniform:
    return Uniform(low, high, log=True)


_TREES = (
    ("learning_rate", _logarithmic(0.005, 1.0)),
    ("max_depth", Integer(1, 8)),
    ("subsample", Uniform(0.3, 1.0)),
    ("min_leaf", Integer(1, 50, log=True)),
)
_KERNELS = Choice(("rbf", "sigmoid"))
_SVM = (("c", _logarithmic(1e-3, 1e4)), ("gamma", _logarithmic(1e-6, 10.0)))
_LEARNING = (
    ("learning_rate", _logarithmic(1e-5, 1.0)),
    ("weight_decay", _logarithmic(1e-6, 1.0)),
)
SURFACES: Mapping[str, RealModel] = {
    "SVM, cancer": RealModel(_svc, "cancer", (*_SVM, ("kernel", _KERNELS)), 1),
    "SVM, digits": RealModel(_svc, "digits", (*_SVM, ("kernel", _KERNELS)), 1),
    "SVM, diabetes": RealModel(
        _svr, "diabetes", (*_SVM, ("epsilon", _logarithmic(1e-2, 100.0))), 1
    ),
    "boosting, diabetes": RealModel(_last_of_boosted_regression, "diabetes", _TREES, 1),
}
CURVES: Mapping[str, RealModel] = {
    "MLP, digits": RealModel(
        _mlp,
        "digits",
        (
            *_LEARNING,
            ("momentum", Uniform(0.0, 0.99)),
            ("width", Integer(8, 64, log=True)),
            ("batch_size", Integer(16, 250, log=True)),
        ),
    ),
    "logistic regression, digits": RealModel(
        _logistic, "digits", (*_LEARNING, ("l1", Uniform(0.0, 1.0)))
    ),
    "boosting, cancer": RealModel(_boosted_trees, "cancer", _TREES),
    "boosted regression, diabetes": RealModel(_boosted_regression, "diabetes", _TREES),
}
