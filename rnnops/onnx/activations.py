"""Activation functions of ONNX's LSTM, GRU and RNN, with their two numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.errors import OnnxError
from rnnops.ops.activation import elu, hard_sigmoid, leaky_relu, relu, sigmoid, softplus, softsign, tanh
from rnnops.ops.comparison import greater_or_equal, where

Function: TypeAlias = Callable[[Blob, float, float], Blob]


@dataclass(frozen=True)
class Kind:
    """A function of x, alpha and beta, and the defaults of those that it takes.

    Args:
        must: numbers that it takes have no default that implementations agree on, so they must be given.
    """

    apply: Function
    alpha: float | None = None
    beta: float | None = None
    must: bool = False


KINDS = {
    "Affine": Kind(lambda x, a, b: x * a + b, 1.0, 0.0, must=True),
    "Elu": Kind(lambda x, a, b: elu(x, a), 1.0),
    "HardSigmoid": Kind(lambda x, a, b: hard_sigmoid(x, a, b), 0.2, 0.5),
    "LeakyRelu": Kind(lambda x, a, b: leaky_relu(x, a), 0.01),
    "Relu": Kind(lambda x, a, b: relu(x)),
    "ScaledTanh": Kind(lambda x, a, b: tanh(x * b) * a, 1.0, 1.0, must=True),
    "Sigmoid": Kind(lambda x, a, b: sigmoid(x)),
    "Softplus": Kind(lambda x, a, b: softplus(x)),
    "Softsign": Kind(lambda x, a, b: softsign(x)),
    "Tanh": Kind(lambda x, a, b: tanh(x)),
    "ThresholdedRelu": Kind(lambda x, a, b: where(greater_or_equal(x, a), x, 0.0), 1.0),
}
BY_LOWER_NAME = {name.lower(): name for name in KINDS}


@dataclass(frozen=True)
class Activation:
    """One activation function with its numbers, None for those that it does not take."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __str__(self) -> str:
        """`Elu:0.5`: the name and the numbers that it takes."""
        return ":".join([self.name, *(repr(number) for number in (self.alpha, self.beta) if number is not None)])

    def __call__(self, x: Blob) -> Blob:
        return KINDS[self.name].apply(x, self.alpha or 0.0, self.beta or 0.0)


def read_activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """Activations in order; each takes the next number of a list if it needs one, its default where the list is over.

    Raises OnnxError for an unknown one, and for numbers that none takes.
    """
    alpha, beta = iter(alphas), iter(betas)
    found = [_activation(name, alpha, beta) for name in names]
    if [*alpha, *beta]:
        raise OnnxError("activation_alpha or activation_beta has more numbers than the activations take")
    return found


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    known = BY_LOWER_NAME.get(name.lower())
    if known is None:
        raise OnnxError("unknown activation", wanted=", ".join(KINDS), came=name)
    kind = KINDS[known]
    return Activation(known, _number(known, kind.alpha, alphas), _number(known, kind.beta, betas))


def _number(name: str, default: float | None, given: Iterator[float]) -> float | None:
    """The next number, None for an activation that takes none; numbers of ONNX are float32."""
    if default is None:
        return None
    number = next(given, None)
    if number is None and KINDS[name].must:
        raise OnnxError("an activation needs numbers", wanted="activation_alpha and activation_beta", came=name)
    return float(np.float32(default if number is None else number))
