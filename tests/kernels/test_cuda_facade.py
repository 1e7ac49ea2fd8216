"""What the facade asks of numba-cuda and CuPy where there is no simulator, by a driver that writes it down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from fake_driver import FakeArray, FakeKernel, Fakes, fake_device
from without_simulator import run_compiler

from rnnops.compiler.targets.cuda import target
from rnnops.errors import DeviceError
from rnnops.kernels.cuda import device_array, facade, gemm, memory
from rnnops.kernels.cuda.device_array import empty, on_device
from rnnops.kernels.cuda.memory import MemoryPiece, in_stream
from rnnops.model import Adam, Cosine, Dense, Model, cuda_home, mean_squared_error
from rnnops.net.blob import Blob

pytestmark = [pytest.mark.cuda, in_simulator]


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


# launches


def test_small_grids_are_launched_without_a_warning_and_configured_once(fakes: Fakes) -> None:
    kernel = FakeKernel(fakes.log)
    for number in (1, 2):
        facade.launch(kernel, 1, 32, 0, 0, number)
    facade.launch(kernel, 1, 32, 64, facade.stream_of(7), 3)
    assert len(fakes.said("configure")) == 2
    wanted = [("launch", 1, 32, 0, 0, (1,)), ("launch", 1, 32, 0, 0, (2,)), ("launch", 1, 32, 7, 64, (3,))]
    assert fakes.said("launch") == wanted


def test_numpy_arrays_are_copied_to_the_device_and_back(fakes: Fakes) -> None:
    x, fixed = np.arange(3.0), np.arange(2.0)
    fixed.flags.writeable = False
    facade.launch(FakeKernel(fakes.log), 1, 1, 0, facade.stream_of(7), (x, fixed), 5)
    assert [entry[0] for entry in fakes.log if entry[0] != "configure"] == [
        "to device", "to device", "launch", "to host", "synchronize",
    ]  # fmt: skip
    ((given, five),) = (entry[-1] for entry in fakes.said("launch"))
    assert five == 5
    assert [type(one) for one in given] == [FakeArray, FakeArray]


def test_arrays_of_the_device_are_described_once_and_without_a_stream(fakes: Fakes) -> None:
    with in_stream(facade.stream_of(7)):
        x = empty((4,), "float32")
    for _ in range(2):
        facade.launch(FakeKernel(fakes.log), 1, 1, 0, 0, x)
    first, second = (entry[-1][0] for entry in fakes.said("launch"))
    assert first is second
    assert (first.pointer, first.shape, first.dtype) == (x.pointer, x.shape, x.dtype)


def test_a_kernel_is_allowed_more_shared_memory_when_it_needs_more(fakes: Fakes) -> None:
    kernel = FakeKernel(fakes.log, ("float32",))
    for count in (1024, facade.SHARED_BYTES, 100_000, 90_000, 120_000):
        facade.launch(kernel, 1, 1, count, 0)
    assert fakes.said("attribute") == [
        ("attribute", "shared bytes", count, "function", 0) for count in (100_000, 120_000)
    ]
    assert len(fakes.said("launch")) == 5


# memory and copies


@pytest.mark.parametrize(("cupy", "wanted"), [(True, ("alloc", 1, 7)), (False, ("memalloc", 1))])
def test_memory_comes_from_the_pool_of_its_stream_where_there_is_one(cupy: bool, wanted: tuple[Any, ...]) -> None:
    with fake_device(cupy) as fakes:
        owner, pointer = memory.allocate(0, facade.stream_of(7))
    assert pointer == owner.memory.ctypes.data
    assert fakes.log == [wanted]


def test_too_little_memory_is_an_error_that_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_device(cupy=False) as fakes:
        fakes.cuda.free = 10
        with pytest.raises(DeviceError, match=r"out of memory; wanted 11 bytes; got 7 of 9 bytes"):
            memory.allocate(11, 0)
        monkeypatch.setattr(fakes.cuda, "_memalloc", lambda nbytes: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            memory.allocate(1, 0)


def test_copies_go_into_the_stream_that_is_current(fakes: Fakes) -> None:
    with in_stream(facade.stream_of(7)):
        x = on_device(np.arange(6.0).reshape(2, 3))
        np.testing.assert_array_equal(x.to_host(), np.arange(6.0).reshape(2, 3))
        x.fill(0)
        assert not x.to_host().any()
    wanted = [("to device", 7), ("to host", 7), ("synchronize", 7), ("memset", 48, 7), ("to host", 7)]
    assert fakes.said("to device", "to host", "synchronize", "memset") == [*wanted, ("synchronize", 7)]


# graphs


def test_what_is_recorded_goes_into_a_stream_of_its_own(fakes: Fakes) -> None:
    kernel = FakeKernel(fakes.log)
    replay = facade.record(lambda stream: facade.launch(kernel, 2, 3, 0, stream, 1))
    assert replay is not None
    replay(facade.stream_of(7))
    replay(0)
    assert [entry[0] for entry in fakes.log if entry[0] != "configure"] == [
        "begin capture", "launch", "end capture", "graph", "graph",
    ]  # fmt: skip
    assert fakes.said("launch")[0][3] == 99
    assert fakes.said("graph") == [("graph", 7), ("graph", 0)]


def test_work_that_cannot_be_recorded_leaves_no_recording_open(fakes: Fakes) -> None:
    with pytest.raises(ZeroDivisionError):
        facade.record(lambda stream: 1 // 0)
    assert fakes.log == [("begin capture", 99), ("end capture", 99)]
    assert fakes.cupy.current == [0]


def test_without_cupy_nothing_is_recorded() -> None:
    with fake_device(cupy=False):
        assert facade.record(lambda stream: None) is None


# streams


def test_a_stream_waits_for_another_and_for_itself_never(fakes: Fakes) -> None:
    facade.wait_for(facade.stream_of(7), facade.stream_of(8))
    facade.wait_for(0, facade.stream_of(8))
    facade.wait_for(facade.stream_of(7), facade.stream_of(7))
    facade.wait_for(facade.stream_of(1), 0)  # one stream by two names
    assert fakes.log == [("record", 7), ("wait", 8), ("record", 0), ("wait", 8)]


def test_a_stream_of_another_library_lives_as_long_as_ours(fakes: Fakes) -> None:
    given = SimpleNamespace(cuda_stream=8)
    assert facade.stream_of(given).owner is given


def test_readers_wait_for_the_writer_once_and_writers_for_all(fakes: Fakes) -> None:
    known = {address: facade.stream_of(address) for address in (7, 8, 9)}
    with in_stream(known[7]):
        piece = MemoryPiece(8)
    fakes.log.clear()
    for address in (7, 8, 8, 9):
        piece.read_in(known[address])
    assert fakes.log == [("record", 7), ("wait", 8), ("record", 7), ("wait", 9)]
    fakes.log.clear()
    piece.write_in(known[9])
    assert ("record", 8) in fakes.log
    assert ("record", 9) not in fakes.log
    fakes.log.clear()
    piece.read_in(known[8])
    assert fakes.log == [("record", 9), ("wait", 8)]


def test_reading_on_the_host_waits_for_the_stream_that_has_written(fakes: Fakes) -> None:
    with in_stream(facade.stream_of(7)):
        x = on_device(np.arange(3.0))
    fakes.log.clear()
    x.to_host()
    assert fakes.log == [("record", 7), ("wait", 0), ("to host", 0), ("synchronize", 0)]


# a step of a model


class Line(Model):
    """`[N, 2] -> [N, 1]`."""

    def __init__(self) -> None:
        self.dense = Dense(1)

    def forward(self, x: Blob) -> Blob:
        return self.dense(x)

    def train_one_batch(self, x: Blob, y: Blob) -> Blob:
        return self.minimize(mean_squared_error(self.forward(x), y))


def test_a_step_of_training_copies_a_batch_in_and_a_loss_out(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are noted and not run, so that numbers mean nothing; when all work is in the stream, the host waits."""
    for module in (cuda_home, target):
        monkeypatch.setattr(module, "card", lambda net: facade.Card("", (9, 0), 0, 1))
    for module in (gemm, device_array, target):  # that have kernels
        monkeypatch.setattr(module, "launch", lambda kernel, *given: fakes.log.append(("launch", *given)))
    model, x, y = Line(), np.ones((3, 2), "float32"), np.ones((3, 1), "float32")
    model.set_optimizer(Adam(Cosine(0.1, steps=9), max_value=1.0))
    model.compile([x, y], device="cuda")
    for _ in range(2):
        model(x, y)
    fakes.log.clear()
    model(x, y)
    assert fakes.said("to device", "to host", "synchronize") == [
        ("to device", 0), ("to device", 0), ("to host", 0), ("synchronize", 0),
    ]  # fmt: skip
    tuples = [one for entry in fakes.said("launch") for one in entry if isinstance(one, tuple)]
    assert tuples[0][0] == Cosine(0.1, steps=9)(2)
    assert [entry[0] for entry in fakes.log][-2:] == ["to host", "synchronize"]


# the real packages, where they are

CONFIGURE = """
import warnings
warnings.simplefilter("error")
def one(x):
    x[0] = 1
one = facade.kernel(one)
try:
    one[1, 32, 0, 0]
    print("no warning")
except Warning as warning:
    print(type(warning).__name__)
print(type(facade._configured(one, 1, 32, 0, 0)).__name__)
"""
NAMES = """
from numba import cuda
from numba.cuda.cudadrv import driver
import inspect
print(hasattr(driver.binding.CUfunction_attribute, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"))
print(*(hasattr(driver, name) for name in ("device_memset", "driver", "host_to_device")))
names = ("event", "external_stream", "to_device", "from_cuda_array_interface")
print(*(callable(getattr(cuda, name)) for name in names))
print(*inspect.signature(cuda.from_cuda_array_interface).parameters)
cupy = facade.optional("cupy")
names = ("begin_capture", "end_capture")
print("no CuPy" if cupy is None else " ".join(str(callable(getattr(cupy.cuda.Stream, name))) for name in names))
"""


def test_numba_cuda_warns_of_small_grids_and_the_facade_does_not() -> None:
    assert run_compiler(CONFIGURE) == ["NumbaPerformanceWarning", "_LaunchConfiguration"]


def test_numba_cuda_and_cupy_have_what_the_facade_asks_for() -> None:
    attribute, of_driver, of_cuda, parameters, of_cupy = run_compiler(NAMES)
    assert attribute == "True"
    assert of_driver == "True True True"
    assert of_cuda == "True True True True"
    assert parameters == "desc owner sync"
    assert of_cupy in ("True True", "no CuPy")


def test_a_package_that_is_there_but_does_not_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rnnops_broken_package.py").write_text("import rnnops_what_it_needs")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert facade.optional("rnnops_no_such_package") is None
    assert facade.optional("rnnops_no_such_package.part") is None
    with pytest.warns(UserWarning, match=r"rnnops_broken_package is installed, but does not import: .*what_it_needs"):
        assert facade.optional("rnnops_broken_package") is None
    assert facade.optional("rnnops_broken_package") is None  # told once
    facade.optional.cache_clear()
