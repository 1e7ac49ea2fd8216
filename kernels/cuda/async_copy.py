"""Copies from memory into shared memory that go on while a lane does something else, 16 bytes each, and early reads.

A copy reads and writes at some time between its start and `copies_done` of the same lane; other lanes see it after a
barrier of the block behind that. It goes past the L1 cache, so that what other blocks wrote is not read from there.
Before compute capability 8.0 it is a load and a store. The simulator's twin copies at the last moment, in
`copies_done`: what is read too early is not there, and what changes too early arrives changed. Limit: arrays of the
simulator count as if they began at a multiple of 16 bytes.
"""

from __future__ import annotations

import threading
from typing import Any

from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, compiled_for, intrinsic, types

COPIED = 16  # bytes of a copy; where they lie on both sides is a multiple of them
GO_ON = 8, 0  # compute capability from which on copies do
COPY = "cp.async.cg.shared.global [$0], [$1], 16;"
DONE = "cp.async.wait_all;"
FETCH = "prefetch.global.L2 [$0];"

if SIMULATED:
    _started = threading.local()

    def starts_a_copy(array: Any, first: int) -> bool:
        """Whether an element of an array of one axis lies where copies may begin."""
        return bool(first * array.dtype.itemsize % COPIED == 0)

    def copy_soon(target: Any, place: int, source: Any, first: int) -> None:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""
        if not hasattr(_started, "copies"):
            _started.copies = []
        _started.copies.append((target, place, source, first))

    def copies_done() -> None:
        """All copies that this lane has begun have arrived."""
        for target, place, source, first in _started.__dict__.pop("copies", ()):
            count = COPIED // source.dtype.itemsize
            target[place : place + count] = source[first : first + count]

    def fetch_early(array: Any, place: int) -> None:
        """Have an element, and what lies beside it, nearer when it is read."""

else:
    SHORT, LONG = ir.IntType(32), ir.IntType(64)

    @intrinsic
    def starts_a_copy(_context: Any, array: Any, first: Any) -> Any:
        """Whether an element of an array of one axis lies where copies may begin."""

        def test(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address = builder.ptrtoint(_pointer(context, builder, array, values[0], values[1]), LONG)
            rest = builder.and_(address, ir.Constant(LONG, COPIED - 1))
            return builder.icmp_unsigned("==", rest, ir.Constant(LONG, 0))

        return types.boolean(array, types.intp), test

    @intrinsic
    def copy_soon(_context: Any, target: Any, place: Any, source: Any, first: Any) -> Any:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""

        def copy(context: Any, builder: Any, signature: Any, values: Any) -> None:
            to = _pointer(context, builder, target, values[0], values[1])
            if compiled_for() < GO_ON:
                _copy_now(builder, to, _pointer(context, builder, source, values[2], values[3]))
                return
            shared = builder.addrspacecast(to, ir.PointerType(to.type.pointee, 3))
            given = builder.ptrtoint(_pointer(context, builder, source, values[2], values[3]), LONG)
            _do(builder, COPY, "r,l,~{memory}", builder.ptrtoint(shared, SHORT), given)

        return types.void(target, types.intp, source, types.intp), copy

    @intrinsic
    def copies_done(_context: Any) -> Any:
        """All copies that this lane has begun have arrived."""

        def done(context: Any, builder: Any, signature: Any, values: Any) -> None:
            if compiled_for() >= GO_ON:
                _do(builder, DONE, "~{memory}")

        return types.void(), done

    @intrinsic
    def fetch_early(_context: Any, array: Any, place: Any) -> Any:
        """Have an element, and what lies beside it, nearer when it is read."""

        def fetch(context: Any, builder: Any, signature: Any, values: Any) -> None:
            pointer = _pointer(context, builder, array, values[0], values[1])
            _do(builder, FETCH, "l", builder.ptrtoint(pointer, LONG))

        return types.void(array, types.intp), fetch


def _pointer(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> Any:
    """A pointer to an element of an array, or of what a pointer points to."""
    start = context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
    return builder.gep(start, [place])


def _copy_now(builder: Any, target: Any, source: Any) -> None:
    vector = ir.VectorType(ir.IntType(32), 4).as_pointer()
    numbers = builder.load(builder.bitcast(source, vector))
    store = builder.store(numbers, builder.bitcast(target, vector))
    numbers.align = store.align = COPIED


def _do(builder: Any, assembly: str, constraints: str, *operands: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    builder.call(ir.InlineAsm(kind, assembly, constraints, side_effect=True), operands)
