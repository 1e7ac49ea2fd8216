"""Products by cuBLAS: found in a fresh process, the same answer for good, right for all operands, in any stream."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from fake_driver import Blas, Fakes, fake_device
from gemm_cases import assert_product, operands
from lending import Purse
from without_simulator import run_compiler

import rnnops as ro
from rnnops.compiler.targets.cuda.target import Replays, ScanRun
from rnnops.errors import DeviceError
from rnnops.kernels.cuda import facade, gemm
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.gemm import Matrix, Product, multiply
from rnnops.kernels.cuda.memory import lent_by

pytestmark = [pytest.mark.cuda, in_simulator]
FRESH = """
from rnnops.kernels.cuda import gemm
gemm.current_device = lambda: 0
assert not {"torch", "cupy"} & set(sys.modules)
print(facade.optional(gemm.FINDER) is not None)
print(gemm.product_library())
"""


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    """A device with a cuBLAS that computes."""
    with fake_device() as made:
        install(made, monkeypatch)
        yield made


def install(made: Fakes, monkeypatch: pytest.MonkeyPatch, **words: Any) -> None:
    finder = SimpleNamespace(load_nvidia_dynamic_lib=lambda name: SimpleNamespace(abs_path=f"lib{name}"))
    packages = {"cupy": made.cupy, gemm.FINDER: finder}
    monkeypatch.setattr(gemm, "optional", packages.get)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Blas(made.log, **words))


def product(
    A: Any, B: Any, C: Any, accumulate: bool = False, turned: tuple[bool, bool] = (False, False), rounding: str = ""
) -> Any:
    """A @ B by `multiply`, operands as they are or as transposes of what lies in memory."""
    a, b = (
        Matrix(on_device(given.T.reshape(-1)), 0, 1, given.shape[0])
        if turn
        else Matrix(on_device(given.reshape(-1)), 0, given.shape[1])
        for given, turn in zip((A, B), turned, strict=True)
    )
    target = on_device(C.reshape(-1))
    multiply(Product(a, b, Matrix(target, 0, C.shape[1]), *C.shape, A.shape[1], accumulate, rounding=rounding))
    return target.to_host().reshape(C.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
def test_products_of_any_operands(turned: tuple[bool, bool], dtype: str, fakes: Fakes) -> None:
    for M, K, N in ((5, 7, 6), (1, 1, 1), (1, 3, 4), (4, 3, 1), (3, 1, 2)):
        A, B, C, _ = operands(M, K, N, dtype)
        assert_product(product(A, B, np.full_like(C, np.nan), turned=turned), A, B, np.zeros_like(C))
        assert_product(product(A, B, C, True, turned), A, B, C)
    assert len(fakes.said("gemm")) == 10
    assert len(fakes.said("create")) == 1


def test_rounded_operands_say_how_to_compute(fakes: Fakes) -> None:
    """Kinds of `cublasComputeType_t`: CUBLAS_COMPUTE_32F_FAST_TF32, ..._16BF, ..._16F."""
    A, B, C, _ = operands(5, 7, 6, "float32")
    for rounding in ("tfloat32", "bfloat16", "float16", ""):
        assert_product(product(A, B, np.full_like(C, np.nan), rounding=rounding), A, B, np.zeros_like(C))
    assert fakes.said("computation") == [("computation", kind) for kind in (77, 75, 74)]
    assert len(fakes.said("gemm")) == 4


def test_windows(fakes: Fakes) -> None:
    A, B, C, _ = operands(5, 7, 6, "float32")
    wide = np.concatenate([np.full((5, 2), np.nan, "float32"), A], axis=1)
    target = on_device(np.full(90, 3, "float32"))
    right = Matrix(on_device(B.reshape(-1)), 0, 6)
    multiply(Product(Matrix(on_device(wide.reshape(-1)), 2, 9), right, Matrix(target, 23, 10), 5, 6, 7))
    came = target.to_host().reshape(9, 10)
    assert_product(came[2:7, 3:9].copy(), A, B, np.zeros_like(C))
    came[2:7, 3:9] = 3
    assert (came == 3).all()


def matrix(row: int, column: int) -> Matrix:
    return Matrix(on_device(np.zeros(1)), 0, row, column)


@pytest.mark.parametrize(
    ("strides", "rows", "columns", "wanted"),
    [
        ((4, 1), 3, 4, True),
        ((1, 3), 3, 4, True),
        ((3, 1), 3, 4, False),  # windows over each other
        ((0, 1), 3, 4, False),  # one row again and again
        ((0, 1), 1, 4, True),
        ((1, 0), 3, 4, False),
        ((8, 2), 3, 4, False),
        ((2**31, 1), 3, 4, False),
        ((4, 1), 2**31, 4, False),
    ],
)
def test_what_suits_it(strides: tuple[int, int], rows: int, columns: int, wanted: bool) -> None:
    assert gemm.fits(matrix(*strides), rows, columns) == wanted


def test_products_without_terms_are_not_its_business(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []
    monkeypatch.setattr(gemm, "_launch", lambda products, stream: launched.append(len(products)))
    A, B, C, _ = operands(3, 0, 4, "float32")
    product(A, B, C)
    assert launched == [1]
    assert fakes.said("gemm") == []


def test_products_go_into_the_stream_that_is_given(fakes: Fakes) -> None:
    x = Matrix(on_device(np.ones(4)), 0, 2)
    for address in (7, 0, 8):
        multiply(Product(x, x, Matrix(on_device(np.ones(4)), 0, 2), 2, 2, 2), stream=facade.stream_of(address))
    assert fakes.said("set stream") == [("set stream", 5, address) for address in (7, 0, 8)]


def test_a_graph_that_is_captured_lends_room_for_products(fakes: Fakes) -> None:
    """cuBLAS would add memory of its own to the graph; what it was told before holds for no later product."""
    x, purse = Matrix(on_device(np.ones(4)), 0, 2), Purse(captures=True)
    target = Matrix(on_device(np.ones(4)), 0, 2)
    with lent_by(purse):
        multiply(Product(x, x, target, 2, 2, 2), stream=facade.stream_of(7))
    with lent_by(Purse()):
        multiply(Product(x, x, target, 2, 2, 2), stream=facade.stream_of(7))
    (lent,) = purse.lent
    assert lent.nbytes == gemm.WORKSPACE
    stream = ("set stream", 5, 7)
    wanted = [stream, ("set workspace", 5, lent.ctypes.data, gemm.WORKSPACE), ("gemm", 2, 2, 2), stream]
    assert fakes.said("set stream", "set workspace", "gemm") == [*wanted, ("gemm", 2, 2, 2)]


def test_runs_with_products_are_recorded(fakes: Fakes) -> None:
    """CuPy's binding would have refused its streams while it records."""
    x, sizes = on_device(np.ones(4)), np.zeros(1)
    bias, target = (on_device(np.ones(2)), 0), on_device(np.ones(4))
    one = Product(Matrix(x, 0, 2), Matrix(x, 0, 2), Matrix(target, 0, 2), 2, 2, 2, bias=bias)

    def driver(on: Any, numbers: Any) -> None:
        for _ in range(40):
            on.multiply(one)

    replays = Replays()
    for _ in range(4):
        replays.start(ScanRun(driver, (), (), (), x, 1, x), sizes, 0)
    assert (replays.recorded, replays.refused) == (1, "")
    assert [entry[0] for entry in fakes.said("begin capture", "end capture", "graph")] == [
        "begin capture", "end capture", "graph", "graph", "graph",
    ]  # fmt: skip
    assert len(fakes.said("gemm")) == 80  # as usual, and while it is recorded
    assert fakes.said("record", "wait") == []  # a stream that is recorded cannot wait for another
    assert target.memory.writer == 0  # and is gone


def test_what_is_not_recorded_says_why(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    x, replays = on_device(np.ones(4)), Replays()

    def driver(on: Any, numbers: Any) -> None:
        on.count += 40
        if on.stream:
            raise NotImplementedError("not while recording")

    for _ in range(3):
        replays.start(ScanRun(driver, (), (), (), x, 1, x), np.zeros(1), 0)
    assert replays.refused == "NotImplementedError: not while recording"


def test_the_answer_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device() as made:
        assert gemm.cublas() is None
        assert gemm.product_library() == (
            "kernels of rnnops (no cuBLAS: DeviceError: the package cuda.pathfinder is not installed. "
            "It comes with numba-cuda.)"
        )
        install(made, monkeypatch)
        assert gemm.cublas() is None
    with fake_device() as made:
        install(made, monkeypatch)
        library = gemm.cublas()
        assert library is gemm.cublas()
        assert gemm.product_library() == "cuBLAS 12.9"


def test_a_library_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device() as made:
        install(made, monkeypatch, starts=False)
        assert gemm.cublas() is None
        assert "cublasCreate of cuBLAS 12.9 failed; got status 1" in gemm.product_library()


def test_a_product_that_fails_is_an_error(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    library = gemm.cublas()
    assert library is not None
    monkeypatch.setattr(library, "_library", SimpleNamespace(cublasSetStream_v2=lambda handle, stream: 13))
    x = Matrix(on_device(np.ones(4)), 0, 2)
    with pytest.raises(DeviceError, match="cublasSetStream failed; got status 13"):
        library.multiply(x, x, x, 2, 2, 2, 0, 0)


def test_devices_say_what_computes_products() -> None:
    (cuda,) = (one for one in ro.devices() if one.name == "cuda")
    assert str(cuda).endswith("products of tiles by kernels of rnnops (the simulator has no cuBLAS)")


def test_it_is_found_in_a_fresh_process() -> None:
    """Nobody else has loaded it; without a device it is loaded and does not start."""
    installed, products = run_compiler(FRESH)
    if installed == "False":
        pytest.skip("cuda.pathfinder is not installed")
    if "not found" in products.lower() or "DynamicLibNotFoundError" in products:
        pytest.skip(f"no cuBLAS is installed: {products}")
    assert "cublasCreate of cuBLAS" in products or products.startswith("cuBLAS")
