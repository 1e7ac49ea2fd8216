"""Spiking cells with a surrogate gradient (Bellec and others 2018, LSNN, arXiv 1803.09574).

Leaky integrate and fire: `v = a v' + (1 - a) (W x + R z' + b) - B' z'`, `z = 1` where `v > B`, else 0. Adaptive:
`B = threshold + strength u` with `u = r u' + (1 - r) z'`; else B is the threshold. The slope of z by `(v - B) / B`
counts as `dampening max(0, 1 - |(v - B) / B|)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import relu
from rnnops.ops.arithmetic import abs as absolute
from rnnops.ops.base import number
from rnnops.ops.comparison import cast
from rnnops.ops.gradients import stop_gradient, with_gradient


@register_cell
class LIFCell(SizedCell):
    """Neurons whose output and first state are spikes, 0 or 1; the second is their potential.

    Args:
        decay: a, of the potential, `exp(-1 / 20)` for a membrane of 20 steps.
        threshold: at which a neuron spikes, which is also taken off.
        dampening: of the surrogate slope.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `spikes_w [H, H]`.
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
        self.decay, self.threshold, self.dampening = (
            number(one, f"{key} of '{self.name}'") for key, one in given.items()
        )
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
        """What comes in, from outside and from the neurons' own spikes."""
        (x,) = self.projected(step, x_t, 1)
        current = x + step.product(z_prev, f"{self.name}/spikes", self.hidden_size, self.hidden_size, extra)
        return step.labelled(current, f"{self.name}/current_t", self.memory_optimization)

    def spikes(self, above: Blob) -> Blob:
        """1 where it is positive, else 0, with the surrogate slope."""
        fired = stop_gradient(cast(above > 0.0, "float"))
        return with_gradient(fired, above, stop_gradient(self.dampening * relu(1.0 - absolute(above))))


@register_cell
class ALIFCell(LIFCell):
    """Neurons that adapt: each spike raises their threshold for a while; the third state is how far, u.

    Args:
        adaptation: r, of u, `exp(-1 / 200)` for 200 steps.
        strength: of the adaptation.
    """

    default_name: ClassVar[str] = "alif"

    def __init__(
        self, input_size: int, hidden_size: int, *, adaptation: float = 0.995, strength: float = 1.8, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.adaptation = number(adaptation, f"adaptation of '{self.name}'")
        self.strength = number(strength, f"strength of '{self.name}'")

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
