"""The LSTM with one thing changed: other names, another gate order, other ops. None may cost more than it has to."""

from __future__ import annotations

import rnnops as ro


def renamed() -> ro.Net:
    """Every blob has another name."""
    cell = ro.Net("step")
    seen, memory, carry, kernel, recurrent, offset = cell.inputs(
        "seen", "memory", "carry", "kernel", "recurrent", "offset"
    )
    four = (seen @ kernel + memory @ recurrent + offset).named("four")
    enter, leave, show, value = ro.split(four, 4, axis=-1)
    kept = ro.sigmoid(leave) * carry + ro.sigmoid(enter) * ro.tanh(value)
    cell.outputs(remembered=ro.sigmoid(show) * ro.tanh(kept), carried=kept)
    return cell


def permuted() -> ro.Net:
    """Candidate, output, input, forget."""
    cell = ro.Net("permuted_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    g, o, i, f = ro.split(x_t @ w_x + h_prev @ w_h + b, 4, axis=-1)
    c_t = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c_t), c_t=c_t)
    return cell


def softsign() -> ro.Net:
    """Softsign for tanh."""
    cell = ro.Net("softsign_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    i, f, o, g = ro.split(x_t @ w_x + h_prev @ w_h + b, 4, axis=-1)
    c_t = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.softsign(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.softsign(c_t), c_t=c_t)
    return cell


def one_more_op() -> ro.Net:
    """The cell state is squashed once more on its way to the next step."""
    cell = ro.Net("one_more_op_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    i, f, o, g = ro.split(x_t @ w_x + h_prev @ w_h + b, 4, axis=-1)
    c_t = ro.softsign(ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g))
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c_t), c_t=c_t)
    return cell


def second_sequence() -> ro.Net:
    """The gates read a second sequence; a third product, so that half as many flops again are allowed for."""
    cell = ro.Net("second_sequence_step")
    x_t, z_t, h_prev, c_prev, w_x, w_z, w_h, b = cell.inputs("x_t", "z_t", "h_prev", "c_prev", "w_x", "w_z", "w_h", "b")
    i, f, o, g = ro.split(x_t @ w_x + z_t @ w_z + h_prev @ w_h + b, 4, axis=-1)
    c_t = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c_t), c_t=c_t)
    return cell
