"""Writes a recorded plan as an object file, a C header and weights."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnops.atomic_file import replaced
from rnnops.compiler.execute.job_list import JobList, Recorded
from rnnops.compiler.export.c_source import ADDRESS_BYTES, c_source
from rnnops.compiler.export.c_words import c_names
from rnnops.compiler.export.header import Argument, for_any_processor, for_processor, header
from rnnops.compiler.export.list_words import list_bytes
from rnnops.compiler.export.memory_map import MemoryMap
from rnnops.compiler.export.object_file import object_file
from rnnops.errors import DeviceError, FeedError, SaveError
from rnnops.kernels.cpu.native import processor
from rnnops.types import Type

MADE = b"/* Written by rnnops"  # sources and headers begin with


@dataclass(frozen=True)
class ExportedFiles:
    """What `export_native` has written.

    Args:
        object: to be linked, None where there is a source.
        source: to be compiled, None where there is an object.
        header: what they declare.
        weights: whose bytes `NAME_init` takes.
        inputs, outputs: the arrays of `NAME_run`, in order, inputs first: their names in the net, and in C.
    """

    object: Path | None
    source: Path | None
    header: Path
    weights: Path
    inputs: dict[str, str]
    outputs: dict[str, str]


def export_recorded(
    recorded: Recorded,
    feeds: Mapping[str, Type],
    states: Mapping[str, str],
    folder: str | os.PathLike[str],
    name: str,
    net: str,
    products: str | None = None,
) -> ExportedFiles:
    """Write the files; each is there whole or not at all.

    Args:
        feeds: the inputs, in the order in which they are given.
        states: output -> input of the next call, which stay in the memory.
        net: its name, for errors.
        products: their dtype where the plan was recorded for C99, None where it was recorded for this processor.

    Raises FeedError where an output and the input that it becomes differ, DeviceError for C99 where weights would have
    their bytes in another order than it wants.
    """
    if products is not None and sys.byteorder != "little":
        raise DeviceError("weights would be written as they lie here", net=net, wanted="little-endian")
    outputs = {output: Type(str(np.dtype(dtype)), shape) for output, dtype, shape in recorded.outputs}
    _check_states(feeds, outputs, states, net)
    names, given = [*feeds, *outputs], [*feeds.values(), *outputs.values()]
    numbers = {one: number for number, one in enumerate(feeds)}
    state_of = {numbers[one]: numbers[one] for one in states.values()}
    state_of |= {len(feeds) + [*outputs].index(output): numbers[one] for output, one in states.items()}
    kept = {number: given[number].nbytes for number in sorted(set(state_of.values()))}
    free = [number for number in range(len(given)) if number not in state_of]
    words = dict(zip(free, c_names([names[number] for number in free]), strict=True))
    arguments = {number: Argument(word, given[number], number >= len(feeds)) for number, word in words.items()}
    if products is None:
        _pack(recorded, feeds)
        plan = MemoryMap(recorded, kept, state_of, list_bytes(recorded), (recorded.status, recorded.barrier))
        ending, code, made = ".o", object_file(plan, name, [*arguments]), for_processor(name, *processor())
    else:
        plan = MemoryMap(recorded, kept, state_of, ADDRESS_BYTES)
        ending, code, made = ".c", c_source(plan, name, products, arguments).encode("ascii"), for_any_processor(name)
    weights = plan.weights()
    declared = header(name, [*arguments.values()], plan.nbytes, len(weights), made).encode("ascii")
    files = _written(Path(folder), name, {ending: code, ".h": declared, ".weights": weights})
    taken = {names[number]: word for number, word in words.items() if number < len(feeds)}
    written = {names[number]: word for number, word in words.items() if number >= len(feeds)}
    return ExportedFiles(files.get(".o"), files.get(".c"), files[".h"], files[".weights"], taken, written)


def _check_states(feeds: Mapping[str, Type], outputs: Mapping[str, Type], states: Mapping[str, str], net: str) -> None:
    if not isinstance(states, Mapping):
        raise FeedError("states= is no dict", net=net, wanted="output -> input", came=repr(states)[:60])
    for output, one in states.items():
        if output not in [*outputs] or one not in [*feeds]:  # of lists, as what is given may have no hash
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


def _written(folder: Path, name: str, texts: Mapping[str, bytes]) -> dict[str, Path]:
    """The files, by ending. Raises SaveError beside code of the other kind, which would not fit the new header."""
    other = folder / f"{name}{'.c' if '.o' in texts else '.o'}"
    if other.exists():
        problem = f"'{folder}' would have an object and a source of one name, whose memory and weights differ"
        hint = "Give another folder or name=, or remove the old export."
        raise SaveError(problem, wanted=f"no {other.name}", hint=hint)
    paths = {ending: folder / f"{name}{ending}" for ending in texts}
    for path in paths.values():
        _check_own(path)
    folder.mkdir(parents=True, exist_ok=True)
    for ending, path in paths.items():
        with replaced(path) as new:
            new.write_bytes(texts[ending])
    return paths


def _check_own(path: Path) -> None:
    """Raises SaveError in place of replacing a source or a header that somebody has written, as main.c may be one."""
    if path.suffix not in (".c", ".h") or not path.is_file():
        return
    with path.open("rb") as file:
        if file.read(len(MADE)) != MADE:
            hint = "Give another folder or name=, or remove the file."
            raise SaveError(f"'{path}' was not written by rnnops", wanted="no file, or an old export", hint=hint)
