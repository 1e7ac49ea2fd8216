"""A reduction of a new kind as PTX for compute capability 9.0: what lanes fold compiles without a device."""

from __future__ import annotations

import pytest
from without_simulator import run_compiler

COMPILE = """
sys.path.append("tests/ops")
import rnnops as ro
from own_ops import OWN, reduce_log_add_exp, reduce_odd, reduce_prod, registered
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.target import load_module

dtype = sys.argv[1]
kinds = {"bool": [reduce_odd], "int32": [reduce_prod]}.get(dtype, [reduce_prod, reduce_log_add_exp])
with registered(*OWN):
    net = ro.Net("net")
    x = net.input("x", None if dtype == "float32" else dtype)
    net.outputs(**{f"y{i}": reduce(x, axes=[1]) for i, reduce in enumerate(kinds)})
    tuning = Options(around="all", device=Cuda(256, 132, 220 * 1024))
    plan = ro.compile(net, tuning=tuning).plan(x=(64, 700), dtype="float32", backward=False)
for kernel in plan.plan.compiled.kernels:
    module = load_module(kernel.compiled.text.python())
    for name in sorted(vars(module)):
        if name.startswith(("loop_", "unit_")):
            text = facade.ptx_of_scan(getattr(module, name), (9, 0))
            print(len(re.findall(r"_fold_\\d\\(v", kernel.compiled.text.python())), ".f64" in text)
"""


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_folds_of_lanes_compile(dtype: str) -> None:
    assert run_compiler(COMPILE, dtype) == ["2 False" if dtype == "float32" else "1 False"]
