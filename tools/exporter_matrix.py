"""Recurrences as PyTorch's exporters write them: read or refused, equal or not, and how long they take.

`python -m tools.exporter_matrix [WORD ...]` needs PyTorch, onnxscript and onnx. Each module is exported in a process of
its own with open sizes T and N, by the current exporter (`dynamo`) and the older one (`script`). It is read, run at
another N, and at another T where the file leaves T open. Results and gradients are compared with PyTorch's in float32.
Gradients of weights are compared element by element: each number in the file is found in the module by its value.
Processor times are of one thread, in turns with the same weights in the node that the older exporter writes.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import rnnops as ro
from rnnops.errors import RnnopsError
from rnnops.onnx.compare import distance, distance_of, time_in_turns
from tools.exporter_modules import FORMS, Case, Layers, Loop, all_cases

T, N = 24, 6  # sizes at the export
OTHER_T, OTHER_N = 200, 8  # sizes at the run
TOLERANCE, SLOWEST, SECONDS = 1e-4, 1.2, 300
COLUMNS = "{:<64} {:>8} {:>8} {:>5} {:>5}  {}"


def export(case: Case, module: nn.Module, path: Path) -> None:
    """Write a module with open sizes."""
    feeds = case.feeds(T, N)
    if case.exporter == "dynamo":
        sizes = {name: torch.export.Dim(name, min=2) for name in "TN"}
        shapes = {name: {axis: sizes[size] for axis, size in axes.items()} for name, axes in case.open_axes.items()}
        torch.onnx.export(module, (), kwargs=feeds, dynamo=True, dynamic_shapes=shapes, verbose=False).save(path)
        return
    given = {"kwargs": feeds} if case.form == "module" else {}
    if case.form == "scripted_loop":
        module = torch.jit.script(module)
    options = {"input_names": list(feeds), "dynamic_axes": case.open_axes, "opset_version": 17}
    torch.onnx.export(module, () if given else tuple(feeds.values()), path, dynamo=False, **given, **options)


@dataclass
class Row:
    """The result of a case; a number is None where it was not measured.

    Args:
        error, gradient: largest differences over the largest value; call, step: times over those of the node.
    """

    verdict: str
    error: float | None = None
    gradient: float | None = None
    call: float | None = None
    step: float | None = None


def try_case(case: Case, path: Path) -> Row:
    """Export a module, read the file and compare it."""
    torch.manual_seed(0)
    module = FORMS[case.form](case).eval()
    give_each_weight_its_value(module)
    try:
        export(case, module, path)
    except Exception as error:
        while error.__cause__ is not None:  # the first of them says why
            error = error.__cause__
        return Row(f"not exported: {first_line(error)}")
    try:
        model = ro.onnx.load_model(path)
    except RnnopsError as error:
        return Row(f"refused: {first_line(error).replace(f'{path}: ', '')}")
    sizes, fixed = fitting_sizes(case, model)
    feeds = case.feeds(*sizes)
    row = compared(module, model, feeds)
    row.verdict += "".join(f", {name} is fixed" for name in fixed)
    if not (case.projected or (case.exporter, case.form) == ("script", "module")):  # the latter is the node itself
        row.call, row.step = ratios(case, module, model, feeds, path)
    return row


def give_each_weight_its_value(module: nn.Module) -> None:
    """Numbers no two of which are equal, so that one in a file says which it is."""
    weights = list(module.parameters())
    count = sum(weight.numel() for weight in weights)
    numbers = torch.randperm(count).float().div(count).sub(0.5).mul(0.25).split([one.numel() for one in weights])
    for weight, values in zip(weights, numbers, strict=True):
        weight.data.copy_(values.view_as(weight))


def fitting_sizes(case: Case, model: Any) -> tuple[tuple[int, int], list[str]]:
    """T and N that a file can be run at, others than those of the export where it can, and those that it fixes."""
    run = ro.compile(model.net, device="reference")
    for t, n in ((OTHER_T, OTHER_N), (T, OTHER_N), (OTHER_T, N)):
        feeds = {name: value.numpy() for name, value in case.feeds(t, n).items()}
        try:
            if {t, n} <= set(next(iter(run(model.params, feeds).values())).shape):
                return (t, n), [name for name, fixed in (("T", t == T), ("N", n == N)) if fixed]
        except RnnopsError:
            continue
    return (T, N), ["T", "N"]


def compared(module: nn.Module, model: Any, feeds: dict[str, torch.Tensor]) -> Row:
    """The differences from PyTorch, of results and gradients."""
    leaves = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in feeds.items()}
    results = Loop.forward(module, **leaves) if isinstance(module, Loop) else module(**leaves)
    weights = [torch.randn_like(result) for result in results]
    torch.autograd.backward(results, weights)
    run = ro.compile(model.net)
    out, pullback = run.vjp(model.params, {name: value.numpy() for name, value in feeds.items()})
    wanted = dict(zip(out, (result.detach().numpy() for result in results), strict=True))
    found = pullback({name: weight.numpy() for name, weight in zip(out, weights, strict=True)})
    pairs = {name: (found[name], leaf.grad.numpy()) for name, leaf in leaves.items() if leaf.grad is not None}
    pairs["weights"] = gradients_of_weights(module, model.params, found)
    row = Row("equal", distance(out, wanted), max(distance_of(*pair) for pair in pairs.values()))
    if not max(row.error, row.gradient) <= TOLERANCE:
        row.verdict = "differs"
    return row


def gradients_of_weights(module: nn.Module, params: Any, found: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the numbers of the file's parameters, added up where one stands several times, and PyTorch's."""
    weights = [one for one in module.parameters() if one.grad is not None]
    values, wanted = (
        np.concatenate([a.numpy().ravel() for a in each])
        for each in zip(*((one.detach(), one.grad) for one in weights), strict=True)
    )
    order = np.argsort(values)
    values, wanted, sums = values[order], wanted[order], np.zeros_like(wanted)
    for name, array in params.items():
        places = np.searchsorted(values, array.ravel()).clip(max=values.size - 1)
        there = values[places] == array.ravel()
        np.add.at(sums, places[there], np.broadcast_to(found[name], array.shape).ravel()[there])
    return sums, wanted


def ratios(case: Case, module: nn.Module, model: Any, feeds: Any, path: Path) -> tuple[float, float]:
    """Times of a call, and of one with gradients, over those of the same weights in the older exporter's node."""
    plain = replace(case, exporter="script", form="module")
    export(plain, Layers(plain, module.rnn).eval(), path)
    arrays = {name: value.numpy() for name, value in feeds.items()}
    split = arrays if case.form == "module" else {"x": arrays["x"], "h": arrays["h"][:1], "c": arrays["h"][1:]}
    node = ro.onnx.load_model(path)
    calls = calls_of(model, arrays), calls_of(node, {name: split[name] for name in plain.open_axes})
    timed = [time_in_turns({"file": file, "node": node}) for file, node in zip(*calls, strict=True)]
    return timed[0]["file"] / timed[0]["node"], timed[1]["file"] / timed[1]["node"]


def calls_of(model: Any, feeds: Any) -> tuple[Any, Any]:
    """A call of a model with its parameters bound, and one that also computes all gradients."""
    run = ro.compile(model.net, threads=1)
    bound, out = run.bind(**model.params), run(model.params, feeds)
    return lambda: bound(feeds), lambda: run.vjp(model.params, feeds)[1](out)


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def in_a_process(case: Case, pipe: Connection) -> None:
    """Send the row of a case."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        try:
            row = try_case(case, Path(folder) / "model.onnx")
        except Exception as error:  # a table of all cases is worth more than the first that fails
            row = Row(f"failed: {first_line(error)}")
    pipe.send(row)


def row_of(case: Case) -> Row:
    """The row of a case, from a process of its own."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=in_a_process, args=(case, its))
    process.start()
    its.close()
    try:
        return mine.recv() if mine.poll(SECONDS) else Row(f"failed: not done within {SECONDS} s")
    except EOFError:
        return Row("failed: the process ended")
    finally:
        process.kill()
        process.join()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.exporter_matrix", description=__doc__)
    parser.add_argument("words", nargs="*", help="words of a row, all of which it must have; all rows without any")
    given = parser.parse_args(arguments)
    print(COLUMNS.format("exporter, module", "error", "gradient", "call", "step", "verdict"))
    rows = {}
    for case in all_cases():
        if set(given.words) <= set(str(case).split()):
            row = rows[case] = row_of(case)
            numbers = [f"{one:.0e}" if one is not None else "" for one in (row.error, row.gradient)]
            numbers += [f"{one:.2f}" if one is not None else "" for one in (row.call, row.step)]
            print(COLUMNS.format(str(case), *numbers, row.verdict), flush=True)
    return any(row.verdict.startswith(("differs", "failed")) for row in rows.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
