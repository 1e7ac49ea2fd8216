"""LIFCell and ALIFCell: spiking cells with a surrogate gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, finite, register_cell
from rnnops.cells.step import Step
from rnnops.errors import NetError
from rnnops.ops.activation import relu
from rnnops.ops.arithmetic import abs as absolute
from rnnops.ops.comparison import cast
from rnnops.ops.internal import stop_gradient, with_gradient


@register_cell
class LIFCell(SizedCell):
    """Leaky integrate-and-fire neurons, whose output is spikes, 0 or 1.

    It computes::

        current = x @ i2h_w.T + i2h_b + z_prev @ spikes_w.T
        v = decay * v_prev + (1 - decay) * current - threshold * z_prev
        z = where(v > threshold, 1, 0)

    On the backward pass the slope of z by `u = (v - threshold) / threshold` counts as
    `dampening * max(0, 1 - abs(u))`.

    Bellec and others 2018, "Long short-term memory and learning-to-learn in networks of spiking neurons",
    arXiv 1803.09574.

    States:

    - `spikes_t [N, H]`: z, the output
    - `potential_t [N, H]`: v

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `spikes_w [H, H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        decay: of the potential; the default is `exp(-1 / 20)`, a membrane of 20 steps.
        threshold: above which a neuron spikes, and which a spike takes off its potential; more than 0.
        dampening: of the surrogate slope.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: decay, threshold or dampening is no finite number, decay not from 0 to 1, or the threshold not above
            0, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LIFCell(3, 4, decay=0.9)
        >>> z, (z_all, z_last, v_all, v_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> z.shape, v_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "lif"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        decay: float = 0.9512,
        threshold: float = 1.0,
        dampening: float = 0.3,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        given = {"decay": decay, "threshold": threshold, "dampening": dampening}
        self.decay, self.threshold, self.dampening = (finite(one, key, self.name) for key, one in given.items())
        _check_share("decay", self.decay, self.name)
        if self.threshold <= 0:
            raise NetError("a neuron's threshold is positive", blob=self.name, came=threshold)

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/{state}_t" for state in ("spikes", "potential")]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/spikes_w"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        z_prev, v_prev = states
        current = self.current(step, x_t, z_prev, extra)
        v_t = self.decay * v_prev + (1.0 - self.decay) * current - self.threshold * z_prev
        new = self.kept(step, [self.spikes((v_t - self.threshold) / self.threshold), v_t], states)
        return new[0], new

    def current(self, step: Step, x_t: Blob, z_prev: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        """What comes in, from outside and from the neurons' own spikes, [N, H].

        Args:
            step: what is written.
            x_t: [N, D].
            z_prev: [N, H].
            extra: (blob, feature size) that the recurrent product reads beside the spikes.
        """
        (x,) = self.projected(step, x_t, 1)
        current = x + step.product(z_prev, f"{self.name}/spikes", self.hidden_size, self.hidden_size, extra)
        return step.labelled(current, f"{self.name}/current_t", self.memory_optimization)

    def spikes(self, above: Blob) -> Blob:
        """1 where it is positive, else 0, with the surrogate slope.

        Args:
            above: [N, H], how far the potential is above the threshold, over the threshold.
        """
        fired = stop_gradient(cast(above > 0.0, "float"))
        return with_gradient(fired, above, stop_gradient(self.dampening * relu(1.0 - absolute(above))))


@register_cell
class ALIFCell(LIFCell):
    """Leaky integrate-and-fire neurons that adapt: each spike raises their threshold for a while.

    It computes::

        current = x @ i2h_w.T + i2h_b + z_prev @ spikes_w.T
        u = adaptation * u_prev + (1 - adaptation) * z_prev
        v = decay * v_prev + (1 - decay) * current - (threshold + strength * u_prev) * z_prev
        B = threshold + strength * u
        z = where(v > B, 1, 0)

    On the backward pass the slope of z by `w = (v - B) / B` counts as `dampening * max(0, 1 - abs(w))`.

    Bellec and others 2018, "Long short-term memory and learning-to-learn in networks of spiking neurons",
    arXiv 1803.09574.

    States:

    - `spikes_t [N, H]`: z, the output
    - `potential_t [N, H]`: v
    - `adaptation_t [N, H]`: u

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `spikes_w [H, H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        adaptation: of u; the default is `exp(-1 / 200)`, 200 steps.
        strength: how far u raises the threshold.
        decay, threshold, dampening: as `LIFCell`'s.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: adaptation or strength is no finite number, or adaptation not from 0 to 1, and as `LIFCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ALIFCell(3, 4, strength=1.0)
        >>> z, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> z.shape, len(states)
        ((7, 2, 4), 6)
    """

    default_name: ClassVar[str] = "alif"

    def __init__(
        self, input_size: int, hidden_size: int, *, adaptation: float = 0.995, strength: float = 1.8, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.adaptation = finite(adaptation, "adaptation", self.name)
        _check_share("adaptation", self.adaptation, self.name)
        self.strength = finite(strength, "strength", self.name)

    def get_state_names(self) -> list[str]:
        return [*super().get_state_names(), f"{self.name}/adaptation_t"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        z_prev, v_prev, u_prev = states
        u_t = self.adaptation * u_prev + (1.0 - self.adaptation) * z_prev
        before, level = (self.threshold + self.strength * u for u in (u_prev, u_t))
        current = self.current(step, x_t, z_prev, extra)
        v_t = self.decay * v_prev + (1.0 - self.decay) * current - before * z_prev
        new = self.kept(step, [self.spikes((v_t - level) / level), v_t, u_t], states)
        return new[0], new


def _check_share(what: str, value: float, cell: str) -> None:
    """Raise NetError for what is no share of a value that is kept from step to step."""
    if not 0 <= value <= 1:
        raise NetError(f"{what} is no share", blob=cell, wanted="0 to 1", came=value)
