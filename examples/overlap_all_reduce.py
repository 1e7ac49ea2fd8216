"""Trains on several processes: while one layer's gradients are summed over all of them, the next layer is computed.

Each process takes its share of the batch. Gradients of a layer go off in a non-blocking all-reduce as soon as they are
yielded; when they are back, parameters are updated in place, often before the backward pass is over.

    pip install '.[mpi]'
    mpiexec -n 2 python examples/overlap_all_reduce.py [parameters.npz]
"""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import rnnops as ro

T, N, D, H, LAYERS = 12, 8, 6, 16, 3
RATE, STEPS, DTYPE = 0.1, 10, "float64"
IN_FLIGHT = 2  # layers whose gradients are on their way at a time
Arrays = dict[str, np.ndarray]


class Flight:
    """The gradients of one layer on their way, in one message."""

    def __init__(self, comm: MPI.Comm, values: list[np.ndarray], grads: list[np.ndarray]) -> None:
        self.comm, self.values = comm, values
        self.message = np.concatenate([grad.ravel() for grad in grads])
        self.request = comm.Iallreduce(MPI.IN_PLACE, self.message)

    def land(self) -> None:
        """Wait for the sum, and move the parameters against the mean over all processes."""
        self.request.Wait()
        self.message *= RATE / self.comm.size
        start = 0
        for value in self.values:
            value -= self.message[start : start + value.size].reshape(value.shape)
            start += value.size


def model() -> ro.Net:
    """A stack that says at each step how the mean of its inputs grew since the last one."""
    net = ro.Net("growth")
    x, target = net.inputs("x", "target")
    h_all, *_ = ro.LSTM(net, x, None, None, D, [H] * LAYERS, scope="stack")
    with net.layer("head"):
        error = h_all @ net.parameter("w", (H, 1), ("xavier", H)) - target
        loss = ro.reduce_mean(error * error, keepdims=0)
    net.outputs(loss=loss)
    return net


def batch(step: int) -> Arrays:
    """The whole batch of a step; every process makes the same and takes its share."""
    x = np.random.default_rng(step).normal(size=(T, N, D))
    mean = x.mean(axis=2, keepdims=True)
    return {"x": x.astype(DTYPE), "target": np.diff(mean, axis=0, prepend=0 * mean[:1]).astype(DTYPE)}


def share(arrays: Arrays, comm: MPI.Comm) -> Arrays:
    """The rows of the batch that belong to this process."""
    if N % comm.size:
        raise SystemExit(f"a batch of {N} rows is not to be shared out evenly among {comm.size} processes")
    rows = N // comm.size
    mine = slice(comm.rank * rows, (comm.rank + 1) * rows)
    return {name: np.ascontiguousarray(array[:, mine]) for name, array in arrays.items()}


def train(comm: MPI.Comm) -> Arrays:
    """Parameters after all steps; the same in every process."""
    net = model()
    run, params = ro.compile(net, device="reference"), ro.init_params(net, 0, DTYPE)
    for step in range(STEPS):
        out, pullback = run.vjp(params, share(batch(step), comm), wrt=list(params))
        flights: list[Flight] = []
        for names, values, grads, _ in pullback.layers(np.ones((), DTYPE)):
            if names:
                flights.append(Flight(comm, values, grads))
            if len(flights) > IN_FLIGHT:
                flights.pop(0).land()
        for flight in flights:
            flight.land()
        loss = comm.allreduce(float(out["loss"])) / comm.size
        if comm.rank == 0:
            print(f"step {step}: loss {loss:.6f} on {comm.size} processes")
    return params


def main() -> None:
    params = train(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0 and len(sys.argv) > 1:
        np.savez(sys.argv[1], **{name.replace("/", "."): value for name, value in params.items()})


if __name__ == "__main__":
    main()
