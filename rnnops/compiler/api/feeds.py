"""Feeds and results of a run: arrays for a call and types for a plan, checked; and checks of options of products.

The order here: arrays of other libraries, errors of memory, options, feeds as arrays, types for plans, results.

Arrays of other libraries are read by DLPack or copied. PyTorch notes in a bit that a tensor is negated or conjugated,
and DLPack does not carry this bit. PyTorch can also take the memory away from a tensor. Both are checked. No other
library is imported: arrays are asked for their attributes. If memory runs out in a call, the OutOfMemoryError names the
net.
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
    """The array itself, or a copy if it has a bit that changes the values in its memory (see above)."""
    for bit, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if hasattr(value, resolve) and getattr(value, bit)():
            value = getattr(value, resolve)()
    return value


def from_dlpack(value: Any) -> Array:
    """A NumPy array over the memory of an array with `__dlpack__`, or over a copy from `resolved`.

    Raises BufferError if the array does not have memory for all of its elements, and the errors of the other library.
    """
    value = resolved(value)
    array = np.from_dlpack(value)
    if array.size and not _is_there(value, array):
        raise BufferError("there is no memory for all of its elements")
    return array


def _is_there(value: Any, array: Array) -> bool:
    """True if the array has memory: NumPy did not make its own, and a tensor's storage is as large as its elements."""
    if array.flags.owndata or not hasattr(value, "untyped_storage"):
        return not array.flags.owndata
    steps = zip(value.shape, value.stride(), strict=True)
    last = value.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    enough: bool = (last + 1) * value.element_size() <= value.untyped_storage().nbytes()
    return enough


MOST_NAMES = 8  # names that an error lists
PLENTY = 64 * MIB  # if less memory is free, a SystemError of Python is taken for a lack of memory
Method = TypeVar("Method", bound=Callable[..., Any])


def memory_named(name_of: Callable[[Any], str | None]) -> Callable[[Method], Method]:
    """A decorator: errors of memory name the net, and errors of unknown arguments name the arguments of the function.

    Args:
        name_of: from the function's first argument to the net's name; None if it is not known.
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
                strange = isinstance(error, SystemError) and not has_room(PLENTY)  # Python raises it without memory
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
ROUNDED_ON_CUDA = "CUDA devices multiply rounded operands on tensor cores; the reference device does it in NumPy."


def check_precision(net: str, precision: object, device: str, known: tuple[str, ...]) -> str:
    """The format to which operands of products are rounded, after checks.

    Args:
        net: name of the net.
        known: formats of the device. Processors have no `"tfloat32"` and `"float16"`.

    Raises DeviceError for an unknown format, and for a format that the device does not have.
    """
    if not isinstance(precision, str) or precision not in known:
        is_one = isinstance(precision, str) and precision in PRECISIONS
        problem = f"device '{device}' does not have this precision" if is_one else "no such precision"
        hint = ROUNDED_ON_CUDA if is_one else None
        raise DeviceError(problem, net=net, wanted=" or ".join(known), came=repr(precision), hint=hint)
    return precision


def check_floats(net: Net, precision: str, float_dtype: str) -> None:
    """Raise DeviceError for a precision other than float32 in a run of float64."""
    if precision != EXACT and float_dtype != "float32":
        problem = f"precision='{precision}' rounds only float32"
        raise DeviceError(problem, net=net.name, wanted="feeds of float32", came=float_dtype)


def check_gradients(net: Net, options: Options) -> None:
    """Raise GradientError for a run whose bound weights are not floats."""
    if options.weights:
        hint = "Differentiate a run bound without weights=; plan and profile calls by backward=False."
        raise GradientError(f"weights that are kept as {options.weights} have no gradient", net=net.name, hint=hint)


FLOAT16_ON_CUDA = (
    "The CUDA device keeps recurrent weights as float16: ro.compile(net, device='cuda', weights='float16')."
)


def check_weights(net: str, weights: str, device: str, options: Options) -> None:
    """Raise FeedError for an unknown format of weights, DeviceError if device or precision do not allow it."""
    if weights != INT8:
        raise FeedError("no such format of weights", net=net, wanted="'int8', or None", came=repr(weights))
    if not options.interpreted and INT8 not in options.target.weight_types:
        problem = f"device '{device}' has no products with weights of int8"
        hint = FLOAT16_ON_CUDA if device == "cuda" else None
        raise DeviceError(problem, net=net, wanted="device='cpu' or 'reference'", came=repr(weights), hint=hint)
    if options.precision != EXACT:
        problem = "weights of int8 do not go with another precision"
        hint = "Leave precision= or weights= out."
        raise DeviceError(problem, net=net, wanted="precision='float32'", came=repr(options.precision), hint=hint)


def _first_of(names: Iterable[str]) -> str:
    """The first names, and how many more there are, in words."""
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
    """Raise FeedError if `name`, which is to be bound, is not an input."""
    if name not in net.input_names:
        wanted, hint = ", ".join(net.input_names), _meant(name, net.input_names)
        hint = "A dict is unpacked: bind(**params)." if name == "params" else hint
        raise FeedError("bind names no input", net=net.name, blob=name, wanted=wanted, hint=hint)


def _meant(name: object, known: Collection[str]) -> str | None:
    """A hint for a name that is not an input: a similar name, or the name with slashes for one with dots."""
    slashed = str(name).replace(".", "/")
    if slashed in known and slashed != name:
        return f"In nets it is '{slashed}': model.arrays has such names, model.get_params() dotted ones."
    return did_you_mean(name, known)


MISTAKEN = {"stream": "stream= is for device='cuda'.", "shapes": "Shapes go by the names of inputs: x=(7, 2, 3)."}


def merge_given(net: Net, dicts: tuple[Mapping[str, Any], ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """One dict of all values for inputs. Raises FeedError for a name that is given twice or unknown."""
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
    """Feeds as kernels take them, if all are NumPy arrays; else None.

    Arrays that are not contiguous, such as a frame cut out of a recording, are copied. Nothing else is checked
    here. The caller checks feeds further only if their types are new.
    """
    if any(type(array) is not np.ndarray for array in feeds):
        return None
    return [array if (flags := array.flags).c_contiguous and flags.aligned else _in_rows(array) for array in feeds]


def as_arrays(net: Net, feeds: Mapping[str, Any], read: Callable[[str, str, Any], Any]) -> tuple[dict[str, Any], str]:
    """Feeds as arrays, checked against the inputs, and the float dtype of the run.

    Args:
        read: from (net, input, feed) to an array.

    Raises FeedError for a value that is not an array, a wrong dtype, a wrong shape, or floats of two dtypes.
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
        none = _NONE if what == "a feed" else "Leave it out: outputs that are not named have zeros."
        hint = none if value is None else None if isinstance(value, Blob) else _CONVERT
        raise FeedError(f"{what} is not an array", net=net, blob=name, wanted=wanted, came=came, hint=hint)
    try:
        return _in_rows(from_dlpack(value))
    except Exception as error:  # whatever the other library raises
        hint = _DETACH if getattr(value, "requires_grad", False) else None
        raise FeedError(f"{what} cannot be read through DLPack: {error}", net=net, blob=name, hint=hint) from error


def integers_as_declared(net: Net, spec: Input, array: Any) -> Any:
    """An array of integers in the dtype that its input declares, since NumPy makes int64; other arrays unchanged.

    Raises FeedError if a value does not fit the dtype.
    """
    if spec.dtype == FLOAT or type(array) is not np.ndarray or array.dtype == spec.dtype:
        return array
    if array.dtype.kind not in "iu" or np.dtype(spec.dtype).kind not in "iu":
        return array  # `check_type` refuses it
    limits = np.iinfo(spec.dtype)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < limits.min or high > limits.max:
        came = f"{array.dtype} from {low} to {high}"
        raise FeedError(
            "integers do not fit the dtype of their input", net=net.name, blob=spec.name, wanted=spec.dtype, came=came
        )
    return array.astype(spec.dtype)


def _in_rows(array: Array) -> Array:
    """A plain array in row-major order, aligned, as kernels need it. Over other orders NumPy rounds differently."""
    plain = np.asarray(array, order="C")
    return plain if plain.flags.aligned else plain.copy()


def is_on_cuda(value: Any) -> bool:
    """True if a feed is an array of a CUDA device, of any library."""
    try:
        where = getattr(value, "__dlpack_device__", None)
        return hasattr(value, "__cuda_array_interface__") or (where is not None and where()[0] == 2)  # kDLCUDA
    except Exception:  # any error of another library; reading the array will raise it again, and name the input
        return False


def as_given(names: Sequence[str], arrays: Mapping[str, Array], given: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The caller's own arrays of these inputs, to be changed in place; `arrays` may hold copies or views."""
    merged: dict[str, Any] = {}
    for feeds in given:
        merged.update(feeds)
    fed: dict[str, Any] = {name: merged.get(name) for name in names}
    return {name: one if type(one) is np.ndarray or is_on_cuda(one) else arrays[name] for name, one in fed.items()}


def float_dtype_of(net: Net, arrays: Mapping[str, Array]) -> str | None:
    """The one float dtype of all float feeds; None if there are none. Raises FeedError if there are two."""
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
    """Raise FeedError for a feed of the rarer dtype, because the dtype of most feeds is probably meant."""
    dtypes = list(floats.values())
    wanted = max(dtypes, key=dtypes.count)  # if both are as frequent, that of the first feed
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
        return "Rows of different lengths are not an array: pad them, and give lengths=."
    return f"Convert it: {name if name.isidentifier() else 'array'}.astype('{dtype}')."


def check_type(net: Net, spec: Input, kind: Type, float_dtype: str) -> None:
    """Raise FeedError if a feed does not have the dtype or the shape that its input was declared with."""
    wanted = float_dtype if spec.dtype == FLOAT else spec.dtype
    if kind.dtype != wanted:
        problem, hint = "a feed of a wrong dtype", _conversion_hint(spec.name, wanted, kind.dtype)
        raise FeedError(problem, net=net.name, blob=spec.name, wanted=wanted, came=kind.dtype, hint=hint)
    if spec.shape is not None and kind.shape != spec.shape:
        raise FeedError(
            "a feed of a wrong shape", net=net.name, blob=spec.name, wanted=list(spec.shape), came=list(kind.shape)
        )


def with_sizes_of_file(plan: Method) -> Method:
    """A decorator for methods of runs that plan for types. If types do not fit, and an ONNX file fixes a size of them,
    the error names this size."""

    @wraps(plan)
    def planned(run: Any, *given: Any) -> Any:
        try:
            return plan(run, *given)
        except (RecurrentError, TypeRuleError) as error:
            types = next(one for one in given if isinstance(one, Mapping))
            raise _of_file(run.net, types, error) or error from error

    return cast(Method, planned)


def _of_file(net: Net, types: Mapping[str, Type], error: RnnopsError) -> FeedError | None:
    """The error for a feed that does not have a size which a file fixes; None if there is no such feed."""
    for spec in net.input_specs:
        shape = types[spec.name].shape
        for axis, size in spec.fixed.items():
            if shape[axis : axis + 1] != (size,):
                problem = f"the file fixes a size that this feed does not have: {error.problem}"
                hint = "Feed that size, or export the file with this axis open, from an example of size 2 or more."
                wanted, came = f"{size} along axis {axis}", list(shape)
                return FeedError(
                    problem, net=net.name, op=error.op, blob=spec.name, wanted=wanted, came=came, hint=hint
                )
    return None


def checked_seed(net: Net, seed: Any, random_op: str | None) -> int | None:
    """The seed of a run. Raises FeedError if random ops are live and it is None, or if it is not a 64-bit integer."""
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
    """Gradients by output. A gradient without a name is for the only float output. Raises GradientError if there is not
    exactly one."""
    if isinstance(grads, Mapping):
        return grads
    if len(outputs) != 1:
        problem = f"one gradient is given, but there are {'several' if outputs else 'no'} float outputs"
        wanted = f"a dict over {', '.join(outputs)}" if outputs else "an empty dict"
        raise GradientError(problem, net=net, wanted=wanted)
    return dict.fromkeys(outputs, grads)


def checked_grad(net: str, output: str, value: Any, wanted: Type, read: Callable[[str, Any], Array]) -> Array:
    """The gradient of an output as an array. Raises GradientError for another type, or a value that is not an array.

    Args:
        value: the given gradient; it may be a number for an output without axes.
        wanted: the type that it must have.
        read: from (output, value) to an array.
    """
    if type(value) in (int, float) and not wanted.shape:
        return np.full((), value, wanted.dtype)
    if isinstance(value, int | float) and wanted.shape:
        one = f"Make a loss of one number, as ro.reduce_mean does, or give an array: np.ones_like(out['{output}'])."
        problem, came = "the gradient of an array must be an array", type(value).__name__
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
        dtype: dtype of floats; by default that of the arrays if there are any, else float32.
        read: from (net, input, feed) to an array.

    Raises FeedError for names that are given twice, unknown or missing, and for arrays and shapes that do not fit.
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
    """The float dtype of a plan. Raises FeedError if `dtype` is not a float dtype, or is not that of the arrays."""
    came = "float32" if dtype is None else _name(dtype)
    if came not in FLOATS[1:]:
        raise FeedError("dtype= is not a float dtype", net=net.name, wanted="float32 or float64", came=came)
    found = float_dtype_of(net, arrays)
    if found is not None and dtype is not None and found != came:
        raise FeedError("float feeds have another dtype than dtype=", net=net.name, wanted=came, came=found)
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
        raise FeedError("not a shape", net=net.name, blob=name, wanted="integers of 0 or more", came=repr(shape))
    sizes = tuple(int(size) for size in shape)
    if is_too_large(sizes):
        raise FeedError("no memory can hold an array of this shape", net=net.name, blob=name, came=list(sizes))
    return sizes


def filled(arrays: Mapping[str, Array]) -> Workspace:
    workspace = Workspace()
    workspace.local.update(arrays)
    return workspace


def outputs_of(program: Program, workspace: Workspace, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs as arrays of the caller's own. An output that shares memory with feeds, constants or others is copied.

    Exception: if `_all` and `_last` of a state are both outputs, they stay views of one tensor. If only `_last` is an
    output, it is copied, so that it does not keep the tensor alive. Two outputs that are both most of one tensor, such
    as a state before each step and after it, do not share it: the second is copied.
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
