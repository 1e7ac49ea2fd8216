"""Products in every form that people write: the reference's numbers and gradients, in blocks where they are large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from each import check_each

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99

T, N = 4, 3
Step = Callable[[ro.Blob, ro.Blob, ro.Blob], ro.Blob]


@dataclass(frozen=True)
class Form:
    """A step `h = tanh(step(h, w, x))`.

    Args:
        state, weight: sizes; of a state without those of the batch.
        product: text of a plan that says how the product runs.
    """

    state: tuple[int, ...]
    weight: tuple[int, ...]
    step: Step
    product: str = "gemm_packed"


def product_of(equation: str) -> Step:
    return lambda h, w, x: ro.einsum(equation, h, w) + x


def convolved(**attributes: Any) -> Step:
    return lambda h, w, x: ro.conv(h, w, **attributes) + x


def every(step: int) -> Step:
    return lambda h, w, x: ro.concat(*[ro.slice(h, [i], [64], [1], [step]) @ w for i in range(step)], axis=1) + x


FORMS = {
    "heads": Form((4, 32), (4, 32, 32), product_of("nhd,hde->nhe")),
    "folded pairs": Form((4, 32), (4, 32, 4, 32), product_of("nhd,hdge->nge")),
    "experts": Form(
        (32,), (4, 32, 32), lambda h, w, x: ro.reduce_mean(ro.einsum("nh,ehk->enk", h, w), [0], keepdims=0) + x
    ),
    "several folded axes": Form(
        (4, 32), (4, 32, 32), lambda h, w, x: h + ro.unsqueeze(ro.einsum("nkh,khe->ne", h, w), 1) + x
    ),
    "every second feature": Form((64,), (32, 32), every(2)),
    "reversed": Form((32,), (32, 32), lambda h, w, x: ro.slice(h, [-1], [-99], [1], [-1]) @ w + x),
    "transposed copy": Form((32,), (32, 32), lambda h, w, x: h @ ro.transpose(w, [1, 0]) + x),
    "merged rows": Form((5, 32), (32, 32), lambda h, w, x: ro.reshape(ro.reshape(h, [N * 5, 32]) @ w, [N, 5, 32]) + x),
    "from the left": Form((32, 16), (32, 32), product_of("nwd,vw->nvd"), "gemm_nn"),
    "both sides": Form((16, 16), (16, 16), lambda h, w, x: ro.einsum("ij,njk,kl->nil", w, h, w) + x),
    "a state with itself": Form(
        (32, 16), (32, 1), lambda h, w, x: (h @ ro.transpose(h, [0, 2, 1])) @ h * w + x, "gemm_nt"
    ),
    "attention": Form(
        (4, 16, 16), (16, 1), lambda h, w, x: ro.softmax(h @ ro.transpose(h, [0, 1, 3, 2])) @ h * w + x, "gemm_nt"
    ),
    "convolution": Form((8, 6, 6), (8, 8, 3, 3), convolved(pads=[1, 1, 1, 1])),
    "lines of a convolution": Form((16, 8, 9), (16, 16, 3, 3), convolved(pads=[1, 1, 1, 1]), "gemm_nn"),
    "a large kernel": Form((16, 12, 8), (16, 16, 4, 5), convolved(pads=[1, 2, 2, 2]), "gemm_nn"),
    "dilated lines": Form((16, 9, 12), (16, 16, 3, 3), convolved(pads=[2, 2, 2, 2], dilations=[2, 2]), "gemm_nn"),
    "a convolution of few places": Form((16, 33), (16, 16, 5), convolved(pads=[2, 2]), "gemm_nn"),
    "lines in groups": Form((32, 8, 8), (32, 16, 3, 3), convolved(pads=[1, 1, 1, 1], group=2), "gemm_nn"),
    "convolution in groups": Form((32, 9), (32, 16, 3), convolved(pads=[2, 2], dilations=[2], group=2)),
    "depthwise convolution": Form((16, 9), (16, 1, 3), convolved(pads=[1, 1], group=16), ""),
}


def net_of(form: Form, batch_axis: int = 0) -> ro.Net:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(form.step(h, w, x)))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    shapes = {"h": form.state}
    net.outputs(y=ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, state_shapes=shapes)[0])
    return net


def feeds_of(form: Form, dtype: str = "float64") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"xs": (T, N, *form.state), "h0": (N, *form.state), "w": form.weight}
    return {name: (rng.normal(size=shape) / 2).astype(dtype) for name, shape in shapes.items()}


DEVICES: dict[str, dict[str, Any]] = {
    "cpu": {"threads": 2},
    "one thread": {"threads": 1},
    "plain": {"tuning": Options(compiled=False, tile=2)},
    "c99": {"tuning": Options(device=C99(), around="rows")},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FORMS)
def test_results_and_gradients(name: str, device: str) -> None:
    form = FORMS[name]
    net, feeds = net_of(form), feeds_of(form)
    (out, pullback), (wanted, reference) = (
        ro.compile(net, **DEVICES[device]).vjp(feeds),
        ro.compile(net, "reference").vjp(feeds),
    )
    np.testing.assert_allclose(out["y"], wanted["y"], 1e-12, 1e-12)
    dy = np.random.default_rng(1).normal(size=out["y"].shape)
    grads, right = pullback({"y": dy}), reference({"y": dy})
    check_each(grads, lambda blob: np.testing.assert_allclose(grads[blob], right[blob], 1e-10, 1e-10))


def test_large_products_run_in_blocks() -> None:
    def check(name: str) -> None:
        form = FORMS[name]
        run, feeds = ro.compile(net_of(form)), feeds_of(form, "float32")
        run(feeds)
        source = str(run.plan(feeds).source)
        assert form.product in source.partition("def scan")[2] + source.partition("def rows")[2]

    check_each((name for name, form in FORMS.items() if form.product), check)
