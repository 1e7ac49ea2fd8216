"""Arrays that libraries give each other: whose stream waits for whose, and what is read-only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from elsewhere import At, Elsewhere
from fake_driver import Fakes, fake_device

from rnnops.kernels.cuda import facade, memory
from rnnops.kernels.cuda.device_array import empty, on_device, settled
from rnnops.kernels.cuda.memory import (
    CPU,
    CUDA,
    IS_COPIED,
    READ_ONLY,
    VERSIONED,
    ManagedVersioned,
    Taken,
    capsule_of,
    in_stream,
)

pytestmark = [pytest.mark.cuda, in_simulator]
LENT = "the read only flag is not supported"  # what PyTorch says of an array that is read-only


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


class Speaking:
    """An array of a library that has DLPack and no `__cuda_array_interface__`.

    Args:
        versions: whether the library knows versions.
        read_only: whether it says that its array is.
    """

    def __init__(self, array: Any, versions: bool = True, read_only: bool = False, device: int = CUDA) -> None:
        self.array, self.versions, self.read_only, self.device = array, versions, read_only, device
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        if not self.versions and "max_version" in options:
            raise TypeError("an unexpected keyword argument")
        return capsule_of(At(self.array), (self.device, 0), READ_ONLY if self.read_only else 0, self.versions)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


@pytest.mark.parametrize(("stream", "said"), [(0, 1), (1, 1), (2, 2), (700, 700)])
def test_others_are_told_the_stream_in_which_an_array_was_written(stream: int, said: int, fakes: Fakes) -> None:
    with in_stream(facade.stream_of(stream)):
        x = on_device(np.arange(3.0))
    interface = x.__cuda_array_interface__
    assert (interface["version"], interface["stream"]) == (3, said)
    x.fill(2)
    assert x[1:].__cuda_array_interface__["stream"] == 1  # where it was written last
    assert settled(x).__cuda_array_interface__["stream"] is None


@pytest.mark.parametrize(
    ("said", "ours", "wanted"),
    [
        (None, 7, []),
        (7, 7, []),
        (1, 0, []),
        (1, 7, [("record", 0), ("wait", 7)]),
        (2, 7, [("record", 2), ("wait", 7)]),
        (700, 7, [("record", 700), ("wait", 7)]),
        (700, 0, [("record", 700), ("wait", 0)]),
    ],
)
def test_the_stream_of_another_library_is_waited_for(said: Any, ours: int, wanted: Any, fakes: Fakes) -> None:
    with in_stream(facade.stream_of(ours)):
        on_device(Elsewhere(np.arange(3.0), stream=said))
        on_device(Elsewhere(np.arange(3.0), version=2))  # which knows no streams
    assert fakes.said("record", "wait", "synchronize") == wanted


@pytest.mark.parametrize("said", [0, -1, True, "fast"])
def test_streams_that_are_none(said: Any, fakes: Fakes) -> None:
    with pytest.raises(TypeError, match=r"__cuda_array_interface__ with the stream .*wanted None, 1, 2 or an address"):
        on_device(Elsewhere(np.arange(3.0), stream=said))


@pytest.mark.parametrize(("ours", "asked"), [(7, 7), (0, 1)])
def test_our_stream_is_what_dlpack_of_others_is_asked_for(ours: int, asked: int, fakes: Fakes) -> None:
    """0 would be ambiguous: the legacy default stream is 1."""
    theirs, old = Speaking(np.arange(3.0)), Speaking(np.arange(4.0), versions=False)
    with in_stream(facade.stream_of(ours)):
        found = on_device(theirs), on_device(old)
    assert theirs.asked == [{"stream": asked, "max_version": (1, 0)}]
    assert old.asked == [{"stream": asked, "max_version": (1, 0)}, {"stream": asked}]
    assert fakes.said("record") == []
    for array, mine in zip((theirs.array, old.array), found, strict=True):
        assert (mine.pointer, mine.dtype, mine.shape) == (array.ctypes.data, array.dtype, array.shape)
        np.testing.assert_array_equal(mine.to_host(), array)
    with pytest.raises(TypeError, match=r"no array that goes to a CUDA device: .*got Speaking"):
        on_device(Speaking(np.arange(3.0), device=CPU))


def test_what_others_say_is_read_only_is(fakes: Fakes) -> None:
    x = on_device(Speaking(np.arange(3.0), read_only=True))
    with pytest.raises(ValueError, match="is read-only"):
        x.fill(0)
    assert read_only(x)
    assert flags_of(x.__dlpack__(max_version=(1, 0))) == READ_ONLY
    with pytest.raises(BufferError, match=r"a read-only array; DLPack says so from version 1 on"):
        x.__dlpack__()
    assert flags_of(x.__dlpack__(max_version=(1, 2), copy=True)) == IS_COPIED
    on_device(Speaking(np.arange(3.0))).fill(0)


def flags_of(capsule: Any) -> int:
    return int(ManagedVersioned.from_address(memory._inside(id(capsule), VERSIONED)).flags)


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        (None, [("record", 7), ("wait", 0)]),
        (1, [("record", 7), ("wait", 0)]),
        (2, [("record", 7), ("wait", 2)]),  # the driver's name for the stream of a thread, too
        (9, [("record", 7), ("wait", 9)]),
        (7, []),
        (-1, []),
    ],
)
def test_dlpack_lets_the_stream_of_the_one_who_asks_wait(stream: Any, wanted: Any, fakes: Fakes) -> None:
    with in_stream(facade.stream_of(7)):
        x = on_device(np.arange(3.0))
    fakes.log.clear()
    assert x.__dlpack_device__() == (CUDA, 0)
    taken = Taken(x.__dlpack__(stream=stream, max_version=(1, 0)))
    assert (taken.pointer, taken.shape, taken.dtype, taken.device) == (x.pointer, (3,), x.dtype, (CUDA, 0))
    assert fakes.log == wanted


def test_dlpack_copies_where_it_is_asked_to(fakes: Fakes) -> None:
    with in_stream(facade.stream_of(7)):
        x = on_device(np.arange(6.0).reshape(2, 3))
    fakes.log.clear()
    taken = Taken(x.__dlpack__(stream=9, max_version=(1, 0), copy=True))
    assert taken.pointer != x.pointer
    assert fakes.said("record", "wait") == [("record", 7), ("wait", 9)]
    assert [entry[3] for entry in fakes.said("launch")] == [9]
    assert Taken(x.__dlpack__(copy=False, dl_device=(CUDA, 0))).pointer == x.pointer
    found = np.from_dlpack(x, device="cpu")
    np.testing.assert_array_equal(found, x.to_host())
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu", copy=True), found)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"stream": 0}, "not a stream of DLPack: 0; wanted None or 1"),
        ({"stream": -2}, "not a stream of DLPack: -2"),
        ({"stream": "fast"}, "not a stream of DLPack: 'fast'"),
        ({"dl_device": (1, 0), "copy": False}, r"DLPack's device \(1, 0\) without a copy; wanted \(2, 0\)$"),
        ({"dl_device": (10, 0)}, r"DLPack's device \(10, 0\) without a copy; wanted \(2, 0\) or \(1, 0\)"),
    ],
)
def test_dlpack_that_cannot_be(options: Any, problem: str, fakes: Fakes) -> None:
    with pytest.raises(BufferError, match=problem):
        on_device(np.arange(3.0)).__dlpack__(**options)


def test_the_simulator_gives_no_capsules() -> None:
    with pytest.raises(BufferError, match="the simulator's memory is not a device's"):
        on_device(np.arange(3.0)).__dlpack__()


def read_only(array: Any) -> bool:
    return bool(array.__cuda_array_interface__["data"][1])


def test_only_what_nobody_may_ever_write_is_said_to_be_read_only(fakes: Fakes) -> None:
    x = empty((2, 3), "float32")
    x.flags.writeable = False  # as what is lent to a pullback
    assert not read_only(x)
    assert not read_only(x[1:])
    assert read_only(x.broadcast_to((4, 2, 3)))
    assert not read_only(x[:1].broadcast_to((1, 1, 3)))  # each element has one place
    fixed = np.arange(3.0)
    assert read_only(on_device(Elsewhere(fixed, data=(fixed.ctypes.data, True))))
    assert not read_only(on_device(Elsewhere(fixed)))


def test_pytorch_takes_what_is_lent(fakes: Fakes) -> None:
    torch = pytest.importorskip("torch")
    x = empty((2, 3), "float32")
    x.flags.writeable = False
    with pytest.raises(TypeError, match=LENT):
        torch.as_tensor(x.broadcast_to((4, 2, 3)), device="cuda")
    with pytest.raises(Exception, match=r".") as error:  # PyTorch would go on to the memory, which is not a device's
        torch.as_tensor(x, device="cuda")
    assert LENT not in str(error.value)
