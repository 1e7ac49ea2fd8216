"""Arrays that libraries give each other: whose stream waits for whose, and what is read-only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from elsewhere import Elsewhere
from fake_driver import Fakes, fake_device

from rnnops.kernels.cuda import streams
from rnnops.kernels.cuda.device_array import empty, on_device, settled
from rnnops.kernels.cuda.memory import in_stream

pytestmark = [pytest.mark.cuda, in_simulator]
LENT = "the read only flag is not supported"  # what PyTorch says of an array that is read-only


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


class Speaking:
    """An array of a library that has DLPack and no `__cuda_array_interface__`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> None: ...

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.mark.parametrize(("stream", "said"), [(0, 1), (1, 1), (2, 2), (700, 700)])
def test_others_are_told_the_stream_in_which_an_array_was_written(stream: int, said: int, fakes: Fakes) -> None:
    with in_stream(streams.stream_of(stream)):
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
    with in_stream(streams.stream_of(ours)):
        on_device(Elsewhere(np.arange(3.0), stream=said))
        on_device(Elsewhere(np.arange(3.0), version=2))  # which knows no streams
    assert fakes.said("record", "wait", "synchronize") == wanted


@pytest.mark.parametrize("said", [0, -1, True, "fast"])
def test_streams_that_are_none(said: Any, fakes: Fakes) -> None:
    with pytest.raises(TypeError, match=r"__cuda_array_interface__ with the stream .*wanted None, 1, 2 or an address"):
        on_device(Elsewhere(np.arange(3.0), stream=said))


def test_our_stream_is_what_dlpack_of_others_is_asked_for(fakes: Fakes) -> None:
    with in_stream(streams.stream_of(7)):
        on_device(Speaking(np.arange(3.0)))
    assert fakes.said("from dlpack") == [("from dlpack", 7)]
    assert fakes.said("record") == []


@pytest.mark.parametrize(
    ("stream", "current", "wanted"),
    [
        (None, 0, [("record", 7), ("wait", 0)]),
        (1, 0, [("record", 7), ("wait", 0)]),
        (9, 9, [("record", 7), ("wait", 9)]),
        (7, 7, []),
        (-1, 0, []),
    ],
)
def test_dlpack_lets_the_stream_of_the_one_who_asks_wait(stream: Any, current: int, wanted: Any, fakes: Fakes) -> None:
    with in_stream(streams.stream_of(7)):
        x = on_device(np.arange(3.0))
    fakes.log.clear()
    assert x.__dlpack__(stream=stream, max_version=(1, 0)) == (current, {"stream": stream, "max_version": (1, 0)})
    assert fakes.log == wanted


def test_dlpack_that_cannot_be() -> None:
    with fake_device(), pytest.raises(BufferError, match="stream 0 is ambiguous"):
        on_device(np.arange(3.0)).__dlpack__(stream=0)
    with fake_device(cupy=False), pytest.raises(BufferError, match="needs CuPy"):
        on_device(np.arange(3.0)).__dlpack__()


def read_only(array: Any) -> bool:
    return bool(array.__cuda_array_interface__["data"][1])


def test_only_what_nobody_may_ever_write_is_said_to_be_read_only(fakes: Fakes) -> None:
    x = empty((2, 3), "float32")
    x.flags.writeable = False  # as what is lent to a pullback
    assert not read_only(x)
    assert not read_only(x[1:])
    assert read_only(x.broadcast_to((4, 2, 3)))
    fixed = np.arange(3.0)
    assert read_only(on_device(Elsewhere(fixed, data=(fixed.ctypes.data, True))))
    assert not read_only(on_device(Elsewhere(fixed)))


def test_pytorch_takes_what_is_lent(fakes: Fakes) -> None:
    torch = pytest.importorskip("torch")
    x = empty((2, 3), "float32")
    x.flags.writeable = False
    with pytest.raises(TypeError, match=LENT):
        torch.as_tensor(x.broadcast_to((4, 2, 3)), device="cuda")
    with pytest.raises(Exception, match=r".") as error:  # PyTorch would go on to the memory, which is no device's
        torch.as_tensor(x, device="cuda")
    assert LENT not in str(error.value)
