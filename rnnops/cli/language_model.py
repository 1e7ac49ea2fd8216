"""The character language model of `rnnops train`: its settings, its cells, and how it is evaluated.

**The character language model**: embedding, a cell or a stack over time, projection, cross entropy.

    characters [T, N] -> Embedding -> [T, N, E] -> RNN -> [T, N, H] -> Dense -> scores [T, N, V] -> loss with targets

The caller carries states: it gives the states that a call returns to the next call.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NoReturn

import numpy as np

from rnnops.cells import CELLS, RNNCell
from rnnops.cli.corpus import Streams
from rnnops.compiler import compile as compile_net
from rnnops.errors import RnnopsError, did_you_mean
from rnnops.model import RNN, Adam, Dense, Dropout, Embedding, InverseRoot, Model, Placeholder, WarmUp
from rnnops.model.losses import softmax_cross_entropy
from rnnops.net.blob import Blob
from rnnops.types import Array

DTYPES = ("float32", "float64")


class SettingsError(RnnopsError):
    """A setting is out of range, or contradicts the checkpoint that is resumed."""


@dataclass(frozen=True)
class Settings:
    """All settings that change the learning curve. Options that change only the speed (threads) are not among them.

    Args:
        cell: a preset's name, or `module:function`.
        batch, seq_length: number of streams of text, and characters of each stream in one step of training.
        clip: limit of the global gradient norm.
        dropout: probability that an element of a layer's output is zeroed.
        device: the device; devices round differently.
        precision: the format that operands of products are rounded to.
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
    """The option of a setting on the command line."""
    return "--" + name.replace("_", "-")


CALL = re.compile(r"load\(path, (constants|sizes)=\{(.*?)\}\)")
NAME = re.compile(r"'(.*?)': ")


def in_options(text: str, command: str = "onnx") -> str:
    """A text of the library with options of a command in place of calls such as `load(path, sizes={...})`."""

    def option(call: re.Match[str]) -> str:
        kind, names = call[1], NAME.findall(call[2])
        if kind == "sizes" and command == "export":
            return f"--shape INPUT=1,1,40 ({', '.join(names)})" if names else "--shape INPUT=1,1,40"
        return " ".join(f"--{kind} {name}=..." for name in names or ["NAME"])

    return CALL.sub(option, text)


def read_settings(saved: object) -> Settings:
    """Settings from a checkpoint's document. Raises SettingsError if names or types are not those of `Settings`."""
    types = {field.name: type(field.default) for field in fields(Settings)}
    before = {"device": "reference", "precision": "float32"}  # for old checkpoints, which do not have these settings
    saved = {**before, **saved} if isinstance(saved, dict) else saved
    if not isinstance(saved, dict) or {name: type(value) for name, value in saved.items()} != types:
        raise SettingsError("the checkpoint is not one of `rnnops train`: its settings are not a model's")
    return Settings(**saved)


def check_agreement(saved: Settings, given: Mapping[str, Any]) -> None:
    """Raise SettingsError if an option contradicts the checkpoint that is resumed."""
    for name, value in given.items():
        if value != getattr(saved, name):
            raise SettingsError(
                f"{option(name)} contradicts the checkpoint",
                wanted=repr(getattr(saved, name)),
                came=repr(value),
                hint="Give the checkpoint's value, or start a new run without --resume.",
            )


CellBuilder = Callable[[int, int, str], Any]


class CellError(RnnopsError):
    """`--cell` names no function that builds a cell."""


def build_cell(spec: str, input_size: int, hidden_size: int, name: str, recompute: bool = False) -> RNNCell:
    """Build the cell that `--cell` names.

    Args:
        spec: a preset, or `module:function`. The function takes (input_size, hidden_size, name) and returns an RNNCell.
            Its module may be in the working directory.
        recompute: turn on the cell's `memory_optimization`.

    Raises CellError, and the errors of the cell itself.
    """
    if is_own(spec):
        with _working_directory_on_path():
            cell = _call(spec, _function(spec), input_size, hidden_size, name)
    elif spec in CELLS:
        cell = CELLS[spec](input_size, hidden_size, name=name, **CELLS[spec].training_options)
    else:
        wanted = f"{', '.join(CELLS)} or module:function"
        raise CellError("unknown cell", wanted=wanted, came=repr(spec), hint=did_you_mean(spec, CELLS))
    if recompute:
        _turn_on_recompute(spec, cell)
    return cell


def is_own(spec: str) -> bool:
    """True if a spec names a function instead of a preset."""
    return ":" in spec


def _function(spec: str) -> CellBuilder:
    module_name, _, function_name = spec.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except Exception as error:  # a module of the user's may fail in any way
        _fail(spec, f"the module '{module_name}' cannot be imported ({type(error).__name__}: {error})", error)
    if not callable(function):
        _fail(spec, f"the module '{module_name}' has no function '{function_name}'")
    return function  # type: ignore[no-any-return]


def _call(spec: str, function: CellBuilder, input_size: int, hidden_size: int, name: str) -> RNNCell:
    try:
        cell = function(input_size, hidden_size, name)
    except RnnopsError:
        raise
    except Exception as error:
        _fail(spec, f"the function failed ({type(error).__name__}: {error})", error)
    if not isinstance(cell, RNNCell):
        raise CellError(f"--cell {spec}: no cell came back", wanted="an rnnops.cells.RNNCell", came=type(cell).__name__)
    return cell


def _turn_on_recompute(spec: str, cell: RNNCell) -> None:
    if not hasattr(cell, "memory_optimization"):
        hint = (
            "Leave --recompute out, or give the cell the attribute and label its blobs as rnnops.cells.LSTMCell does."
        )
        raise CellError(f"--recompute: the cell {spec} has no memory_optimization", hint=hint)
    cell.memory_optimization = True


def _fail(spec: str, problem: str, cause: Exception | None = None) -> NoReturn:
    hint = "Write module:function; the function gets (input_size, hidden_size, name)."
    raise CellError(f"--cell {spec}: {problem}", hint=hint) from cause


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """Let modules of the working directory be imported, as `python -m` does; a console script does not."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


EMBEDDING = 64  # features of a character
WARM_UP, DECAY = 50, 200  # steps

States = tuple[Any, ...]


class LanguageModel(Model):
    """A compiled model with Adam. The learning rate rises over the first steps and then falls with the root of the
    step.

    Args:
        symbols: size of the alphabet, V.
        recompute: compute the cells' gates again on the backward pass instead of storing them.
        threads: number of threads; None for the default of the device.
    """

    def __init__(self, settings: Settings, symbols: int, recompute: bool = False, threads: int | None = None) -> None:
        self.settings = settings
        cell = partial(_cell, settings.cell, recompute)
        self.embedding = Embedding(symbols, EMBEDDING)
        self.stack = RNN(cell, settings.hidden, settings.layers, dropout=settings.dropout)
        self.dropout = Dropout(settings.dropout)
        self.projection = Dense(symbols)
        self.set_optimizer(Adam(WarmUp(WARM_UP, InverseRoot(settings.learning_rate, DECAY)), max_norm=settings.clip))
        window = Placeholder((settings.seq_length, settings.batch), "int32")
        states = tuple(Placeholder(state.shape) for state in self.start_states(settings.batch))
        run = {"dtype": settings.dtype, "device": settings.device, "precision": settings.precision, "threads": threads}
        self.compile([window, window, states], seed=settings.seed, **run)  # type: ignore[arg-type]

    def forward(self, characters: Blob, states: States) -> tuple[Blob, States]:
        """Scores of the characters that follow, [T, N, V], and the last states."""
        output, last = self.stack(self.embedding(characters), None, states)
        return self.projection(self.dropout(output)), last

    def train_one_batch(self, characters: Blob, targets: Blob, states: States) -> tuple[Blob, States]:
        """The mean cross entropy of the targets, in nats, and the last states."""
        scores, last = self.forward(characters, states)
        return self.minimize(softmax_cross_entropy(scores, targets)), last

    def start_states(self, streams: int) -> tuple[Array, ...]:
        """The states at the beginning of streams: zeros `[1, N, H]`, or with the axes of the cell's states."""
        shapes = self.stack.state_shapes(EMBEDDING)
        return tuple(np.zeros((1, streams, *shape), self.settings.dtype) for shape in shapes)


def carried(states: States) -> tuple[Array, ...]:
    """Copies of last states for the next call, so that they keep no larger array alive."""
    return tuple(state.copy() for state in states)


def _cell(spec: str, recompute: bool, input_size: int, hidden_size: int, name: str) -> RNNCell:
    return build_cell(spec, input_size, hidden_size, name, recompute)


STREAMS, STREAM_CHARACTERS = 128, 250  # the most streams, and the least characters of a stream
STEPS = 64
Step = Callable[[Array, Array, States], tuple[Array, States]]  # characters, targets, states -> loss, last states


@dataclass(frozen=True)
class Score:
    """Mean bits per character, and the number of characters."""

    bits: float
    characters: int


def evaluate(model: LanguageModel, text: Array, limit: int | None = None, weights: str | None = None) -> Score:
    """Score a text under the parameters that the model has now.

    Args:
        text: [characters], indices.
        limit: score only the first part of every stream, about `limit` characters in all.
        weights: the format of weights of products, as for `Run.bind`; None for their own.
    """
    read = partial(model.run, model.train_one_batch) if weights is None else _bound_step(model, weights)
    streams = Streams(text, *window_size(len(text)))
    states = model.start_states(streams.streams)
    bits, scored = 0.0, 0
    for window in streams.one_epoch(partial=True):
        loss, last = read(window.inputs, window.targets, states)
        states = carried(last)
        bits, scored = bits + float(loss) / math.log(2) * window.targets.size, scored + window.targets.size
        if limit is not None and scored >= limit:
            break
    return Score(bits / scored, scored)


def _bound_step(model: LanguageModel, weights: str) -> Step:
    """A step with bound parameters, and with weights of products in another format."""
    net, arrays = model.graphs["train_one_batch"].traced.net, model.arrays
    params = {name: arrays[name] for name in net.input_names if name in arrays}
    run = compile_net(net, model.settings.device).bind(**params, weights=weights)
    fed = [name for name in net.input_names if name not in params]
    last = [name for name in net.output_blobs if name.startswith("output_1")]

    def read(inputs: Array, targets: Array, states: States) -> tuple[Array, States]:
        out = run(dict(zip(fed, (inputs, targets, *states), strict=True)))
        return out["loss"], tuple(out[name] for name in last)

    return read


def run_each_length(model: LanguageModel, text: Array) -> None:
    """Run one window of each length that is needed to score a text, so that all kernels are compiled."""
    streams = Streams(text, *window_size(len(text)))
    windows = {len(window.inputs): window for window in streams.one_epoch(partial=True)}
    for window in windows.values():
        model.run(model.train_one_batch, window.inputs, window.targets, model.start_states(streams.streams))


def window_size(characters: int) -> tuple[int, int]:
    """Steps and streams for a text: many streams for long texts, one for short ones."""
    streams = max(1, min(STREAMS, characters // STREAM_CHARACTERS))
    return max(1, min(STEPS, (characters - 1) // streams)), streams


def sample(model: LanguageModel, prompt: Array, length: int, temperature: float, seed: int) -> Array:
    """Draw `length` characters that follow a prompt, under the parameters that the model has now.

    Args:
        prompt: [characters], indices; at least one.
        temperature: below 1, likely characters become likelier; at 0, the likeliest one is always taken.

    Returns: [length] int32.
    """
    generator = np.random.default_rng(seed)
    drawn = np.empty(length, np.int32)
    scores, states = _read(model, model.start_states(1), prompt)
    for place in range(length):
        drawn[place] = draw(scores, temperature, generator.random())
        scores, states = _read(model, states, drawn[place : place + 1])
    return drawn


def draw(scores: Array, temperature: float, uniform: float) -> int:
    """The class at which the cumulative distribution passes `uniform`, a number in [0, 1)."""
    if temperature == 0:
        return int(scores.argmax())
    logits = (scores - scores.max()).astype(np.float64) / temperature
    cumulative = np.exp(logits).cumsum()
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(0, len(scores) - 1))


def _read(model: LanguageModel, states: States, text: Array) -> tuple[Array, States]:
    """Feed characters. Returns the logits of the next character, and the states."""
    scores, last = model.run(model.forward, text.astype(np.int32).reshape(-1, 1), states)
    return scores[-1, 0], carried(last)
