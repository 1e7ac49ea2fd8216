"""Capsules of DLPack, on the CPU, where NumPy and PyTorch read and make them too."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from elsewhere import At

from rnnops.kernels.cuda import memory
from rnnops.kernels.cuda.memory import CPU, IS_COPIED, READ_ONLY, Taken, capsule_of

pytestmark = pytest.mark.cuda
ARRAYS = {
    "floats with gaps": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1:],
    "backwards": np.arange(6.0)[::-1],
    "one number": np.array(3, np.int64),
    "bools": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.uint8),
    "halves": np.arange(3, dtype=np.float16),
}


class Ours:
    """An array of ours as NumPy asks for it."""

    def __init__(self, array: Any, flags: int = 0, versioned: bool = True) -> None:
        self.capsule = capsule_of(At(array), (CPU, 0), flags, versioned)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_reads_what_we_write_and_we_what_numpy_writes(name: str, versioned: bool) -> None:
    array = ARRAYS[name]
    found = np.from_dlpack(Ours(array, 0, versioned))
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found, array)
    taken = Taken(array.__dlpack__(max_version=(1, 0) if versioned else None))
    assert (taken.shape, taken.dtype, taken.device, taken.read_only) == (array.shape, array.dtype, (CPU, 0), False)
    if array.size:
        assert taken.pointer == array.ctypes.data
        assert taken.strides == array.strides or not array.shape


def test_pytorch_reads_them_too() -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(6.0).reshape(2, 3)
    for versioned in (False, True):
        found = torch.from_dlpack(Ours(array, 0, versioned))
        assert found.data_ptr() == array.ctypes.data
        assert found.tolist() == array.tolist()
        tensor = torch.arange(4, dtype=torch.int32)
        taken = Taken(tensor.__dlpack__(max_version=(1, 0) if versioned else None))
        assert (taken.pointer, taken.shape, taken.dtype) == (tensor.data_ptr(), (4,), np.dtype("int32"))


def test_numpy_hears_what_is_read_only_and_so_do_we() -> None:
    array = np.arange(3.0)
    assert np.from_dlpack(Ours(array)).flags.writeable
    assert np.from_dlpack(Ours(array, IS_COPIED)).flags.writeable
    assert not np.from_dlpack(Ours(array, READ_ONLY)).flags.writeable
    array.flags.writeable = False
    assert Taken(array.__dlpack__(max_version=(1, 0))).read_only


def test_memory_lives_as_long_as_somebody_has_it() -> None:
    array = At(np.arange(3.0))
    alive, held = weakref.ref(array), len(memory._held)
    capsule = capsule_of(array, (CPU, 0), 0, True)
    unused = capsule_of(array, (CPU, 0), 0, False)
    del array
    assert len(memory._held) == held + 2
    del unused  # which nobody took
    assert len(memory._held) == held + 1
    taken = Taken(capsule)
    del capsule
    gc.collect()
    assert alive() is not None
    del taken
    gc.collect()
    assert alive() is None
    assert len(memory._held) == held


def test_capsules_that_cannot_be_taken() -> None:
    capsule = capsule_of(At(np.arange(3.0)), (CPU, 0), 0, True)
    taken = Taken(capsule)
    with pytest.raises(BufferError, match="not a capsule with an array, or was used already"):
        Taken(capsule)
    with pytest.raises(BufferError, match="not a capsule with an array"):
        Taken(None)
    with pytest.raises(BufferError, match="elements of DLPack's code 5, 64 bits, 1 lanes"):
        Taken(np.zeros(2, np.complex64).__dlpack__())
    forever = capsule_of(At(np.arange(3.0)), (CPU, 0), 0, False)
    memory.Managed.from_address(memory._inside(id(forever), memory.PLAIN)).deleter = None  # nothing is to be done
    assert Taken(forever).shape == (3,)
    later = capsule_of(At(np.arange(3.0)), (CPU, 0), 0, True)
    memory.ManagedVersioned.from_address(memory._inside(id(later), memory.VERSIONED)).major = 2
    with pytest.raises(BufferError, match=r"DLPack of version 2\.0; wanted 1"):
        Taken(later)
    assert taken.shape == (3,)
