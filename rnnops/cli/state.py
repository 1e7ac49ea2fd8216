"""What a training run is at one moment, and how it lies in a checkpoint.

arrays    params/<name>, average/<name>, optimizer/<name>, carried/<state>
document  program, settings, text (paths, size limit, SHA-256, alphabet), step, seconds, curves, baselines
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.cli.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from rnnops.cli.corpus import Corpus
from rnnops.cli.language_model import Arrays, LanguageModel
from rnnops.cli.settings import Settings, read_settings

PROGRAM = "rnnops train"
GROUPS = ("params", "average", "optimizer", "carried")


@dataclass
class TrainingState:
    """Everything that the next step depends on, and what came out so far.

    Args:
        params, optimizer, average: parameters, Adam's state, the parameters' running average.
        carried: the recurrent states `[N, D]` after the last window.
        step: steps taken, which is also the position in the text.
        seconds: spent on training and on points of the held-out curve.
        recent: bits per character of the steps since the training curve's last point.
        training, held_out: curves, pairs of characters seen and bits per character.
    """

    params: Arrays
    optimizer: Arrays
    average: Arrays
    carried: Arrays
    step: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)
    training: list[list[float]] = field(default_factory=list)
    held_out: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class TextSource:
    """Where a text was read from: paths (none: the default text) and the size limit in bytes (None: none)."""

    paths: tuple[str, ...] = ()
    max_bytes: int | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint of `rnnops train` whose arrays are not checked against a model yet."""

    path: Path
    settings: Settings
    source: TextSource
    sha256: str
    alphabet: str
    baselines: dict[str, float]
    checkpoint: Checkpoint

    def check_text(self, corpus: Corpus) -> None:
        """Raise CheckpointError where the text is not the one that the run was trained on."""
        if corpus.sha256 != self.sha256 or corpus.alphabet != self.alphabet:
            raise CheckpointError(
                f"the checkpoint {self.path} was trained on another text",
                wanted=f"SHA-256 {self.sha256[:12]}...",
                came=f"{corpus.sha256[:12]}... from {corpus.source}",
                hint="Give the same TEXT and --max-bytes; a text that has changed needs a new run.",
            )

    def state(self, model: LanguageModel) -> TrainingState:
        """The training state. Raises CheckpointError where its arrays are not those of the model."""
        _check_arrays(self.path, self.checkpoint.arrays, expected_arrays(model))
        groups: dict[str, Any] = {group: {} for group in GROUPS}
        for key, array in self.checkpoint.arrays.items():
            group, _, name = key.partition("/")
            groups[group][name] = array
        document = self.checkpoint.state
        lists: dict[str, Any] = {name: document[name] for name in ("recent", "training", "held_out")}
        return TrainingState(**groups, step=document["step"], seconds=document["seconds"], **lists)


def save(
    path: Path,
    state: TrainingState,
    settings: Settings,
    corpus: Corpus,
    source: TextSource,
    tables: Mapping[str, float],
) -> None:
    """Write a checkpoint; the file holds the old or the new one, whatever happens."""
    arrays = {f"{group}/{name}": array for group in GROUPS for name, array in getattr(state, group).items()}
    text = {"paths": list(source.paths), "max_bytes": source.max_bytes}
    document = {
        "program": PROGRAM,
        "settings": settings.as_dict(),
        "text": {**text, "sha256": corpus.sha256, "alphabet": corpus.alphabet},
        **{name: getattr(state, name) for name in ("step", "seconds", "recent", "training", "held_out")},
        "baselines": dict(tables),
    }
    save_checkpoint(path, arrays, document)


def load(path: Path) -> Saved:
    """Read a checkpoint of `rnnops train`. Raises CheckpointError or SettingsError for anything else."""
    checkpoint = load_checkpoint(path)
    document = checkpoint.state
    if document.get("program") != PROGRAM:
        raise CheckpointError(f"{path} is a checkpoint, but not one of `{PROGRAM}`")
    settings = read_settings(document.get("settings"))
    if not _is_complete(document):
        raise CheckpointError(f"{path} is no checkpoint of `{PROGRAM}`: its document is not complete")
    text = document["text"]
    source = TextSource(tuple(text["paths"]), text["max_bytes"])
    return Saved(path, settings, source, text["sha256"], text["alphabet"], document["baselines"], checkpoint)


def expected_arrays(model: LanguageModel) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array in a checkpoint of this model."""
    dtype, batch = model.settings.dtype, model.settings.batch
    parts = ("params", "average", "optimizer/mean", "optimizer/square")
    shapes = {f"{part}/{name}": shape for part in parts for name, shape in model.parameter_shapes.items()}
    shapes.update((f"carried/{name}", (batch, size)) for name, size in model.state_sizes.items())
    return {name: (shape, dtype) for name, shape in shapes.items()} | {"optimizer/step": ((), "int64")}


def _check_arrays(path: Path, arrays: Arrays, expected: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
    for name in sorted(arrays.keys() | expected.keys()):
        came = (arrays[name].shape, arrays[name].dtype.name) if name in arrays else None
        if came != expected.get(name):
            raise CheckpointError(
                f"the arrays in {path} are not those of this model",
                blob=name,
                wanted=expected.get(name),
                came=came,
                hint="A cell of your own must be the one that was trained.",
            )


def _is_complete(document: Mapping[str, Any]) -> bool:
    """Whether a document has all fields of a training state, each of its type."""
    text, tables = document.get("text"), document.get("baselines")
    step, seconds = document.get("step"), document.get("seconds")
    return (
        type(step) is int
        and step >= 0
        and type(seconds) is float
        and _are_numbers(document.get("recent"))
        and _is_curve(document.get("training"))
        and _is_curve(document.get("held_out"))
        and isinstance(tables, dict)
        and _are_numbers(list(tables.values()))
        and isinstance(text, dict)
        and _is_text(text)
    )


def _is_text(text: Mapping[str, Any]) -> bool:
    paths, limit = text.get("paths"), text.get("max_bytes")
    strings = [text.get("sha256"), text.get("alphabet"), *(paths if isinstance(paths, list) else [None])]
    return all(isinstance(value, str) for value in strings) and (limit is None or type(limit) is int)


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) and np.isfinite(value) for value in values)


def _is_curve(points: object) -> bool:
    return isinstance(points, list) and all(_are_numbers(point) and len(point) == 2 for point in points)
