"""Writes a recorded plan as an object file, a C header and weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnops.atomic_file import replaced
from rnnops.compiler.execute.job_list import JobList, Recorded
from rnnops.compiler.export.header import Argument, c_names, header
from rnnops.compiler.export.memory_map import MemoryMap
from rnnops.compiler.export.object_file import object_file
from rnnops.errors import FeedError
from rnnops.kernels.cpu.native import processor
from rnnops.types import Type


@dataclass(frozen=True)
class ExportedFiles:
    """What `export_native` has written.

    Args:
        object: to be linked.
        header: what it declares.
        weights: whose bytes `NAME_init` takes.
        arguments: the arrays of `NAME_run` in order: names of inputs and outputs, and in C.
    """

    object: Path
    header: Path
    weights: Path
    arguments: dict[str, str]


def export_recorded(
    recorded: Recorded,
    feeds: Mapping[str, Type],
    states: Mapping[str, str],
    folder: str | os.PathLike[str],
    name: str,
    net: str,
) -> ExportedFiles:
    """Write the files; each is there whole or not at all.

    Args:
        feeds: the inputs, in the order in which they are given.
        states: output -> input of the next call, which stay in the memory.
        net: its name, for errors.

    Raises FeedError where an output and the input that it becomes differ.
    """
    outputs = {output: Type(str(np.dtype(dtype)), shape) for output, dtype, shape in recorded.outputs}
    _check_states(feeds, outputs, states, net)
    names, given = [*feeds, *outputs], [*feeds.values(), *outputs.values()]
    numbers = {one: number for number, one in enumerate(feeds)}
    state_of = {numbers[one]: numbers[one] for one in states.values()}
    state_of |= {len(feeds) + [*outputs].index(output): numbers[one] for output, one in states.items()}
    _pack(recorded, feeds)
    plan = MemoryMap(recorded, {number: given[number].nbytes for number in set(state_of.values())}, state_of)
    arguments = [number for number in range(len(given)) if number not in state_of]
    words = c_names([names[number] for number in arguments])
    taken = [Argument(word, given[n], n >= len(feeds)) for word, n in zip(words, arguments, strict=True)]
    weights = plan.weights()
    texts = {
        ".o": object_file(plan, name, arguments),
        ".h": header(name, taken, plan.nbytes, len(weights), processor()).encode("ascii"),
        ".weights": weights,
    }
    made, declared, data = _written(Path(folder), name, texts)
    return ExportedFiles(made, declared, data, {names[n]: word for word, n in zip(words, arguments, strict=True)})


def _check_states(feeds: Mapping[str, Type], outputs: Mapping[str, Type], states: Mapping[str, str], net: str) -> None:
    for output, one in states.items():
        if output not in outputs or one not in feeds:
            wanted = f"an output ({', '.join(outputs)}) and an input ({', '.join(feeds)})"
            raise FeedError("states go from an output to an input", net=net, wanted=wanted, came=f"{output} -> {one}")
        if _packed_type(outputs[output]) != _packed_type(feeds[one]):
            problem = "a state differs from one call to the next"
            raise FeedError(problem, net=net, blob=one, wanted=outputs[output], came=feeds[one])
    if len(set(states.values())) < len(states):
        raise FeedError("two outputs become one input", net=net, came=str(dict(states)))


def _packed_type(kind: Type) -> tuple[str, tuple[int, ...]]:
    """What two arrays agree in whose elements lie alike."""
    return kind.dtype, tuple(size for size in kind.shape if size != 1)


def _pack(recorded: Recorded, feeds: Mapping[str, Type]) -> None:
    """Call the plan once, so that what is packed lies in its memory."""
    arrays = [np.zeros(kind.shape, kind.dtype) for kind in feeds.values()]
    JobList(recorded)(arrays)


def _written(folder: Path, name: str, texts: Mapping[str, bytes]) -> Sequence[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}{ending}" for ending in texts]
    for path, data in zip(paths, texts.values(), strict=True):
        with replaced(path) as new:
            new.write_bytes(data)
    return paths
