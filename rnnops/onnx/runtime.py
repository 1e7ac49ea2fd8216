"""The door to ONNX Runtime, beside which files are run: one thread, no messages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial

from rnnops.onnx.errors import MissingPackageError, OnnxError, about
from rnnops.types import Array

PREAMBLE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (Non-zero status code returned while )?|\S*/onnxruntime/\S+ "
)
LONGEST = 400  # characters of what it says, which ends with what is wrong


class Session:
    """A file in ONNX Runtime, on one thread.

    Args:
        path: the file.

    Raises:
        MissingPackageError: there is no ONNX Runtime.
        OnnxError: it does not take the file; calls: it does not run it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            hint = f"Install it by {sys.executable} -m pip install onnxruntime"
            raise MissingPackageError("the package onnxruntime is missing", hint=f"{hint}.") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._where = f"ONNX Runtime, {os.fspath(path)}"
        with about(self._where):
            self._session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name; feeds that are no inputs of the file are left out."""
        try:
            return dict(zip(self._outputs, self._session.run(None, self._given(feeds)), strict=True))
        except Exception as error:  # whatever it raises
            told = " ".join(PREAMBLE.sub("", str(error)).split())
            raise OnnxError(f"{self._where}: it fails", came=told[:LONGEST]) from error

    def repeated(self, feeds: Mapping[str, Array]) -> Callable[[], object]:
        """A call that is as short as Python allows, to be timed."""
        return partial(self._session.run, None, self._given(feeds))

    def stepped(self, feeds: Mapping[str, Array], links: Mapping[str, str]) -> Callable[[], object]:
        """The same, which hands states on to the next call.

        Args:
            feeds: with what states begin with; links: output -> the input that it feeds.
        """
        given, run = self._given(feeds), self._session.run
        places = [(self._outputs.index(output), name) for output, name in links.items()]

        def step() -> object:
            out = run(None, given)
            for place, name in places:
                given[name] = out[place]
            return out

        return step

    def _given(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {name: feeds[name] for name in self._inputs if name in feeds}
