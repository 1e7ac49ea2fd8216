"""Arrays in the memory of a CUDA device, numbers of the host in them, and kernels that move elements.

**Arrays in the memory of a CUDA device, with the functions of NumPy that a run needs: views, copies, sums, fills**.
An array has a twin, a view of a NumPy array (`TwinArray`), which computes shapes and strides of views. The twin's
memory, the frame, is never written. So it takes no room: the system gives pages only when they are written. Only
kernels and copies read and write elements, in the current stream (`current_stream`).

In the simulator the device's memory is memory of the host. Everything else is the same, so that tests cover the code
that a device runs. Limits: one device; `+=` takes an array of the same dtype; no other arithmetic.
Streams wait for each other, also for streams of other libraries (`memory.py`).

**Numbers of the host in an array of the device**: they are copied, or, if memory is lent, written by a kernel that has
them as arguments. A lender may capture a graph. A copy in a graph would read memory of the host at each run of the
graph, while arguments are stored in the graph. In both ways a first run loads all code that a captured run needs.

**Copies, fills and sums of arrays of a CUDA device with any strides**: two kernels. Neighbouring axes are joined if no
gap lies between them. The kernel takes at most four axes; more axes need several launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.kernels.cuda.facade import LEGACY_STREAM, address_of, cuda, current_device, kernel, launch, synchronize
from rnnops.kernels.cuda.memory import (
    CUDA,
    MemoryPiece,
    borrowed,
    capsule,
    clear,
    copy_in,
    copy_out,
    current_lender,
    current_stream,
    refuse_in_graph,
)
from rnnops.kernels.cuda.simulated import SIMULATED
from rnnops.types import TwinArray

DTYPES = "biuf"  # kinds of elements
ELSEWHERE = "CuPy and PyTorch compute with it without a copy, .to_host() makes a NumPy array of it"


class DeviceArray(TwinArray):
    """An array of a CUDA device; other libraries take it by `__cuda_array_interface__` or DLPack.

    Args:
        memory: the piece of memory that holds the elements.
        twin: a view of the memory's frame.
    """

    memory: MemoryPiece
    where: ClassVar[str] = "the CUDA device"

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self.memory.pointer) + self.offset

    def __float__(self) -> float:
        return float(self.to_host())

    def __int__(self) -> int:
        return int(self.to_host())

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if how else str(self)

    def item(self) -> Any:
        """The number in an array of one element. The host waits for it."""
        return self.to_host().item()

    def __repr__(self) -> str:
        return f"<array of the CUDA device, {self.dtype} {list(self.shape)}; .to_host() copies it>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an array of the CUDA device has no '{name}'; {ELSEWHERE}")

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(f"an array of the CUDA device knows no arithmetic but +=; {ELSEWHERE}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = _refuse
    __isub__ = __imul__ = __itruediv__ = __neg__ = __pow__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]  # as NumPy's

    # -- elements --------------------------------------------------------------------------------------------------

    def __iadd__(self, other: DeviceArray) -> DeviceArray:
        self._check_writeable()
        self._move(on_device(other), adds=True)
        return self

    def assign(self, value: Any) -> None:
        """Take the elements of another array, of NumPy too, or one number for all."""
        self._check_writeable()
        self._move(value if isinstance(value, DeviceArray) else on_device(np.asarray(value, self.dtype)), adds=False)

    def _move(self, source: DeviceArray, adds: bool) -> None:
        if source.memory is self.memory and not adds and _same_place(source, self):
            return  # after `x[1] += y` Python assigns the array that was added to
        stream = current_stream()
        apart = self._apart(source).broadcast_to(self.shape)
        apart.memory.read_in(stream)
        self.memory.write_in(stream)
        move(self, apart, adds, stream)

    def _apart(self, source: DeviceArray) -> DeviceArray:
        """The array `source`, or a copy if it overlaps this array at other places."""
        return source.copy() if not _same_place(source, self) and np.may_share_memory(self, source) else source

    def _check_writeable(self) -> None:
        if not self.flags.writeable:
            raise ValueError("an array of the CUDA device is read-only: a pullback or another library reads it")

    def fill(self, number: Any) -> None:
        """Set all elements to a number. Zeros need no copy from the host, other numbers do."""
        self._check_writeable()
        if number != 0 and self.memory.host is not None:
            self.on_simulated_device()[...] = number
        elif number != 0:
            self.assign(np.asarray(number, self.dtype))
        elif not self.flags.c_contiguous:
            self._move(zeros((1,), self.dtype), adds=False)
        elif self.size:
            self._clear()

    def _clear(self) -> None:
        if self.memory.host is not None:
            self.on_simulated_device()[...] = 0
        else:
            self.memory.write_in(current_stream())
            clear(self, current_stream())

    def copy(self) -> DeviceArray:
        """A contiguous copy."""
        made = empty(self.shape, self.dtype)
        made.assign(self)
        return made

    def sum(self, axis: int | None = None, out: DeviceArray | None = None) -> DeviceArray:
        """The sum along the first axis, in order, of a contiguous array."""
        if axis != 0 or out is None or not self.flags.c_contiguous:
            raise TypeError(f"arrays of the CUDA device have no sums but along axis 0 into another: {ELSEWHERE}")
        self.memory.read_in(current_stream())
        out.memory.write_in(current_stream())
        add_up(self, out, stream=current_stream())
        return out

    def __deepcopy__(self, _memo: Any) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> Any:
        raise TypeError("an array of the CUDA device is not pickled; .to_host() is")

    # -- other libraries -------------------------------------------------------------------------------------------

    def to_host(self) -> Any:
        """A copy as a NumPy array, after all earlier work of the stream is done."""
        refuse_in_graph("numbers of the device are read on the host", hint="Read them when the graph has run.")
        if self.memory.host is not None:
            return self.on_simulated_device().copy()
        source = self if self.flags.c_contiguous else self.copy()
        array = np.empty(self.shape, self.dtype)
        if array.size:
            source.memory.read_in(current_stream())
            copy_out(
                source.view(np.uint8) if self.dtype == np.bool_ else source, _bytes_of_bools(array), current_stream()
            )
        return array

    def on_simulated_device(self) -> Any:
        """In the simulator: the elements as a NumPy array over the same memory."""
        return np.ndarray(self.shape, self.dtype, self.memory.host, self.offset, self.strides)

    def _is_fixed(self) -> bool:
        """True if other libraries are told that the array is read-only.

        That is so if another library has called its memory read-only, or if one element stands at several indices.
        Arrays that a pullback reads are not called read-only: PyTorch would not take them.
        """
        twice = any(stride == 0 and size > 1 for stride, size in zip(self.strides, self.shape, strict=True))
        return not self.memory.frame.flags.writeable or (self.size > 0 and twice)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if SIMULATED:
            raise AttributeError("__cuda_array_interface__: the simulator's memory is not a device's")
        writer = self.memory.writer
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, self._is_fixed()),
            "strides": None if self.flags.c_contiguous else self.strides,
            "stream": None if writer is None else address_of(writer) or LEGACY_STREAM,
            "version": 3,
        }

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A capsule of DLPack for another library, which will read it in `stream`. Options: see `memory.capsule`."""
        return capsule(self, self._is_fixed(), stream, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0 if SIMULATED else current_device()

    def __array__(self, *_given: Any, **_named: Any) -> Any:
        raise TypeError("an array of the CUDA device is not a NumPy array; use .to_host()")

    def __array_function__(self, function: Any, _types: Any, given: Any, named: Any) -> Any:
        if function not in (np.may_share_memory, np.shares_memory):
            raise TypeError(f"arrays of the CUDA device know no np.{function.__name__}; use .to_host()")
        a, b = given[:2]
        return isinstance(a, DeviceArray) and isinstance(b, DeviceArray) and a.reaches_into(b)

    def reaches_into(self, other: DeviceArray) -> bool:
        """True if the address ranges of two arrays overlap, as for `np.may_share_memory`. Owners do not matter."""
        (low, end), (other_low, other_end) = _addresses(self), _addresses(other)
        return self.size > 0 and other.size > 0 and low < other_end and other_low < end


def _same_place(a: DeviceArray, b: DeviceArray) -> bool:
    """True if two arrays of the same memory have the same elements at the same indices."""
    return a.offset == b.offset and a.strides == b.strides and a.shape == b.shape


def empty(shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """A new array. In the simulator its floats are NaN until they are written."""
    kind = np.dtype(dtype)
    memory = MemoryPiece(prod(shape) * kind.itemsize)
    return DeviceArray(memory, memory.frame.view(kind).reshape(shape))


def zeros(shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """A new array of zeros."""
    made = empty(shape, dtype)
    made.fill(0)
    return made


def settled(array: DeviceArray) -> DeviceArray:
    """Wait until the array is written, so that any stream may use it. Returns the array."""
    refuse_in_graph("the host waits for the device")
    if not SIMULATED:
        synchronize(current_stream())
    array.memory.done()
    return array


def on_device(array: Any) -> DeviceArray:
    """An array of the device: `array` itself, a copy of a NumPy array, or a view of another library's array.

    Another library's array is copied if it is not contiguous. Raises TypeError for other objects.
    """
    if isinstance(array, DeviceArray):
        array.memory.read_in(current_stream())
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("an array with a mask")
    if isinstance(array, np.ndarray | np.generic):
        if array.dtype.kind not in DTYPES or not array.dtype.isnative:
            raise TypeError(f"no dtype of arrays of the CUDA device: {array.dtype}; use array.astype(...)")
        return _copied(np.asarray(array))
    found = DeviceArray(*borrowed(array))
    return found if found.flags.c_contiguous else found.copy()


def _addresses(array: DeviceArray) -> tuple[int, int]:
    """The lowest address of an element, and the first one above all of them."""
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)
    return array.pointer + low, array.pointer + high + array.itemsize


def _copied(array: Any) -> DeviceArray:
    made = empty(array.shape, array.dtype)
    copy_to(made, array)
    return made


def copy_to(target: DeviceArray, array: Any) -> None:
    """Copy a NumPy array to a contiguous array of the device that has the same shape and dtype."""
    refuse_in_graph("numbers of the host are copied to the device")
    if target.memory.host is not None:
        target.on_simulated_device()[...] = array
    elif array.size:
        into = target.view(np.uint8) if array.dtype == np.bool_ else target
        target.memory.write_in(current_stream())
        copy_in(into, _bytes_of_bools(np.ascontiguousarray(array)), current_stream())


def _bytes_of_bools(array: Any) -> Any:
    return array.view(np.uint8) if array.dtype == np.bool_ else array


TOGETHER = 32  # numbers that one launch writes


def numbers_on_device(numbers: Any, stream: Any) -> DeviceArray:
    """A new array of the device with the numbers of a NumPy array of int64, for use in a stream."""
    return on_device(numbers) if current_lender() is None else written(numbers.tolist(), stream)


def renew(made: DeviceArray, numbers: Any, stream: Any) -> None:
    """Put the numbers of a NumPy array of int64 into an array of the device, for use in a stream."""
    if current_lender() is None:
        copy_to(made, numbers)
    else:
        _write(made, numbers.tolist(), stream)


def written(numbers: Sequence[float], stream: Any, dtype: Any = "int64") -> DeviceArray:
    """A new array of numbers, written in a stream."""
    made = empty((len(numbers),), dtype)
    _write(made, numbers, stream)
    return made


def _write(made: DeviceArray, numbers: Sequence[float], stream: Any) -> None:
    number = int if np.dtype(made.dtype).kind == "i" else float
    for first in range(0, len(numbers), TOGETHER):
        some = [*map(number, numbers[first : first + TOGETHER])]
        padded = (*some, *[number(0)] * (TOGETHER - len(some)))
        launch(writing_kernel(), 1, 1, 0, stream, made, first, len(some), padded)


def writing(out: Any, first: int, count: int, numbers: Any) -> None:
    """A kernel: `out[first + i]` becomes number `i` of a tuple, for the first `count` numbers."""
    for place in range(count):
        out[first + place] = numbers[place]


@cache
def writing_kernel() -> Any:
    """`writing`, compiled for each dtype when it is first used."""
    return kernel(writing, cache=True)


AXES = 4
LANES = 256
MOST_BLOCKS = 4096
Axes = list[tuple[int, int, int]]  # size, and bytes from one element to the next in the target and the source


def move(target: Any, source: Any, adds: bool, stream: Any) -> None:
    """Copy the elements of `source` to `target`, or add them to it. Both have the same shape and dtype."""
    if source.dtype != target.dtype:
        raise TypeError(f"{source.dtype} elements for an array of {target.dtype}")
    if target.size == 0:
        return
    if target.memory.host is not None:
        into, elements = target.on_simulated_device(), source.on_simulated_device()
        with np.errstate(all="ignore"):  # as a device
            into[...] = into + elements if adds else elements
        return
    axes = joined([*zip(target.shape, target.strides, source.strides, strict=True)])
    _move(_flat(target), _flat(source), axes, target, source, adds, stream)


def joined(axes: Axes) -> Axes:
    """Fewer axes for the same elements: axes of size 1 are left out, axes without a gap between them are joined."""
    found: Axes = []
    for size, into, out in axes:
        if size == 1:
            continue
        if found and found[-1][1] == into * size and found[-1][2] == out * size:
            size *= found.pop()[0]
        found.append((size, into, out))
    return found


def _move(into: Any, out: Any, axes: Axes, target: Any, source: Any, adds: bool, stream: Any) -> None:
    if len(axes) > AXES:
        for i in range(axes[0][0]):
            _move(into, out, axes[1:], target[i], source[i], adds, stream)
        return
    itemsize = target.itemsize
    sizes = [1] * (AXES - len(axes)) + [size for size, _, _ in axes]
    strides = [[0] * (AXES - len(axes)) + [axis[side] // itemsize for axis in axes] for side in (1, 2)]
    starts = target.offset // itemsize, source.offset // itemsize
    count = int(np.prod(sizes))
    numbers = (count, *sizes[1:], *strides[0], *strides[1], *starts, int(adds))
    blocks = min(MOST_BLOCKS, -(-count // LANES))
    launch(moving_kernel(), blocks, LANES, 0, stream, into, out, *numbers)


def _flat(array: Any) -> Any:
    """An array's whole memory as an array of one axis; bytes beyond the last whole element are left out."""
    memory, kind = array.memory, np.dtype(np.uint8) if array.dtype == np.bool_ else array.dtype
    frame = memory.frame[: memory.nbytes // kind.itemsize * kind.itemsize]
    return array.viewed(frame.view(kind))


def add_up(source: Any, out: Any, stream: Any) -> None:
    """`out` becomes the sum of a contiguous array along its first axis."""
    if source.memory.host is not None:
        with np.errstate(all="ignore"):  # as a device
            out.on_simulated_device()[...] = source.on_simulated_device().sum(axis=0)
        return
    rows, count = len(source), out.size
    if count == 0:
        return
    if rows == 0:
        out.fill(0)
        return
    blocks = min(MOST_BLOCKS, -(-count // LANES))
    launch(adding_kernel(), blocks, LANES, 0, stream, out.reshape(-1), source.reshape(-1), rows, count)


def moving(
    into: Any, out: Any, count: int, n1: int, n2: int, n3: int,
    t0: int, t1: int, t2: int, t3: int, s0: int, s1: int, s2: int, s3: int, first: int, start: int, adds: int,
) -> None:  # fmt: skip
    """A kernel that copies or adds elements (i0, i1, i2, i3). The last three axes have the sizes n1, n2, n3."""
    for place in range(cuda.grid(1), count, cuda.gridsize(1)):
        i3, rest = place % n3, place // n3
        i2, rest = rest % n2, rest // n2
        i1, i0 = rest % n1, rest // n1
        t = first + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3
        s = start + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3
        if adds != 0:
            into[t] += out[s]
        else:
            into[t] = out[s]


def adding(out: Any, source: Any, rows: int, count: int) -> None:
    """A kernel: `out[i]` becomes the sum of `source[row * count + i]` over rows, in order."""
    for place in range(cuda.grid(1), count, cuda.gridsize(1)):
        total = source[place]
        for row in range(1, rows):
            total += source[row * count + place]
        out[place] = total


@cache
def moving_kernel() -> Any:
    """`moving`, compiled for each dtype when it is first used."""
    return kernel(moving, cache=True)


@cache
def adding_kernel() -> Any:
    """`adding`, compiled for each dtype when it is first used."""
    return kernel(adding, cache=True)
