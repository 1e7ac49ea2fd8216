"""Fixtures of all tests. CUDA kernels run in numba's simulator, unless NUMBA_ENABLE_CUDASIM=0 is set for a device."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # for processes that tests start: they take twice as long without

import devices
import pytest
from covering import covering
from quick_code import unoptimised_scans
from verify_kernels import verify, verify_device

from rnnops.cells import sized
from rnnops.compiler.targets import target
from rnnops.compiler.targets.cuda import target as cuda_target
from rnnops.net.schema import REGISTRY

LISTS = {mark: Path(__file__).with_name(f"{mark}.txt") for mark in ("slow", "ci")}  # of cases beside the default tier
PYTORCH = str(Path(__file__).with_name("pytorch")) + os.sep
QUICK = {"cells", "gradients", "onnx", "pytorch", "recurrent"}  # folders whose tests of ci and packages compile quickly
PACKAGES = {"jax", "mpmath", "onnxruntime", "onnxscript", "torch"}  # that tests ask for and the extra `test` has not

OPTIMISED = os.environ.get("RNNOPS_OPTIMISED_TESTS") == "1"
RARELY = (20_000, 20, 20)  # new objects before the youngest are looked at, and how often those before the older ones
WARNINGS = (
    "error",
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning",  # Python 3.12 on; tests fork on purpose
)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors once all plugins are configured: in pyproject.toml, a plugin's own warning ends pytest.

    Python looks for circles of dead objects less often than it does by itself, which takes 6 % of all tests.
    """
    gc.set_threshold(*RARELY)
    for line in WARNINGS:
        config.addinivalue_line("filterwarnings", line)


def listed(mark: str) -> list[str]:
    """The lines of a mark's file: names of tests, in which * and ? stand for any characters."""
    lines = LISTS[mark].read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pattern_of(line: str) -> str:
    """A line of `slow.txt` as a regular expression; brackets stand for themselves."""
    return re.escape(line).replace(r"\*", ".*").replace(r"\?", ".")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases that are listed, what `covering` leaves out of the product of a test, and who needs packages."""
    patterns = {mark: re.compile("|".join(map(pattern_of, listed(mark)))) for mark in LISTS}
    products: dict[str, list[pytest.Function]] = {}
    for item in items:
        if needs_packages(item):
            item.add_marker(pytest.mark.packages)
        marks = [mark for mark in LISTS if patterns[mark].fullmatch(item.nodeid.removeprefix("tests/"))]
        for mark in marks:
            item.add_marker(mark)
        if "slow" not in marks and isinstance(item, pytest.Function) and item.get_closest_marker("covering"):
            products.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in products.values():
        mark_beside_covering(cases)


def needs_packages(item: pytest.Item) -> bool:
    """Whether a test asks for a package that the extra `test` has not."""
    if not isinstance(item, pytest.Function):
        return False
    code = item.function.__code__
    asks = "importorskip" in code.co_names and bool(PACKAGES.intersection(map(str, code.co_consts)))
    return asks or str(item.path).startswith(PYTORCH)


def mark_beside_covering(cases: list[pytest.Function]) -> None:
    """Mark those cases of one test slow that its covering cases leave out."""
    mark = cases[0].get_closest_marker("covering")
    values = [{name: id(value) for name, value in case.callspec.params.items()} for case in cases]
    kept = covering(values, *mark.args if mark else ())
    for number in {*range(len(cases))} - {*kept}:
        cases[number].add_marker(pytest.mark.slow)


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch's log of sizes is off: pytest would write it down, and a step that writes is not compiled."""
    import torch

    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def _clean_registry() -> Iterator[None]:
    """Ops and cells that a test registers are gone after it."""
    tables: tuple[dict[str, Any], ...] = (REGISTRY, sized._TABLE)
    before = [dict(one) for one in tables]
    yield
    for one, entries in zip(tables, before, strict=True):
        one.clear()
        one.update(entries)


@pytest.fixture(autouse=True)
def _quick_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile tests of the tiers ci and packages without LLVM's optimisations, in the folders `QUICK`.

    Tests of the default and the slow tier compile as users do; with RNNOPS_OPTIMISED_TESTS=1 all tests do.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    is_quick = marks & {"ci", "packages"} and "slow" not in marks and not OPTIMISED
    is_quick = is_quick and request.node.path.parent.name in QUICK
    with unoptimised_scans() if is_quick else nullcontext():
        yield


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_not_looked_at() -> None:
    """What earlier modules left (plans, compiled functions) is in no later collection, which would take seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _kernels_are_verified() -> Iterator[None]:
    """Every module that a plan writes means something."""

    def verified(write: Any, check: Any) -> Any:
        def written(*arguments: Any) -> Any:
            text = write(*arguments)
            check(text.module)
            return text

        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_target, "write_cuda_scan", verified(cuda_target.write_cuda_scan, verify_device))
        patch.setattr(target, "write_scan", verified(target.write_scan, verify))
        yield


@pytest.fixture(params=["reference", "plain"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device that a module runs on which asks for this fixture."""
    with devices.chosen(request.param) as name:
        yield name
