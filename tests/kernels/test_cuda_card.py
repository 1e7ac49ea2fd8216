"""What the facade says of a device and compiles for it, by a driver that writes down what it is asked for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numba.cuda
import pytest
from cuda_marks import in_simulator
from fake_driver import Fakes, fake_device
from numba import types

from rnnops.errors import DeviceError
from rnnops.kernels.cuda import facade, memory, simulated

pytestmark = [pytest.mark.cuda, in_simulator]


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


def test_what_the_driver_says_of_its_device(fakes: Fakes) -> None:
    assert facade.missing() == ""
    assert str(facade.card()) == "a card (compute capability 9.0, 0 GiB)"
    assert facade.card() == facade.Card("a card", (9, 0), 9, 132, 232448)
    fakes.cuda.name = "another"  # type: ignore[assignment]
    assert facade.card().name == "another"
    assert facade.current_device() == 0
    assert facade.choose("device", "simulator") == "device"


def test_what_is_missing_on_a_device_is_said(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.cuda.capability = 6, 1
    assert facade.missing() == "a device of compute capability 6.1, less than 7.0"
    fakes.cuda.broken = "no license"
    assert facade.missing() == "the CUDA driver cannot be used: no license"
    fakes.cuda.name = b""
    with pytest.raises(
        DeviceError, match=r"net 'n': no CUDA device; .*got no CUDA driver, or no device .*extra 'cuda'"
    ):
        facade.card("n")
    monkeypatch.setattr(facade, "overload", None)
    assert facade.missing() == "no numba-cuda of version 0.30 or newer"
    assert facade.compiled_as(len)(max) is max  # and nothing is compiled instead
    assert fakes.said("overload") == []


def test_kernels_are_compiled_for_a_device_that_is_not_there(fakes: Fakes) -> None:
    def one(x: Any) -> None: ...

    made = facade.scan_kernel("float32")(one)
    made.py_func = one
    assert facade.ptx_of_scan(made, (8, 0)) == "PTX of one"
    fakes.cuda.name = b""
    assert facade.ptx(one, (), (10, 0)) == "PTX of one"
    assert fakes.said("compile for") == [("compile for", (8, 0), (9, 0)), ("compile for", (10, 0), (10, 0))]
    assert facade.compiled_for() == (9, 0)  # as before


def test_another_function_is_compiled_in_place_of_one_in_python(fakes: Fakes) -> None:
    assert facade.compiled_as(len)(max) is max
    assert fakes.said("overload") == [("overload", "max", {"strict": False})]


def without_simulator(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module as it is imported where there is no simulator, with numba-cuda's modules faked."""
    extending = SimpleNamespace(intrinsic=lambda function: function, overload="overload")
    monkeypatch.setattr(
        numba.cuda,
        "dispatcher",
        SimpleNamespace(CUDACacheImpl=SimpleNamespace(_locator_classes=["another"])),
        raising=False,
    )
    monkeypatch.setattr(numba.cuda, "extending", extending, raising=False)
    for below in (simulated, facade):
        monkeypatch.setattr(below, "SIMULATED", False)
    found = importlib.util.spec_from_file_location("without_simulator_" + module.__name__, str(module.__file__))
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, made)  # for its dataclass
    found.loader.exec_module(made)
    return made


def test_what_is_imported_without_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    made = without_simulator(facade, monkeypatch)
    assert made.overload == "overload"
    assert numba.cuda.dispatcher.CUDACacheImpl._locator_classes == [made.KernelsInCacheFolder, "another"]
    assert hasattr(without_simulator(memory, monkeypatch), "driver")


class Building:
    """numba's context and builder of LLVM IR: addresses are texts."""

    def make_array(self, kind: Any) -> Any:
        return lambda context, builder, value: SimpleNamespace(data=f"data of {value}")

    def gep(self, pointer: str, places: list[str]) -> str:
        return f"{pointer} at {', '.join(places)}"


def test_a_pointer_to_an_element_counts_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, building = without_simulator(facade, monkeypatch), Building()
    array = facade.array_type("float32")
    for kind, wanted in ((array, "data of x at i"), (types.CPointer(types.float32), "x at i")):
        signature, address = made.at(None, array, types.intp)
        assert signature.return_type == types.CPointer(types.float32)
        assert address(building, building, SimpleNamespace(args=[kind]), ["x", "i"]) == wanted


def test_versions_that_do_not_go_together_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba-cuda reads names of NumPy when it first compiles; a newer NumPy may have lost them."""

    def lost(name: str) -> Any:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(facade, "version", lambda package: "0.30.4")
    monkeypatch.setattr(facade, "import_module", lost)
    said = facade._unfit_versions.__wrapped__()  # what is kept of the real versions stays
    assert said.startswith("numba-cuda 0.30.4 and NumPy")
    assert "row_stack" in said
    assert "numpy<2.5" in said
