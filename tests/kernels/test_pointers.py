"""Pointers: addresses, dtypes, the same in plain Python; row programs are vector loops that look at no addresses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from rnnops.kernels.cpu.exponential import sigmoid, tanh
from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.pointers import at, row_program
from rnnops.kernels.cpu.vector_width import target_processor, width_of
from rnnops.kernels.cpu.vectors import lanes

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")


def gates(i_in, f_in, g_in, o_in, c, b_i, b_f, b_g, h, c_new, i_out, f_out, g_out, o_out, n):  # type: ignore[no-untyped-def]
    """One row of an LSTM: eight pointers read, six written."""
    for j in range(n):
        i, f, o = sigmoid(i_in[j] + b_i[j]), sigmoid(f_in[j] + b_f[j]), sigmoid(o_in[j])
        g = tanh(g_in[j] + b_g[j])
        s = f * c[j] + i * g
        i_out[j], f_out[j], g_out[j], o_out[j] = i, f, g, o
        c_new[j] = s
        h[j] = o * tanh(s)


def over_rows(program: Callable[..., None]) -> Callable[..., None]:
    """A driver: `program` for every row of x [rows, 4, n], c [rows, n], b [3, n], out [rows, 6, n]."""

    def driver(x: Any, c: Any, b: Any, out: Any) -> None:
        rows, n = c.shape
        for row in range(rows):
            x_row, out_row = at(x, 4 * n * row), at(out, 6 * n * row)
            program(
                *(x_row, at(x_row, n), at(x_row, 2 * n), at(x_row, 3 * n)),
                *(at(c, n * row), at(b, 0), at(b, n), at(b, 2 * n)),
                *(out_row, at(out_row, n), at(out_row, 2 * n)),
                *(at(out_row, 3 * n), at(out_row, 4 * n), at(out_row, 5 * n), n),
            )

    return driver


def operands(rows: int, n: int, dtype: str = "float32") -> tuple[Any, ...]:
    random = np.random.default_rng(n)
    inputs = tuple(random.standard_normal(shape).astype(dtype) for shape in ((rows, 4, n), (rows, n), (3, n)))
    for array in inputs:
        array.flags.writeable = False
    return (*inputs, np.full((rows, 6, n), np.nan, dtype))


def code_of(compiled: Any) -> str:
    """LLVM's intermediate code as optimised."""
    (code,) = compiled.inspect_llvm().values()
    return str(code)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("forceinline", [False, True])
def test_row_program_over_rows(dtype: str, forceinline: bool) -> None:
    program = row_program(gates, cache=False, forceinline=forceinline)
    compiled, plain = numba.njit(**OPTIONS)(over_rows(program)), over_rows(gates)
    for n in (0, 1, 15, 16, 33, 200):
        came, wanted = operands(3, n, dtype), operands(3, n, dtype)
        compiled(*came)
        plain(*wanted)
        np.testing.assert_allclose(came[-1], wanted[-1], rtol=64 * np.finfo(dtype).eps)


def test_row_program_is_a_vector_loop_at_once() -> None:
    compiled = numba.njit(**OPTIONS)(over_rows(row_program(gates, forceinline=True)))
    compiled(*operands(2, 64))
    code = code_of(compiled)
    stored = [int(count) for count in re.findall(r"store <(\d+) x (?:float|i32)>", code)]
    widest = lanes(width_of(target_processor()), "float32")
    assert stored.count(max(stored)) >= 6
    assert max(stored) >= min(widest, 8)  # some processors prefer half their width
    assert "memcheck" not in code


def test_functions_without_the_promise_compare_addresses() -> None:
    compiled = numba.njit(**OPTIONS)(over_rows(numba.njit(**OPTIONS)(gates)))
    compiled(*operands(2, 64))
    assert "vector.memcheck" in code_of(compiled) or "store <" not in code_of(compiled)


def test_what_is_only_read_may_come_twice() -> None:
    def add(x, y, result, n):  # type: ignore[no-untyped-def]
        for j in range(n):
            result[j] = x[j] + y[j]

    program = row_program(add, cache=False)

    @numba.njit
    def driver(x, result):  # type: ignore[no-untyped-def]
        program(at(x, 0), at(x, 1), at(result, 0), result.size)

    x, result = np.arange(101.0), np.empty(100)
    driver(x, result)
    assert (result == x[1:] + x[:-1]).all()


def test_row_program_takes_no_arrays() -> None:
    program = row_program(gates, cache=False)
    with pytest.raises(numba.TypingError, match="takes pointers and numbers, no arrays"):
        program(*[np.zeros(3)] * 14, 3)


@numba.njit
def read(array, offset, index):  # type: ignore[no-untyped-def]
    return at(array, offset)[index]


@numba.njit
def write(array, offset, index, value):  # type: ignore[no-untyped-def]
    at(array, offset)[index] = value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int64, np.uint64, np.int32])
def test_every_element(dtype: str, index: Any) -> None:
    array = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype) if dtype != "bool" else np.arange(24).reshape(4, 6) > 10
    for offset, further in ((0, 0), (0, 23), (7, 3), (23, 0)):
        wanted = array.ravel()[offset + further]
        assert read(array, offset, index(further)) == wanted == at(array, offset)[further]
        assert read(array, index(offset), further) == wanted


@pytest.mark.parametrize("dtype", DTYPES)
def test_writes_touch_one_element(dtype: str) -> None:
    for put in (write, write.py_func):
        array = np.zeros((3, 5), dtype)
        put(array, 4, 3, 1)
        assert np.flatnonzero(array).tolist() == [7]
        assert array.ravel()[7] == 1


def test_bool_arrays_are_bytes() -> None:
    def compare(x: Any, mask: Any, kept: Any) -> None:
        x_at, mask_at, kept_at = at(x, 0), at(mask, 0), at(kept, 0)
        for j in range(x.size):
            mask_at[j] = x_at[j] > 0
            kept_at[j] = x_at[j] if mask_at[j] != 0 else 0

    x = np.linspace(-1, 1, 77, dtype=np.float32)
    for function in (compare, numba.njit(compare)):
        mask, kept = np.ones(77, np.bool_), np.empty_like(x)
        function(x, mask, kept)
        assert (mask.view(np.uint8) == (x > 0)).all()
        assert (kept == np.maximum(x, 0)).all()


def test_read_only_arrays_and_arrays_without_axes() -> None:
    array = np.arange(6.0)
    array.flags.writeable = False
    assert read(array, 2, 3) == at(array, 2)[3] == 5
    assert read(np.array(4.0), 0, 0) == at(np.array(4.0), 0)[0] == 4


def test_only_contiguous_arrays() -> None:
    for array in (np.zeros((4, 4)).T, np.zeros((4, 4))[:, :2], np.zeros(8)[::2]):
        with pytest.raises(numba.TypingError):
            read(array, 0, 0)
        with pytest.raises(ValueError, match="not C-contiguous"):
            at(array, 0)


MODULE = """
import numba
from rnnops.kernels.cpu.pointers import at, row_program

@row_program
def double(x, result, n):
    for j in range(n):
        result[j] = x[j] + x[j]

@numba.njit(cache=True)
def driver(x, result):
    double(at(x, 0), at(result, 0), x.size)
"""
PROGRAM = """
import numpy as np, row_module
x, result = np.arange(50.0), np.empty(50)
row_module.driver(x, result)
assert (result == 2 * x).all()
compiled = hasattr(row_module.driver, "stats")
print(sum(row_module.driver.stats.cache_hits.values()) if compiled else "not compiled")
"""


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_row_programs_are_kept_on_disk_and_run_uncompiled(tmp_path: Path, disabled: str) -> None:
    (tmp_path / "row_module.py").write_text(MODULE)
    settings = {"PYTHONPATH": str(tmp_path), "RNNOPS_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": disabled}
    command, environment = [sys.executable, "-c", PROGRAM], {**os.environ, **settings}
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    printed = [run.stdout.strip() for run in runs]
    assert printed == (["0", "1"] if disabled == "0" else ["not compiled"] * 2)
    assert len(list(tmp_path.rglob("row_module.double-*.nbi"))) == (disabled == "0")
