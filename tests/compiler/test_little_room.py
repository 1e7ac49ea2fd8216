"""Memory that runs out: LLVM would end the process; there is an OutOfMemoryError, or the right numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rnnops as ro
from rnnops.errors import out_of_memory_of
from rnnops.kernels.cpu import native, processor

SCRIPT = Path(__file__).parents[1] / "little_room.py"
ALL = "1,2,4,8,16,32,64,128,256"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")


def check_ends(names: str, rooms: str, caches: str) -> None:
    ran = subprocess.run([sys.executable, str(SCRIPT), names, rooms, caches], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]


@pytest.mark.parametrize(
    ("names", "rooms", "caches"),
    [("vjp", "1,3,5,64", "warm"), ("compile_and_call,export", "1,16", "cold"), ("many_threads", "16", "warm")],
)
def test_no_process_ends_by_a_signal(names: str, rooms: str, caches: str) -> None:
    check_ends(names, rooms, caches)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["first_call", "compile_and_call", "vjp", "many_threads", "bind", "export", "export_c99", "stream", "model"]
)
def test_no_process_ends_by_a_signal_in_any_room(name: str) -> None:
    check_ends(name, ALL, "warm,cold")


@pytest.mark.parametrize("what", ["compiled", "engine_of", "linked"])
def test_llvm_is_not_entered_where_there_is_no_room(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "define void @f() { ret void }"
    given = {"compiled": text, "engine_of": native.compiled(text), "linked": [(text, 1)]}[what]
    monkeypatch.setattr(processor, "has_room", lambda nbytes: False)
    monkeypatch.setattr(native.llvm, "parse_assembly", None)
    with pytest.raises(ro.OutOfMemoryError, match=r"no room to (load compiled|compile) kernels; wanted \d{7} bytes"):
        getattr(native, what)(given, *([["f"]] if what == "linked" else []))


IMPORT = """
import resource
import rnnops
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (24 << 20),) * 2)
try:
    import rnnops.kernels.cpu.processor
except rnnops.OutOfMemoryError as error:
    print(error)
"""


def test_the_library_of_llvm_is_not_loaded_where_there_is_no_room() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert "memory has no room to load LLVM's library; wanted " in ran.stdout, ran.stderr


def test_errors_that_say_that_memory_ran_out_are_named() -> None:
    said = [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        ImportError("x.so: failed to map segment from object"),
    ]
    for error in said:
        found = out_of_memory_of(error, "n", "Add -> y")
        assert found is not None
        assert (found.net, found.op) == ("n", "Add -> y")
    inner = ro.OutOfMemoryError("memory has no room to compile kernels", wanted="5 bytes")
    assert str(out_of_memory_of(inner, "n")) == "net 'n': memory has no room to compile kernels; wanted 5 bytes"
    named = ro.OutOfMemoryError("no room", net="other")
    assert out_of_memory_of(named, "n") is named
    for other in (OSError(2, "No such file"), ValueError("out of memory"), ro.FeedError("no")):
        assert out_of_memory_of(other, "n") is None


def test_what_llvm_may_need_grows_with_the_longest_function() -> None:
    short, long = "define void @f() { ret void }\n", "define void @g() { " + "fence seq_cst " * 5000 + "ret void }\n"
    many = "".join([short] * 2000)
    assert processor.room_to_compile([long]) > processor.room_to_compile([many]) > processor.room_to_compile([short])
