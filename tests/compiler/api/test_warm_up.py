"""`run.warm_up` compiles, and a compile that takes long is told of."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops import util
from rnnops.compiler.run.compiled_scan import CompiledScan

T, N, H = 5, 2, 4


def net() -> ro.Net:
    made = ro.Net("warm")
    made.outputs(y=ro.GRU(made, made.input("x"), None, None, H, H)[0])
    return made


def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of cells whose kernels are loaded from now on."""
    found: list[str] = []
    load = CompiledScan._function.function

    def counted(scan: CompiledScan) -> Any:
        found.append(scan.scan.program.net.name)
        return load(scan)

    monkeypatch.setattr(CompiledScan._function, "function", counted)
    return found


def test_nothing_is_left_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = ro.compile(net()), loads(monkeypatch)
    run.warm_up(x=(T, N, H))
    assert found
    found.clear()
    feeds = {**ro.init_params(run.net, 0), "x": np.ones((T, N, H), "float32")}
    run(feeds)
    out, pullback = run.vjp(feeds)
    pullback({"y": np.ones_like(out["y"])})
    assert not found


def test_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run, found = ro.compile(net()), loads(monkeypatch)
    run.warm_up(x=(T, N, H), backward=False)
    ahead = len(found)
    run.warm_up(x=(T, N, H))
    assert 0 < ahead < len(found)


def test_a_long_compile_says_what_it_compiles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(util, "LONG", 0.0)
    with caplog.at_level(logging.WARNING, "rnnops"):
        ro.compile(net()).warm_up(x=(T, N, H))
    assert "compiled 'gru/step' (25 ops) in" in caplog.text
    assert "run.warm_up" in caplog.text


def test_a_bar_where_there_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def tqdm(items: Any, **options: Any) -> Any:
        shown.append(options)
        return items

    monkeypatch.setattr(util, "tqdm_or_none", lambda: tqdm)
    monkeypatch.setattr(util, "is_terminal", lambda: True)
    ro.compile(net()).warm_up(x=(T, N, H))
    assert shown[0]["desc"] == "compiling"
    monkeypatch.setattr(util, "is_terminal", lambda: False)
    assert util.with_bar([1, 2], "compiling", "") == [1, 2]
