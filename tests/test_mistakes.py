"""Typical mistakes: each of `examples/mistakes.py` has an error of ours; misspelt names are told what is near."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from each import check_each
from rejection import rejects

import rnnops as ro
from rnnops.arguments import did_you_mean, named_arguments

FILE = Path(__file__).parent.parent / "examples" / "mistakes.py"


def mistakes() -> Any:
    spec = spec_from_file_location("mistakes", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fifty_mistakes() -> None:
    module = mistakes()
    assert len(module.MISTAKES) >= 50
    check_each(list(module.MISTAKES), lambda name: module.message(module.MISTAKES[name]))


def test_what_a_misspelt_name_may_have_meant() -> None:
    known = ("w_x", "w_h", "lengths")
    assert did_you_mean("w_y", known) in ("Did you mean w_x?", "Did you mean w_h?")
    assert did_you_mean("Lengths", known) == "Did you mean lengths?"
    assert did_you_mean("dim", known, {"dim": "axis"}) == "Did you mean axis?"
    assert did_you_mean("something", known) is None


def test_a_type_error_from_within_stays_what_it_is() -> None:
    @named_arguments
    def adding(x: Any) -> Any:
        return x + "1"

    with pytest.raises(TypeError) as caught:
        adding(1)
    assert not isinstance(caught.value, ro.RnnopsError)
    rejects(ro.ArgumentError, lambda: adding(y=1), "'x'")


def test_attributes_that_are_not_there() -> None:
    x = ro.Net("n").input("x")
    assert not hasattr(x, "nothing")
    assert not hasattr(ro, "nothing")
    rejects(ro.UnknownNameError, lambda: x.premute, "a Blob has no attribute 'premute'")
    rejects(ro.UnknownNameError, lambda: x.nothing, "net 'n'", "blob 'x'")
    rejects(ro.UnknownNameError, lambda: ro.Net("n").paramter, "net 'n'", "parameter")
    with pytest.raises(AttributeError):
        object.__new__(ro.Blob).nothing  # noqa: B018 - before it has a net
    with pytest.raises(AttributeError):
        x.__nothing__  # noqa: B018


def test_arguments_of_runs() -> None:
    net = ro.Net("n")
    net.outputs(y=net.input("x") @ net.parameter("w", (2, 2)))
    start: Any = ro.init_params
    params = start(net, seed=0)
    runs: list[Any] = [ro.compile(net), ro.compile(net, device="reference"), ro.compile(net, check_numerics=True)]
    for run in runs:
        rejects(ro.ArgumentError, lambda run=run: run.bind(params), "bind: too many positional arguments")
        rejects(ro.ArgumentError, lambda run=run: run.stream({"y": "x"}, row=2), "Did you mean rows?")
    rejects(ro.ArgumentError, lambda: start(net, 0, dtyp="float64"), "Did you mean dtype?")
