"""Recording which code runs while a step is traced: each code object, before its first instruction.

`sys.setprofile` tells of each call of this thread. PyTorch's own functions are left out: it is off within them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import _global_backward_hooks, _global_backward_pre_hooks
from torch.overrides import TorchFunctionMode

from rnnops.torch.code_reads import MODULES, SKIPPED, STANDARD, USER, kind_of
from rnnops.torch.errors import StepError

CLOCK = "the clock"
OUTSIDE = {  # modules of C functions that read what no object of Python holds
    "time": CLOCK,
    "_random": "Python's random numbers",
    "random": "Python's random numbers",
    "posix": "the file system",
    "nt": "the file system",
    "io": "a file",
    "_io": "a file",
    "_socket": "a socket",
}
PURE = {"putenv", "unsetenv", "fspath", "getpid"}
CALL = Module._call_impl.__code__
OutsideRead = tuple[str, str]  # a function's name, what it reads


class Recorder(TorchFunctionMode):
    """Tells of code that runs within, and of functions that read what cannot be checked."""

    def __init__(self, on_code: Callable[[CodeType, dict[str, Any]], object]) -> None:
        super().__init__()
        self._on_code = on_code
        self._done: dict[int, CodeType] = {}
        self._modules: dict[int, Module] = {}
        self.outside: set[OutsideRead] = set()

    def __enter__(self) -> Recorder:
        self._before = sys.getprofile()
        self._pause_other(True)
        super().__enter__()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.setprofile(None)
        super().__exit__(*error)
        self._pause_other(False)
        for module in self._modules.values():
            _check_module(module)

    def _pause_other(self, pause: bool) -> None:
        """A profiler that is at work is stopped meanwhile."""
        switch = getattr(self._before, "disable" if pause else "enable", None)
        if switch is not None:  # cProfile's
            switch()
        elif not pause and callable(self._before):
            sys.setprofile(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sys.setprofile(None)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code is CALL:
                module = frame.f_locals["self"]
                self._modules[id(module)] = module
            if id(code) not in self._done:
                self._on_call(frame, code)
        elif event == "c_call":
            self._on_builtin(frame, function)

    def _on_call(self, frame: FrameType, code: CodeType) -> None:
        kind = kind_of(code.co_filename)
        if kind == STANDARD and kind_of_caller(frame) != USER:
            return
        self._done[id(code)] = code
        if kind != SKIPPED:
            self._on_code(code, frame.f_globals)

    def _on_builtin(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or type(owner).__module__
        read = OUTSIDE.get(module)
        if read and function.__name__ not in PURE and kind_of_caller(frame, itself=True) == USER:
            self.outside.add((f"{module.lstrip('_')}.{function.__name__}", read))


def _check_module(module: Module) -> None:
    """Raise StepError for modules that a graph would not show as they are."""
    if isinstance(module, torch.jit.ScriptModule):
        hint = "Give the module as it was before torch.jit.script."
        raise StepError("a scripted module is part of a step", came=module.original_name, hint=hint)
    own = module._backward_hooks, module._backward_pre_hooks
    for hooks in (*own, _global_backward_hooks, _global_backward_pre_hooks):
        for hook in hooks.values():
            came = f"{getattr(hook, '__qualname__', hook)} of {type(module).__name__}"
            hint = "Put it on the rnnops.torch.RNN, or on a parameter."
            raise StepError("a loop would run a module's backward hook at each step", came=came, hint=hint)


def kind_of_caller(frame: FrameType | None, itself: bool = False) -> str:
    """Whose code called, looking past the standard library's."""
    frame = frame if itself else frame and frame.f_back
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename)
        if kind != STANDARD:
            return USER if kind == MODULES else kind
        frame = frame.f_back
    return USER
