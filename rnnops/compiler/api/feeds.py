"""Feeds and results of a run: arrays for a call and types for a plan, checked, and options of products.

Arrays of other libraries come by DLPack or as copies. PyTorch negates and conjugates by a bit beside the memory, which
exchange protocols do not carry, and can take memory away from a tensor. No library is imported: arrays are asked for
what they offer. Memory that runs out in a call is an OutOfMemoryError that names the net.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from rnnops.compiler.run.compiled_scan import EXACT, Options
from rnnops.errors import (
    DeviceError,
    FeedError,
    GradientError,
    RecurrentError,
    RnnopsError,
    TypeRuleError,
    check_call,
    did_you_mean,
    out_of_memory_of,
)
from rnnops.interpreter import Program, Workspace, is_whole
from rnnops.kernels.cpu.processor import MIB, has_room, held_back
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Input
from rnnops.ops.linear_algebra import FORMATS, INT8
from rnnops.types import FLOAT, FLOATS, Array, Shape, Type, is_float, is_too_large, type_of

Feeds = Mapping[str, Any]


def resolved(value: Any) -> Any:
    """An array whose memory holds its values: itself, or a copy where a bit beside the memory changes them."""
    for bit, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if hasattr(value, resolve) and getattr(value, bit)():
            value = getattr(value, resolve)()
    return value


def from_dlpack(value: Any) -> Array:
    """A NumPy array over the memory of an array with `__dlpack__`, or over a copy where its memory has other values.

    Raises BufferError where there is no memory for all of its elements, and whatever the other library raises.
    """
    value = resolved(value)
    array = np.from_dlpack(value)
    if array.size and not _is_there(value, array):
        raise BufferError("there is no memory for all of its elements")
    return array


def _is_there(value: Any, array: Array) -> bool:
    """True if NumPy did not make memory up for what had none, and a tensor's storage reaches as far as its elements."""
    if array.flags.owndata or not hasattr(value, "untyped_storage"):
        return not array.flags.owndata
    steps = zip(value.shape, value.stride(), strict=True)
    last = value.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    enough: bool = (last + 1) * value.element_size() <= value.untyped_storage().nbytes()
    return enough


MOST_NAMES = 8  # in an error
PLENTY = 64 * MIB
Method = TypeVar("Method", bound=Callable[..., Any])


def memory_named(name_of: Callable[[Any], str | None]) -> Callable[[Method], Method]:
    """A decorator: errors of memory in the function name the net, and wrong arguments those that it has.

    Args:
        name_of: the net's name, from the function's first argument; None where it is not known.
    """

    def named(function: Method) -> Method:
        @wraps(function)
        def called(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            except Exception as error:
                if isinstance(error, TypeError):
                    check_call(function, arguments, keywords, error, {})
                room = held_back.room
                if room is not None:
                    room.close()
                first = next(iter((*arguments, *keywords.values())), None)
                strange = isinstance(error, SystemError) and not has_room(PLENTY)  # Python's own, without memory
                found = out_of_memory_of(MemoryError(str(error)) if strange else error, name_of(first))
                held_back.hold()
                if found is None or found is error:
                    raise
                raise found from error

        return cast("Method", called)

    return named


def of_run(run: Any) -> str:
    """The name of a run's net."""
    return str(run.net.name)


PRECISIONS = (EXACT, *FORMATS)
ROUNDED_ON_CUDA = "The CUDA device multiplies them on tensor cores; the reference device computes what they mean."


def check_precision(net: str, precision: object, device: str, known: tuple[str, ...]) -> str:
    """The format to which operands of products are rounded; processors do not round to `"tfloat32"` and `"float16"`.

    Args:
        net: name of the net.
        known: precisions that the device has.

    Raises DeviceError for what is not a precision, and for one that the device has not.
    """
    if not isinstance(precision, str) or precision not in known:
        is_one = isinstance(precision, str) and precision in PRECISIONS
        problem = f"device '{device}' does not round operands of products so" if is_one else "no such precision"
        hint = ROUNDED_ON_CUDA if is_one else None
        raise DeviceError(problem, net=net, wanted=" or ".join(known), came=repr(precision), hint=hint)
    return precision


def check_floats(net: Net, precision: str, float_dtype: str) -> None:
    """Raise DeviceError where operands are to be rounded in a run of float64."""
    if precision != EXACT and float_dtype != "float32":
        problem = f"precision='{precision}' rounds only float32"
        raise DeviceError(problem, net=net.name, wanted="feeds of float32", came=float_dtype)


def check_gradients(net: Net, options: Options) -> None:
    """Raise GradientError for a run whose bound weights are not floats."""
    if options.weights:
        hint = "Differentiate a run bound without weights=; plan and profile calls by backward=False."
        raise GradientError(f"weights that are kept as {options.weights} are only for calls", net=net.name, hint=hint)


FLOAT16_ON_CUDA = (
    "The CUDA device keeps recurrent weights as float16: ro.compile(net, device='cuda', weights='float16')."
)


def check_weights(net: str, weights: str, device: str, options: Options) -> None:
    """Raise FeedError for no way to keep weights, DeviceError where a device or a precision has not this one."""
    if weights != INT8:
        raise FeedError("no such way to keep weights", net=net, wanted="'int8', or None", came=repr(weights))
    if not options.interpreted and INT8 not in options.target.weight_types:
        problem = f"device '{device}' has no products with weights of int8"
        hint = FLOAT16_ON_CUDA if device == "cuda" else None
        raise DeviceError(problem, net=net, wanted="device='cpu' or 'reference'", came=repr(weights), hint=hint)
    if options.precision != EXACT:
        problem = "weights of int8 are for products that round nothing else"
        hint = "Leave precision= or weights= out."
        raise DeviceError(problem, net=net, wanted="precision='float32'", came=repr(options.precision), hint=hint)


def _first_of(names: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    first = [*names]
    return ", ".join([*first[:MOST_NAMES], *([f"and {len(first) - MOST_NAMES} more"] if first[MOST_NAMES:] else [])])


def merge_feeds(net: Net, dicts: tuple[Mapping[str, Any], ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """One dict of all feeds. Raises FeedError for a name that is given twice, unknown or missing."""
    merged = merge_given(net, dicts, named)
    missing = [name for name in net.input_names if name not in merged]
    if missing:
        hint = "Feed it at each call, or once by run.bind; a stream feeds states by {'output': 'input'}."
        wanted, came, blob = _first_of(net.input_names), _first_of(merged) or "none", ", ".join(missing)
        raise FeedError("an input is not fed", net=net.name, blob=blob, wanted=wanted, came=came, hint=hint)
    return merged


def check_bound(net: Net, name: str) -> None:
    """Raise FeedError for what is to be bound and is not an input."""
    if name not in net.input_names:
        wanted, hint = ", ".join(net.input_names), _meant(name, net.input_names)
        hint = "A dict is unpacked: bind(**params)." if name == "params" else hint
        raise FeedError("bind names no input", net=net.name, blob=name, wanted=wanted, hint=hint)


def _meant(name: object, known: Collection[str]) -> str | None:
    """A hint for a name that is not an input: another spelling, or dots as models show names to people."""
    slashed = str(name).replace(".", "/")
    if slashed in known and slashed != name:
        return f"In nets it is '{slashed}': model.arrays has such names, model.get_params() dotted ones."
    return did_you_mean(name, known)


MISTAKEN = {"stream": "stream= is for device='cuda'.", "shapes": "Shapes go by the names of inputs: x=(7, 2, 3)."}


def merge_given(net: Net, dicts: tuple[Mapping[str, Any], ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """One dict of what is given for inputs. Raises FeedError for a name that is given twice or unknown."""
    merged: dict[str, Any] = {}
    for feeds in (*dicts, named):
        if not isinstance(feeds, Mapping):
            hint = "Options go by name: training=True, seed=0." if isinstance(feeds, int) else None
            raise FeedError("feeds are dicts of name -> array", net=net.name, came=type(feeds).__name__, hint=hint)
        for name, value in feeds.items():
            if name in merged:
                raise FeedError("this input is fed twice", net=net.name, blob=name)
            merged[name] = value
    inputs = set(net.input_names)
    unknown = [str(name) for name in merged if name not in inputs]
    if unknown:
        raise FeedError(
            "the net has no such input",
            net=net.name,
            blob=", ".join(unknown),
            wanted=f"one of {', '.join(net.input_names) or 'none'}",
            hint=MISTAKEN.get(unknown[0]) or _meant(unknown[0], inputs),
        )
    return merged


def given_once(
    names: Sequence[str], dicts: tuple[Mapping[str, Any], ...], named: Mapping[str, Any]
) -> list[Any] | None:
    """Values of dicts in the order of `names`; None unless each name is given once, and nothing else."""
    merged: Mapping[str, Any] = named
    count = len(named)
    for feeds in dicts:
        if type(feeds) is not dict:
            return None
        count += len(feeds)
        merged = {**merged, **feeds} if merged else feeds
    if count != len(names) or len(merged) != count:
        return None
    try:
        return [merged[name] for name in names]
    except KeyError:
        return None


def plain_arrays(feeds: Sequence[Any]) -> list[Array] | None:
    """Feeds as kernels take them, where all are NumPy arrays; else None.

    Those that lie otherwise, such as a frame cut out of a recording, are copied. What is read here is looked at more
    closely only where its types are new.
    """
    if any(type(array) is not np.ndarray for array in feeds):
        return None
    return [array if (flags := array.flags).c_contiguous and flags.aligned else _in_rows(array) for array in feeds]


def as_arrays(net: Net, feeds: Mapping[str, Any], read: Callable[[str, str, Any], Any]) -> tuple[dict[str, Any], str]:
    """Feeds as arrays, checked against the inputs, and the float dtype of the run.

    Args:
        read: net, input and feed -> array.

    Raises FeedError for what is not an array, a wrong dtype, a wrong shape, or floats of two dtypes.
    """
    fed = [spec for spec in net.input_specs if spec.name in feeds]
    arrays = {spec.name: integers_as_declared(net, spec, read(net.name, spec.name, feeds[spec.name])) for spec in fed}
    float_dtype = float_dtype_of(net, arrays) or "float32"
    for spec in fed:
        check_type(net, spec, type_of(arrays[spec.name]), float_dtype)
    return arrays, float_dtype


_NONE = "Every input needs an array: zeros for a state, say, or full lengths."
_CONVERT = "Convert it with numpy.asarray(value, dtype)."
_DETACH = "Feed x.detach(), or use rnnops.torch, which joins autograd."


def as_array(net: str, name: str, value: Any, what: str = "a feed") -> Array:
    """A NumPy array over a feed's memory. Raises FeedError for lists, numbers and arrays of another device."""
    if isinstance(value, np.ma.MaskedArray):
        raise FeedError(f"{what} is a masked array", net=net, blob=name, hint="Fill it with .filled(value) first.")
    if isinstance(value, np.ndarray):
        return _in_rows(value)
    if is_on_cuda(value):
        raise FeedError(
            "a CUDA array is fed to a run on the CPU", net=net, blob=name, hint="Copy it to the host first."
        )
    if not hasattr(value, "__dlpack__") or isinstance(value, np.generic):
        wanted, came = "a NumPy array or one with __dlpack__", type(value).__name__
        none = _NONE if what == "a feed" else "Leave it out: what is not named has zeros."
        hint = none if value is None else None if isinstance(value, Blob) else _CONVERT
        raise FeedError(f"{what} is not an array", net=net, blob=name, wanted=wanted, came=came, hint=hint)
    try:
        return _in_rows(from_dlpack(value))
    except Exception as error:  # whatever the other library raises
        hint = _DETACH if getattr(value, "requires_grad", False) else None
        raise FeedError(f"{what} cannot be read through DLPack: {error}", net=net, blob=name, hint=hint) from error


def integers_as_declared(net: Net, spec: Input, array: Any) -> Any:
    """Integers in the dtype of their input, as indices and labels of NumPy are int64.

    Raises FeedError where a value does not fit.
    """
    if spec.dtype == FLOAT or type(array) is not np.ndarray or array.dtype == spec.dtype:
        return array
    if array.dtype.kind not in "iu" or np.dtype(spec.dtype).kind not in "iu":
        return array  # which is refused for its dtype
    limits = np.iinfo(spec.dtype)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < limits.min or high > limits.max:
        came = f"{array.dtype} from {low} to {high}"
        raise FeedError(
            "integers that do not fit their input", net=net.name, blob=spec.name, wanted=spec.dtype, came=came
        )
    return array.astype(spec.dtype)


def _in_rows(array: Array) -> Array:
    """A plain array in row-major order, as products and sums round differently over others; aligned, for kernels."""
    plain = np.asarray(array, order="C")
    return plain if plain.flags.aligned else plain.copy()


def is_on_cuda(value: Any) -> bool:
    """True if a feed is an array of a CUDA device, of any library."""
    try:
        where = getattr(value, "__dlpack_device__", None)
        return hasattr(value, "__cuda_array_interface__") or (where is not None and where()[0] == 2)  # kDLCUDA
    except Exception:  # whatever the other library raises; it does so again, with a name, when the array is read
        return False


def as_given(names: Sequence[str], arrays: Mapping[str, Array], given: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The caller's own arrays of some inputs, to be changed in place; `arrays` may hold copies or views of them."""
    merged: dict[str, Any] = {}
    for feeds in given:
        merged.update(feeds)
    fed: dict[str, Any] = {name: merged.get(name) for name in names}
    return {name: one if type(one) is np.ndarray or is_on_cuda(one) else arrays[name] for name, one in fed.items()}


def float_dtype_of(net: Net, arrays: Mapping[str, Array]) -> str | None:
    """The one float dtype of all float feeds, None where there are none. Raises FeedError where there are two."""
    floats = {name: str(arrays[name].dtype) for name in arrays if is_float(net.dtype_of(name))}
    for name, dtype in floats.items():
        if dtype not in ("float32", "float64"):
            problem, hint = "a float input has another dtype", _conversion_hint(name, "float32", dtype)
            wanted = "float32 or float64"
            raise FeedError(problem, net=net.name, blob=name, wanted=wanted, came=dtype, hint=hint)
    if len(set(floats.values())) > 1:
        _fail_for_two_dtypes(net, floats)
    return next(iter(floats.values()), None)


def _fail_for_two_dtypes(net: Net, floats: Mapping[str, str]) -> NoReturn:
    """Raise FeedError for the first of the fewer feeds: most have the dtype that is meant."""
    dtypes = list(floats.values())
    wanted = max(dtypes, key=dtypes.count)  # the first feed's, where there are as many of both
    like, name = (next(one for one in floats if (floats[one] == wanted) is same) for same in (True, False))
    raise FeedError(
        "float feeds of two dtypes",
        net=net.name,
        blob=name,
        wanted=f"{wanted} as '{like}' has",
        came=floats[name],
        hint=_conversion_hint(name, wanted),
    )


def _conversion_hint(name: str, dtype: str, came: str = "") -> str:
    """The hint to convert a feed; a complex one would lose its imaginary part."""
    if came.startswith("complex"):
        return "Complex numbers are pairs of reals: feed array.real and array.imag, each to an input."
    if came == "object":
        return "Rows of several lengths are no array: pad them, and say lengths=."
    return f"Convert it: {name if name.isidentifier() else 'array'}.astype('{dtype}')."


def check_type(net: Net, spec: Input, kind: Type, float_dtype: str) -> None:
    """Raise FeedError where a feed has not the dtype or the shape that its input was declared with."""
    wanted = float_dtype if spec.dtype == FLOAT else spec.dtype
    if kind.dtype != wanted:
        problem, hint = "a feed of a wrong dtype", _conversion_hint(spec.name, wanted, kind.dtype)
        raise FeedError(problem, net=net.name, blob=spec.name, wanted=wanted, came=kind.dtype, hint=hint)
    if spec.shape is not None and kind.shape != spec.shape:
        raise FeedError(
            "a feed of a wrong shape", net=net.name, blob=spec.name, wanted=list(spec.shape), came=list(kind.shape)
        )


def with_sizes_of_file(plan: Method) -> Method:
    """A method of a run that plans for types: where these do not fit, its error names a size that a file has fixed."""

    @wraps(plan)
    def planned(run: Any, *given: Any) -> Any:
        try:
            return plan(run, *given)
        except (RecurrentError, TypeRuleError) as error:
            types = next(one for one in given if isinstance(one, Mapping))
            raise _of_file(run.net, types, error) or error from error

    return cast(Method, planned)


def _of_file(net: Net, types: Mapping[str, Type], error: RnnopsError) -> FeedError | None:
    """The error for a feed that does not have a size that a file has fixed; None where there is none."""
    for spec in net.input_specs:
        shape = types[spec.name].shape
        for axis, size in spec.fixed.items():
            if shape[axis : axis + 1] != (size,):
                problem = f"the file fixes a size that this feed does not have: {error.problem}"
                hint = "Feed that size, or export the file with this axis open, from an example of 2 or more."
                wanted, came = f"{size} along axis {axis}", list(shape)
                return FeedError(
                    problem, net=net.name, op=error.op, blob=spec.name, wanted=wanted, came=came, hint=hint
                )
    return None


def checked_seed(net: Net, seed: Any, random_op: str | None) -> int | None:
    """The seed of a run. Raises FeedError where random ops are live without one, or it is not a 64-bit integer."""
    if seed is None:
        if random_op is not None:
            raise FeedError(
                "random ops are live and no seed is given", net=net.name, op=random_op, hint="Pass seed=, an integer."
            )
        return None
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise FeedError("not a seed", net=net.name, wanted="an integer from 0 to 2**64 - 1", came=repr(seed))
    return int(seed)


def checked_wrt(net: Net, wrt: Any, what: str = "wrt") -> tuple[str, ...]:
    """Float inputs whose gradients are wanted, all of them if left out. Raises FeedError for others."""
    floats = dict.fromkeys(name for name in net.input_names if is_float(net.dtype_of(name)))
    if wrt is None:
        return tuple(floats)
    names = names_of(wrt)
    for name in names:
        if not isinstance(name, str) or name not in floats:
            hint = "Shapes are unpacked: **shapes." if isinstance(name, Mapping) else None
            hint = f"Inputs go by name: '{name.name}'." if isinstance(name, Blob) else hint
            problem, came = f"{what} names no float input", None if isinstance(name, str) else type(name).__name__
            blob = name if isinstance(name, str) else None
            raise FeedError(
                problem, net=net.name, blob=blob, wanted=f"one of {', '.join(floats)}", came=came, hint=hint
            )
    wanted = set(names)
    return tuple(name for name in floats if name in wanted)


def names_of(given: Any) -> list[Any]:
    """The names in a list or set; anything else is one name."""
    return list(given) if isinstance(given, Sequence | Set) and not isinstance(given, str) else [given]


def grads_by_output(net: str, grads: Any, outputs: Collection[str]) -> Mapping[str, Any]:
    """Gradients by output; one gradient is that of the only float output. Raises GradientError if there are others."""
    if isinstance(grads, Mapping):
        return grads
    if len(outputs) != 1:
        problem = f"one gradient is given, but there are {'several' if outputs else 'no'} float outputs"
        wanted = f"a dict over {', '.join(outputs)}" if outputs else "an empty dict"
        raise GradientError(problem, net=net, wanted=wanted)
    return dict.fromkeys(outputs, grads)


def checked_grad(net: str, output: str, value: Any, wanted: Type, read: Callable[[str, Any], Array]) -> Array:
    """The gradient of an output as an array. Raises GradientError for another type, and for what is not an array.

    Args:
        value: that was given; an output without axes takes a number.
        read: output and value -> array.
    """
    if type(value) in (int, float) and not wanted.shape:
        return np.full((), value, wanted.dtype)
    if isinstance(value, int | float) and wanted.shape:
        one = f"Make a loss of one number, as ro.reduce_mean does, or give an array: np.ones_like(out['{output}'])."
        problem, came = "a gradient of an array is one number", type(value).__name__
        raise GradientError(problem, net=net, blob=output, wanted=wanted, came=came, hint=one)
    try:
        array = np.asarray(value) if isinstance(value, np.generic) else read(output, value)
    except FeedError as error:
        details: dict[str, Any] = {"wanted": error.wanted, "came": error.came, "hint": error.hint}
        raise GradientError(error.problem, net=net, blob=output, **details) from error
    if type_of(array) != wanted:
        hint = f"Convert it: array.astype('{wanted.dtype}')." if array.shape == wanted.shape else None
        problem = "a gradient of a wrong type"
        raise GradientError(problem, net=net, blob=output, wanted=wanted, came=type_of(array), hint=hint)
    return array


def types_of_feeds(
    net: Net,
    dicts: tuple[Mapping[str, Any], ...],
    named: Mapping[str, Any],
    dtype: Any = None,
    read: Callable[[str, str, Any], Any] = as_array,
) -> tuple[dict[str, Type], str]:
    """The type of each input, in the order of the net, and the float dtype of the run.

    Args:
        dicts, named: input name -> array or shape; an input with a declared shape may be left out.
        dtype: of floats; that of the arrays where there are some, else float32.
        read: net, input and feed -> array.

    Raises FeedError for names that are twice, unknown or missing, and for arrays and shapes that do not fit.
    """
    given = merge_given(net, dicts, named)
    missing = [spec.name for spec in net.input_specs if spec.name not in given and spec.shape is None]
    if missing:
        wanted = "an array or a shape, as no shape is declared"
        bound = "Bind what stays the same, as parameters do, first: run.bind(**params)."
        hint = bound if dicts else f"Give it by name: {missing[0]}= an array or its shape."  # a net has nothing bound
        raise FeedError("an input is left out", net=net.name, blob=", ".join(missing), wanted=wanted, hint=hint)
    fed = [spec for spec in net.input_specs if spec.name in given and not _is_shape(given[spec.name])]
    arrays = {spec.name: integers_as_declared(net, spec, read(net.name, spec.name, given[spec.name])) for spec in fed}
    floats = asked_float_dtype(net, arrays, dtype)
    types = {}
    for spec in net.input_specs:
        name = spec.name
        types[name] = type_of(arrays[name]) if name in arrays else _type(net, spec, given.get(name), floats)
        check_type(net, spec, types[name], floats)
    return types, floats


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple | list)


def asked_float_dtype(net: Net, arrays: Mapping[str, Array], dtype: Any) -> str:
    """The float dtype that was asked for. Raises FeedError where that is none, or not that of the arrays."""
    came = "float32" if dtype is None else _name(dtype)
    if came not in FLOATS[1:]:
        raise FeedError("no dtype of floats", net=net.name, wanted="float32 or float64", came=came)
    found = float_dtype_of(net, arrays)
    if found is not None and dtype is not None and found != came:
        raise FeedError("float feeds of another dtype than dtype=", net=net.name, wanted=came, came=found)
    return found or came


def _name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype))
    except TypeError:
        return repr(dtype)


def _type(net: Net, spec: Input, shape: Any, float_dtype: str) -> Type:
    """The type of an input with a given or declared shape."""
    dtype = float_dtype if spec.dtype == FLOAT else spec.dtype
    return Type(dtype, _checked_shape(net, spec.name, spec.shape if shape is None else shape))


def _checked_shape(net: Net, name: str, shape: Any) -> Shape:
    wrong = [size for size in shape if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0]
    if wrong:
        raise FeedError("no shape", net=net.name, blob=name, wanted="integers of 0 or more", came=repr(shape))
    sizes = tuple(int(size) for size in shape)
    if is_too_large(sizes):
        raise FeedError("no memory can hold an array of this shape", net=net.name, blob=name, came=list(sizes))
    return sizes


def filled(arrays: Mapping[str, Array]) -> Workspace:
    workspace = Workspace()
    workspace.local.update(arrays)
    return workspace


def outputs_of(program: Program, workspace: Workspace, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs as arrays of the caller's own: copies where they would share memory with feeds, constants or each other.

    `_all` and `_last` of a state stay views of one tensor where both are outputs; `_last` by itself does not keep it
    alive. A state before each step and after it share a tensor, too; of two arrays that are most of one, the second is
    copied.
    """
    arrays = {name: workspace[blob] for name, blob in program.net.output_blobs.items()}
    whole = {id(_root(array)) for array in arrays.values() if is_whole(array)}
    borrowed = {id(array) for feed in feeds.values() for array in (feed, feed.base) if array is not None}
    outputs: dict[str, Array] = {}
    seen: set[int] = set()
    for name, array in arrays.items():
        shared = not array.flags.writeable or id(_root(array)) in borrowed
        alone = array.base is not None and id(array.base) not in whole
        own = {id(array), id(_root(array))} if is_whole(array) else {id(array)}
        outputs[name] = array.copy() if shared or alone or own & seen else array.view()
        seen |= own
    return outputs


def _root(array: Array) -> Any:
    """The array that owns an array's memory."""
    return array if array.base is None else array.base
