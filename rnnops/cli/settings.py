"""The settings that decide a learning curve; they travel in the checkpoint, and a resumed run must agree with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rnnops.errors import RnnopsError

DTYPES = ("float32", "float64")


class SettingsError(RnnopsError):
    """A setting is out of range, or contradicts the checkpoint that is resumed."""


@dataclass(frozen=True)
class Settings:
    """Everything that the curve depends on beside the text; what only decides how fast it comes is not here.

    Args:
        cell: a preset's name, or `module:function`.
        batch, seq_length: streams of text side by side, and characters of each in one step of training.
        clip: limit of the global gradient norm.
        dropout: probability that an element of a layer's output is zeroed.
        device: where it runs; devices round differently.
        precision: what operands of products are rounded to.
        evaluate_every: steps between two points of the held-out curve.
    """

    cell: str = "gru"
    layers: int = 1
    hidden: int = 192
    batch: int = 128
    seq_length: int = 32
    learning_rate: float = 0.015
    clip: float = 1.0
    dropout: float = 0.0
    dtype: str = "float32"
    device: str = "cpu"
    precision: str = "float32"
    seed: int = 0
    evaluate_every: int = 200

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "batch", "seq_length", "evaluate_every"):
            self._check(name, 1 <= getattr(self, name) <= 10**6, "1 to 1000000")
        self._check("learning_rate", 0 < self.learning_rate < math.inf, "a finite number > 0")
        self._check("clip", self.clip > 0, "a number > 0")
        self._check("dropout", 0 <= self.dropout < 1, "0 <= dropout < 1")
        self._check("dtype", self.dtype in DTYPES, " or ".join(DTYPES))
        rounds = self.precision != "float32"
        self._check("dtype", self.dtype == "float32" or not rounds, f"float32 with --precision {self.precision}")
        self._check("seed", 0 <= self.seed < 2**63, "0 <= seed < 2**63")

    def _check(self, name: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise SettingsError(f"{option(name)} is out of range", wanted=wanted, came=repr(getattr(self, name)))

    def as_dict(self) -> dict[str, Any]:
        """Settings by name, as plain values."""
        return asdict(self)


def option(name: str) -> str:
    """How a setting is written on the command line."""
    return "--" + name.replace("_", "-")


def read_settings(saved: object) -> Settings:
    """Settings from a checkpoint's document. Raises SettingsError where names or types are not those of `Settings`."""
    types = {field.name: type(field.default) for field in fields(Settings)}
    before = {"device": "reference", "precision": "float32"}  # what there was before there was a choice
    saved = {**before, **saved} if isinstance(saved, dict) else saved
    if not isinstance(saved, dict) or {name: type(value) for name, value in saved.items()} != types:
        raise SettingsError("the checkpoint is not one of `rnnops train`: its settings are not a model's")
    return Settings(**saved)


def check_agreement(saved: Settings, given: Mapping[str, Any]) -> None:
    """Raise SettingsError where an option contradicts the checkpoint that is resumed."""
    for name, value in given.items():
        if value != getattr(saved, name):
            raise SettingsError(
                f"{option(name)} contradicts the checkpoint",
                wanted=repr(getattr(saved, name)),
                came=repr(value),
                hint="Give the checkpoint's value, or start a new run without --resume.",
            )
