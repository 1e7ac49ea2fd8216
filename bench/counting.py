"""Work of a net, counted from its ops by shape inference: flops of its products, results of its elementwise ops."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bench.nets import UserNet, user_net
from bench.problems import ENCODER_STEPS, Problem, Shape, Size
from rnnops.net.infer import infer
from rnnops.net.schema import Call
from rnnops.types import Type

MOVES = ("Split", "Concat", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Constant", "Identity")


@dataclass(frozen=True)
class Work:
    """Of all steps of a pass.

    Args:
        flops: of the products, two for a multiply-add.
        elements: results of all other ops that compute something.
    """

    flops: float
    elements: float

    def times(self, flops: float, elements: float) -> Work:
        return Work(self.flops * flops, self.elements * elements)


def count_work(problem: Problem, training: bool) -> Work:
    """Work of the steps of a net; ops outside the cell are not counted.

    A product has two gradients, each as large as itself: a training step is three times the forward flops. Elementwise
    results count once forward and once backward.
    """
    step = step_work(user_net(problem.net), problem.size)
    T = problem.size.T
    return step.times(3 * T, 2 * T) if training else step.times(T, T)


def step_work(net: UserNet, size: Size) -> Work:
    """Work of one forward step."""
    calls = infer(net.step(), step_types(net, size), "float32").values()
    products = [call for call in calls if call.op.type == "MatMul"]
    others = [call for call in calls if call.op.type not in ("MatMul", *MOVES)]
    return Work(sum(map(product_flops, products)), sum(kind.size for call in others for kind in call.output_types))


def product_flops(call: Call) -> float:
    return 2.0 * prod(call.output_types[0].shape) * call.shape(0)[-1]


def step_types(net: UserNet, size: Size) -> dict[str, Type]:
    """Types of a cell's inputs."""
    rows: Shape = (size.N, size.H)
    shapes = {**dict.fromkeys(net.sequences, rows), **{state.previous: rows for state in net.states}}
    shapes.update(net.parameters(size.H))
    if net.encoder:
        shapes.update(dict.fromkeys(("encoder_rows", "weighted_rows"), (size.N, ENCODER_STEPS, size.H)))
    types = {name: Type("float32", shape) for name, shape in shapes.items()}
    lengths = {"seq_lengths": Type("int32", (size.N,)), "t": Type("int32", (1,))}
    return {**types, **(lengths if net.lengths else {})}
