"""What a run is: as text, and as what Python's own copies and pickles are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnnops.arguments import Attributes
from rnnops.checkpoints.policy import Saving
from rnnops.compiler.buffers.memory import Pool
from rnnops.compiler.execute.compiled_scan import Options
from rnnops.net import Net
from rnnops.parse import parse_net
from rnnops.text import format_input


class PrintedRun(Attributes):
    """Base of runs: a net, a device, options and what is bound; all else is made again where it is wanted."""

    net: Net
    device: str
    _options: Options
    _saving: Saving
    _bound: dict[str, Any]

    def __repr__(self) -> str:
        free = [format_input(spec) for spec in self.net.input_specs if spec.name not in self._bound]
        bound = f"; bound {', '.join(self._bound)}" if self._bound else ""
        ports = f"{', '.join(free)} -> {', '.join(self.net.output_blobs)}"
        return f"<{type(self).__name__} of net '{self.net.name}' on {self.device}: {ports}{bound}>"

    def __copy__(self) -> PrintedRun:
        """The same plans and kernels, as a copy that differs in some attribute has."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """By the text of the net and by options: kernels are loaded, or compiled, where the copy is used."""
        options = replace(self._options, pool=Pool())  # which holds memory, and what was packed once
        return _again, (type(self), str(self.net), self.device, options, self._bound, self._saving)

    def _place(self) -> dict[str, str]:
        return {"net": object.__getattribute__(self, "net").name}

    def _attribute_hint(self, name: str) -> str | None:
        return "run(feeds) is a call; out, pullback = run.vjp(feeds) and pullback(grads) train."


def _again(kind: Any, text: str, device: str, options: Options, bound: dict[str, Any], saving: Saving) -> PrintedRun:
    for array in bound.values():
        array.flags.writeable = False  # as `bind` has them: packed copies would not follow
    found: PrintedRun = kind(parse_net(text).snapshot(), device, options, bound, saving)
    return found
