"""Teams inside another library's OpenMP pool: a parallel region of ours, by the entry points of GNU's runtime.

Threads of an OpenMP pool stay awake for milliseconds after a region, and hold the cores that workers of our own would
want. Here they are the workers: `GOMP_parallel` runs one function on all of them, which asks for its rank and calls an
entry (`barrier.packed`) as a worker of ours would. LLVM's and Intel's runtimes have these entry points on Linux too.

Limits: the runtime may give fewer threads than asked for, in a region inside another one for example; then no rank does
anything. Whoever forks must not use the pool in the child, where the threads are not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.callconv import excinfo_ptr_t

from rnnops.kernels.cpu.barrier import emit_call, emit_raise, packed
from rnnops.kernels.cpu.fastmath import extending, inlined, types
from rnnops.kernels.cpu.vectors import I64

I32, BYTES = ir.IntType(32), ir.IntType(8).as_pointer()
REGION = ir.FunctionType(ir.VoidType(), [BYTES])
PARALLEL = ir.FunctionType(ir.VoidType(), [REGION.as_pointer(), BYTES, I32, I32])
COUNT = ir.FunctionType(I32, [])  # of `omp_get_thread_num` and `omp_get_num_threads`
ANY_BINDING = I32(0)
JOB = ir.LiteralStructType([I64] * 6)  # entry, block, threads, address of statuses, of the two functions
ENTRY_PLACE, BLOCK, THREADS, STATUSES, RANK_OF, COUNT_OF = range(6)
STATUS = ir.LiteralStructType([I32, I32, excinfo_ptr_t])  # of each rank: whether it ran, how it ended, what it raises
RAN, ENDED, RAISED = range(3)


@inlined
def lead_region(function: int, runtime: Any, threads: int, arguments: Any) -> bool:
    """Run a function on a team of an OpenMP pool, the caller being rank 0; whether as many threads came as wanted.

    Args:
        function: as `barrier.lead` takes it.
        runtime: addresses of `GOMP_parallel`, `omp_get_thread_num` and `omp_get_num_threads`.

    Raises, when all ranks have ended, what the lowest of those raises that raise.
    """
    entry, block = packed(function, arguments)
    return in_region(entry, block, threads, runtime[0], runtime[1], runtime[2])


@extending.intrinsic
def in_region(_typing: Any, entry: Any, block: Any, threads: Any, parallel: Any, rank_of: Any, count_of: Any) -> Any:
    """Call an entry on all ranks of a region; whether it has run."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        entry, block, threads, parallel, rank_of, count_of = values
        statuses = builder.alloca(STATUS, threads)
        with cgutils.for_range(builder, threads) as loop:
            builder.store(STATUS(None), builder.gep(statuses, [loop.index]))
        job = cgutils.alloca_once(builder, JOB)
        numbers = (entry, block, threads, builder.ptrtoint(statuses, I64), rank_of, count_of)
        for place, number in enumerate(numbers):
            builder.store(number, cgutils.gep_inbounds(builder, job, 0, place))
        region = _define_region(context, builder.module)
        start = builder.inttoptr(parallel, PARALLEL.as_pointer())
        builder.call(start, [region, builder.bitcast(job, BYTES), builder.trunc(threads, I32), ANY_BINDING])
        with cgutils.for_range(builder, threads) as loop:
            code, info = (builder.load(_part(builder, statuses, loop.index, part)) for part in (ENDED, RAISED))
            emit_raise(context, builder, context.call_conv._get_return_status(builder, code, info))
        return builder.trunc(builder.load(_part(builder, statuses, I64(0), RAN)), ir.IntType(1))

    return types.boolean(entry, block, threads, parallel, rank_of, count_of), lower


def _part(builder: Any, statuses: Any, rank: Any, part: int) -> Any:
    return builder.gep(statuses, [rank, I32(part)], inbounds=True)


def _define_region(context: Any, module: Any) -> Any:
    """What each thread of a team runs: nothing where they are not as many as wanted."""
    region = ir.Function(module, REGION, module.get_unique_name("region"))
    region.linkage = "internal"
    builder = ir.IRBuilder(region.append_basic_block())
    job = builder.bitcast(region.args[0], JOB.as_pointer())
    parts = [builder.load(cgutils.gep_inbounds(builder, job, 0, place)) for place in range(len(JOB.elements))]
    count, rank = (_call_of(builder, parts[place]) for place in (COUNT_OF, RANK_OF))
    with builder.if_then(builder.icmp_signed("==", count, parts[THREADS])):
        status = emit_call(context, builder, parts[ENTRY_PLACE], parts[BLOCK], rank, parts[THREADS])
        statuses = builder.inttoptr(parts[STATUSES], STATUS.as_pointer())
        for part, value in ((RAN, I32(1)), (ENDED, status.code), (RAISED, status.excinfoptr)):
            builder.store(value, _part(builder, statuses, rank, part))
    builder.ret_void()
    return region


def _call_of(builder: Any, address: Any) -> Any:
    return builder.sext(builder.call(builder.inttoptr(address, COUNT.as_pointer()), []), I64)
