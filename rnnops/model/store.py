"""Arrays of a model: where they are, and how they are checked, saved and loaded.

**Where arrays are** (`Home`): in NumPy's memory, or on a CUDA device (`cuda_home.py`).

**Files of models** (`save`, `load`) are safetensors files with named arrays and a JSON document. They are written as a
whole or not at all. A file may come from anyone: nothing in it is trusted. A safetensors file is a JSON header with the
dtype, shape and place of each array, and the bytes of the arrays. The library refuses places that overlap, leave gaps
or are outside of the file. The metadata of a model's file are:

    format     "rnnops model"
    version    version of this layout, 2; older files are read too (`migrated`)
    document   JSON: the user's state without its arrays
    sha256     digest of the document and of every array's name, dtype, shape and bytes

Older versions have one function each, which returns the arrays of the next version. The user's arrays do not change.

    1  names as in nets: `encoder/layer_0/w`, `optimizer/mean/encoder/layer_0/w`; no `optimizer.updates.<name>`
    2  names with dots; Adam counts updates by parameter

Arrays have the names of `model.get_states()`; those of the user's state begin with `state.`. Other programs can read
the parameters as they would any safetensors file. Saving writes a temporary file next to the target, forces it to disk
and renames it. Limits: NumPy's booleans, integers and floats of at most 8 bytes; a process that is killed while it
saves leaves a `.rnnops-*.tmp` behind.

**The store** (`ArrayStore`) has the arrays of a model, by the names in nets: parameters, and the state of an optimizer.
Arrays are replaced and never changed in place, because runs and callers may still have the old ones. All arrays at one
moment are one value (`Held`), so that no reader sees half an update.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rnnops.compiler import Pullback
from rnnops.compiler.api.feeds import from_dlpack
from rnnops.compiler.api.run import CUDA
from rnnops.compiler.memory.memory import on_host
from rnnops.errors import ModelError, RnnopsError, SaveError
from rnnops.model.layer import LOSS
from rnnops.model.optimizers import Optimizer
from rnnops.net.net import Net
from rnnops.net.op import dotted, init_params
from rnnops.types import FLOATS, Array, Type, type_of
from rnnops.util import replaced

Arrays = dict[str, Array]
TOLD = 12  # lines of one error


def by_dotted_names(arrays: Mapping[str, Array]) -> Arrays:
    """Copies by dotted names."""
    return {
        dotted(name): on_host(array) if hasattr(array, "to_host") else array.copy() for name, array in arrays.items()
    }


def checked(
    given: Mapping[str, Any], wanted: Mapping[str, Type], model: str, complete: bool, error: type[RnnopsError]
) -> Arrays:
    """Copies of arrays, by the names in nets.

    Args:
        given: arrays by dotted names.
        wanted: types of the arrays of the model, by the names in nets.
        complete: whether all of them must be given.

    Raises the error, with a line for each array that is unknown, missing or of another type, up to 12.
    """
    names = {dotted(name): name for name in wanted}
    arrays = {name: _as_array(name, value, error) for name, value in given.items()}
    known = {name: wanted[own] for name, own in names.items() if complete or name in arrays}
    check_arrays(arrays, known, model, error)
    return {names[name]: np.array(array, order="C") for name, array in arrays.items()}


def check_arrays(arrays: Mapping[str, Array], wanted: Mapping[str, Type], owner: str, error: type[RnnopsError]) -> None:
    """Raise the error, with a line for each array that is unknown, missing or of another type, up to 12."""
    came = {name: type_of(array) for name, array in arrays.items()}
    problems = [f"{name}: unknown, {kind}" for name, kind in came.items() if name not in wanted]
    problems += [f"{name}: missing, {kind}" for name, kind in wanted.items() if name not in came]
    both = [(name, came[name], wanted[name]) for name in came if name in wanted]
    problems += [f"{name}: {kind} instead of {own}" for name, kind, own in both if kind != own]
    if problems:
        told = _told(problems)
        text = f"arrays do not fit {owner}; nothing was changed:\n  " + "\n  ".join(told)
        if any(problem.startswith("optimizer.") for problem in problems):
            text += "\nset_optimizer(...) as it was, or load(..., include_state=False) for parameters only"
        raise error(text)


def _told(problems: Sequence[str]) -> list[str]:
    """The first problems, those of parameters before those of the optimizer, and the number of further ones."""
    first = sorted(problems, key=lambda problem: problem.startswith("optimizer."))
    left = len(first) - TOLD
    return [*first[:TOLD], *([f"and {left} more"] if left > 0 else [])]


def _as_array(name: str, value: Any, error: type[RnnopsError]) -> Array:
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return from_dlpack(value)
        except Exception as problem:  # whatever the other library raises
            raise error(f"this array cannot be read through DLPack: {problem}", blob=name) from problem
    raise error("this is not an array", blob=name, wanted="a NumPy array", came=type(value).__name__)


Confirm = Callable[[], None]  # called when the work of an update is done; raises an error that is known only then


class Home:
    """NumPy's memory."""

    def kept(self, arrays: Mapping[str, Any]) -> Arrays:
        """Parameters, or a state of an optimizer, copied here if they are elsewhere."""
        return {name: on_host(array) for name, array in arrays.items()}

    def fed(self, net: str, leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        """A batch in the form in which nets read it."""
        return leaves

    def given(self, outputs: Mapping[str, Any], leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results in the form of the batch that the caller gave."""
        return outputs

    def gradients(self, pullback: Pullback, loss: Any) -> Arrays:
        """Gradients of a loss."""
        return pullback({LOSS: np.ones((), loss.dtype)})

    def update(
        self, optimizer: Optimizer, params: Arrays, grads: Arrays, state: Arrays
    ) -> tuple[Arrays, Arrays, Confirm]:
        """New parameters, a new state, and a function to be called when results have come; it may wait."""
        return *optimizer.update(params, grads, state), _is_done


HOST = Home()


def home_of(device: object, model: str) -> Home:
    """The home of the arrays of a model that is compiled for a device. Raises DeviceError if there is no such device.

    Args:
        model: name of the model, for the error.
    """
    if device != CUDA:
        return HOST
    cuda_home: Any = import_module("rnnops.model.cuda_home")  # numba.cuda is loaded only here
    made: Home = cuda_home.CudaHome(model)
    return made


def _is_done() -> None:
    """Nothing to confirm."""


STATE = "state."


def _from_1(arrays: Arrays) -> Arrays:
    """Replace slashes by dots, and add counts for Adam: every parameter was updated at every step."""
    found = {name if name.startswith(STATE) else name.replace("/", "."): array for name, array in arrays.items()}
    if len(found) < len(arrays):
        raise SaveError("two arrays of a file of version 1 have one name today")
    mean, updates = "optimizer.mean.", "optimizer.updates."
    counts = {updates + name.removeprefix(mean): found["optimizer.step"] for name in found if name.startswith(mean)}
    return {**found, **counts}


MIGRATIONS: Mapping[int, Callable[[Arrays], Arrays]] = {1: _from_1}


def migrated(arrays: Mapping[str, Array], version: int) -> Arrays:
    """Arrays of an older version in the form of the current one. Raises SaveError if one is missing."""
    found = dict(arrays)
    for older in range(version, max(MIGRATIONS) + 1):
        try:
            found = MIGRATIONS[older](found)
        except KeyError as missing:
            raise SaveError(f"a file of version {older} lacks the array {missing}") from None
    return found


FORMAT, VERSION = "rnnops model", 2
DTYPES = ("bool", *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")), "float16", *FLOATS[1:])


def save(path: str | os.PathLike[str], arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
    """Write a file. If that fails, an old file does not change, and SaveError is raised.

    Args:
        arrays: the arrays of the model.
        state: the user's arrays and JSON values, by name.
    """
    for name in (*arrays, *state):
        if not isinstance(name, str):
            raise SaveError("no name for something that is saved", wanted="a string", came=repr(name))
    if any(name.startswith(STATE) for name in arrays):
        raise SaveError(f"an array of the model begins with '{STATE}'", hint="Give the layer another name.")
    own = {f"{STATE}{name}": value for name, value in state.items() if isinstance(value, np.ndarray)}
    plain = {name: _plain(name, array) for name, array in {**arrays, **own}.items()}
    document = _document({name: value for name, value in state.items() if not isinstance(value, np.ndarray)})
    metadata = {"format": FORMAT, "version": str(VERSION), "document": document, "sha256": _digest(plain, document)}
    try:
        with replaced(_text(path)) as temporary:
            save_file(plain, temporary, metadata)
    except (OSError, ValueError, SafetensorError) as error:
        raise SaveError(f"{_text(path)} cannot be written ({error})") from error


def load(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """The model's arrays and the user's state. Raises SaveError if this is not an intact file of a known version."""
    name = _text(path)
    if not os.path.isfile(name):
        raise SaveError(f"{name} {'is not a file' if os.path.exists(name) else 'does not exist'}")
    try:
        with safe_open(name, framework="np") as file:
            metadata = _metadata(name, file.metadata())
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - the file is not a dict
    except (OSError, SafetensorError, ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise SaveError(f"{name} is not a file of a model, or a damaged one ({error})") from error
    if _digest(arrays, metadata["document"]) != metadata["sha256"]:
        raise SaveError(f"{name} is damaged: its content does not have the SHA-256 that it states")
    arrays = migrated(arrays, int(metadata["version"]))
    state: dict[str, Any] = _read_document(name, metadata["document"])
    state.update({key.removeprefix(STATE): array for key, array in arrays.items() if key.startswith(STATE)})
    return {key: array for key, array in arrays.items() if not key.startswith(STATE)}, state


def _text(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise SaveError("this is not a path", wanted="a string or a pathlib.Path", came=repr(path)[:80])
    return os.fspath(path)


def _plain(name: str, array: Any) -> Array:
    """A little-endian array in C order. Raises SaveError for an array that cannot be saved."""
    if not name or not name.isprintable() or name == "__metadata__":
        raise SaveError("an array's name cannot be saved", wanted="printable characters", came=repr(name))
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray) or array.dtype.name not in DTYPES:
        came = f"{type(array).__name__} {getattr(array, 'dtype', '')}"
        raise SaveError("an array cannot be saved", blob=name, wanted=" ".join(DTYPES), came=came)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _document(state: Mapping[str, Any]) -> str:
    """The state as JSON. Raises SaveError with the name of a value that JSON would change."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in state.items()}
    for name, value in plain.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError) as error:
            raise SaveError(f"a value is neither an array nor JSON ({error})", blob=name) from error
        if not same:
            hint = "Use lists instead of tuples, and strings as keys."
            raise SaveError("a value would come back from JSON as something else", blob=name, hint=hint)
    return json.dumps(plain, sort_keys=True)


def _digest(arrays: Mapping[str, Array], document: str) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _metadata(name: str, metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """The metadata. Raises SaveError if they are not those of a model, or are of a newer version."""
    found = metadata or {}
    if found.get("format") != FORMAT or not {"version", "document", "sha256"} <= found.keys():
        hint = "Read files of other programs with safetensors, and give the arrays to model.set_params."
        raise SaveError(f"{name} is a safetensors file, but not one of a model", hint=hint)
    version = found["version"]
    if version not in [str(number) for number in range(1, VERSION + 1)]:
        newer = "Update rnnops." if version.isdecimal() and int(version[:9]) > VERSION else None
        raise SaveError(f"{name} has an unknown version", wanted=f"1 to {VERSION}", came=repr(version)[:80], hint=newer)
    return found


def _read_document(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SaveError(f"{name} is damaged: its document is not a JSON ({error})") from error
    if not isinstance(document, dict):
        raise SaveError(f"{name} is damaged: its document is not a JSON object")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


OPTIMIZER = "optimizer"  # prefix of the names of the optimizer's arrays


@dataclass(frozen=True)
class Held:
    """The contents of a store at one moment.

    Args:
        frozen: patterns of dotted names of parameters that the optimizer does not change.
        state: the optimizer's state, for all other parameters.
        home: where arrays are.
    """

    params: Arrays = field(default_factory=dict)
    optimizer: Optimizer | None = None
    frozen: tuple[str, ...] = ()
    state: Arrays = field(default_factory=dict)
    home: Home = HOST

    def at(self, home: Home) -> Held:
        """The same arrays in another home."""
        return replace(self, params=home.kept(self.params), state=home.kept(self.state), home=home)

    @property
    def trainable(self) -> list[str]:
        """Names of parameters that the optimizer changes."""
        return [name for name in self.params if not any(fnmatchcase(dotted(name), one) for one in self.frozen)]

    def with_state(self) -> Held:
        """The same with a state of the optimizer for all trainable parameters. Existing arrays of the state stay."""
        if self.optimizer is None:
            return self
        fresh = self.optimizer.start({name: self.params[name] for name in self.trainable})
        new = self.home.kept({name: array for name, array in fresh.items() if name not in self.state})
        return replace(self, state={name: self.state[name] if name in self.state else new[name] for name in fresh})

    def check_names(self, model: str) -> None:
        """Raise ModelError for names that become equal with dots, or that have another meaning in a file."""
        seen: dict[str, str] = {}
        for name in self.params:
            other = seen.setdefault(dotted(name), name)
            if other != name:
                raise ModelError("two parameters have one name", net=model, blob=name, came=other)
            if dotted(name).startswith((f"{OPTIMIZER}.", STATE)):
                hint = "Give the layer another name."
                raise ModelError("this name is kept for the optimizer and the user", net=model, blob=name, hint=hint)

    def check_frozen(self, model: str) -> None:
        """Raise ModelError for a pattern that no parameter has."""
        names = [dotted(name) for name in self.params]
        for pattern in self.frozen if names else ():
            if not any(fnmatchcase(name, pattern) for name in names):
                wanted = f"a pattern of {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
                raise ModelError("freeze= names no parameter", net=model, wanted=wanted, came=repr(pattern))


class ArrayStore:
    """The arrays of a model; empty at first.

    Args:
        model: name of the model, for errors.
    """

    def __init__(self, model: str) -> None:
        self.model, self.held = model, Held()

    @property
    def params(self) -> Arrays:
        return self.held.params

    @property
    def step_count(self) -> int:
        """The number of updates so far."""
        return int(self.held.state.get("step", 0))

    def set_optimizer(self, optimizer: Optimizer, frozen: Sequence[str]) -> None:
        """Set another optimizer. Arrays of the old state stay if the new optimizer has arrays of the same name."""
        held = replace(self.held, optimizer=optimizer, frozen=tuple(frozen)).with_state()
        held.check_frozen(self.model)
        self.held = held

    def start(self, net: Net, seed: int, dtype: str, given: Callable[[], Mapping[str, Array]]) -> None:
        """Make parameters that do not exist yet: from `given`, else from the seed and their names.

        Raises ModelError if one exists with another shape or dtype.
        """
        is_new = any(spec.name not in self.params for spec in net.parameters)
        found = {**given(), **self.params} if is_new else self.params
        for spec in net.parameters:
            there = found.get(spec.name)
            if there is not None and (there.shape, there.dtype.name) != (spec.shape, dtype):
                hint = "Sizes of parameters may not depend on what changes from batch to batch."
                wanted, came = f"{dtype}{list(spec.shape or ())}", type_of(there)
                raise ModelError("a parameter has another type", blob=spec.name, wanted=wanted, came=came, hint=hint)
        if is_new:
            own = {name: found.get(name, array) for name, array in init_params(net, seed, dtype).items()}
            held = replace(self.held, params=self.held.home.kept({**own, **self.params})).with_state()
            held.check_names(self.model)
            self.held = held

    def of(self, net: Net) -> Arrays:
        """The parameters that a net reads."""
        return {spec.name: self.params[spec.name] for spec in net.parameters}

    def update(self, gradients: Arrays) -> Callable[[], None]:
        """Update the parameters that have gradients.

        Returns: a function to be called when the results of the step have come. If it raises, it undoes the update.
        """
        held = self.held
        if held.optimizer is None:
            raise ModelError("there is no optimizer", net=self.model, hint="Call set_optimizer before training.")
        moved = {name: held.params[name] for name in held.trainable}
        params, state, confirm = held.home.update(held.optimizer, moved, gradients, held.state)
        self.held = replace(held, params={**held.params, **params}, state=state)
        return partial(self._confirmed, held, confirm)

    def _confirmed(self, before: Held, confirm: Callable[[], None]) -> None:
        try:
            confirm()
        except BaseException:
            self.held = before
            raise

    def everything(self) -> Arrays:
        """Copies of all arrays, by dotted names."""
        held = self.held
        return {**by_dotted_names(held.params), **by_dotted_names(_prefixed(held.state))}

    def replace(
        self, given: Mapping[str, Any], error: type[RnnopsError], complete: bool = False, optimizer: bool = True
    ) -> None:
        """Replace arrays, by dotted names; or raise the error and change nothing.

        Args:
            complete: whether all arrays must be given.
            optimizer: whether the optimizer's state is among them.
        """
        held = self.held
        state = _prefixed(held.state) if optimizer else {}
        types = {name: type_of(array) for name, array in {**held.params, **state}.items()}
        arrays = held.home.kept(checked(given, types, self.model, complete, error))
        params = {name: arrays.get(name, array) for name, array in held.params.items()}
        new_state = {name: arrays.get(f"{OPTIMIZER}/{name}", array) for name, array in held.state.items()}
        self.held = replace(held, params=params, state=new_state)


def _prefixed(state: Arrays) -> Arrays:
    return {f"{OPTIMIZER}/{name}": array for name, array in state.items()}
