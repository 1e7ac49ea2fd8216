"""Recurrent cells of public packages, and some in plain PyTorch as users write them.

Tests compare each with its own loop at small sizes; the benchmark times it at those of a model. The table needs no
PyTorch, so that all can be listed without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

SINGLE, DOUBLE = "float32", "float64"
MIXES = "its own code makes float32 tensors"
ROUNDED = "PyTorch's gradient of hardsigmoid has a factor that is rounded to float32"
TORCHRL = "torchrl.modules.tensordict_module.rnn"


@dataclass(frozen=True)
class PackageCell:
    """A cell of a package.

    Args:
        package: what must be installed.
        builder: of `cell_builders.py`, with its first arguments and options.
        why: what keeps it from being compared in float64.
    """

    package: str
    builder: str
    first: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """Those in which it can be compared."""
        names = (SINGLE,) if self.why else (DOUBLE, SINGLE)
        return tuple(getattr(import_module("torch"), name) for name in names)

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None

    def build(self, D: int, H: int) -> Any:
        """A `Built` for about D features and H units. Raises ImportError where its package is not there."""
        builder = getattr(import_module("bench.cell_builders"), self.builder)
        return builder(*self.first, D, H, **self.options)


def cell(package: str, builder: str, *first: Any, why: str = "", **options: Any) -> PackageCell:
    return PackageCell(package, builder, first, options, why)


ONE_STATE = (
    "ATR AntisymmetricRNN BR CFN FastGRNN FastRNN GatedAntisymmetricRNN IndRNN IntersectionRNN LiGRU LightRU MGU MUT1 "
    "MUT2 MUT3 MiRU1 MiRU2 MinimalRNN NBR SGRN STAR TRNN UGRNN tauGRU"
)
TWO_STATES = "JANET LEM MultiplicativeLSTM NAS OriginalLSTM PeepholeLSTM RAN ResLSTM SCRN TGRU UnICORNN WMCLSTM coRNN"
FORWARD_SPIKING = (
    "IAFCell IzhikevichCell LIBoxCell LICell LIFAdExCell LIFAdExRefracCell LIFBoxCell LIFCell LIFExCell LIFRefracCell "
    "LSNNCell"
)
RECURRENT_SPIKING = (
    "CobaLIFCell IzhikevichRecurrentCell LIFAdExRecurrentCell LIFExRecurrentCell LIFRecurrentCell "
    "LIFRefracRecurrentCell LILinearCell LSNNRecurrentCell"
)
JELLY: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("IFNode", "LIFNode", "ParametricLIFNode", "QIFNode", "EIFNode", "KLIFNode")},
    "IzhikevichNode": {"memories": ("v", "w")},
    "CUBALIFNode": {"memories": ("v", "c")},
    "ComplementaryLIFNode": {"memories": ("v", "m")},
}
CELLS = {
    **{
        f"nn.{name}": cell("torch", "named", "torch.nn", name, states)
        for name, states in (("LSTMCell", 2), ("GRUCell", 1), ("RNNCell", 1))
    },
    "nn.LSTM of two layers": cell("torch", "stacked_lstm"),
    "peephole LSTM": cell("torch", "plain", "PeepholeLSTM", 2),
    "minimal gated unit": cell("torch", "plain", "MinimalGatedUnit", 1),
    "layer norm LSTM": cell("torch", "plain", "LayerNormLSTM", 2),
    "ncps CfCCell": cell("ncps", "cfc"),
    "ncps CfCCell, pure": cell("ncps", "cfc", mode="pure"),
    "ncps CfCCell, no gate": cell("ncps", "cfc", mode="no_gate"),
    "ncps WiredCfCCell": cell("ncps", "wired_cfc"),
    "ncps LTCCell, all to all": cell("ncps", "ltc", wiring="FullyConnected"),
    "ncps LSTMCell": cell("ncps", "named", "ncps.torch.lstm", "LSTMCell", 2),
    "ncps LTCCell": cell("ncps", "ltc"),
    "snntorch Leaky": cell("snntorch", "snn", "Leaky", 1, why=MIXES, beta=0.9, learn_beta=True),
    "snntorch Synaptic": cell("snntorch", "snn", "Synaptic", 2, why=MIXES, alpha=0.9, beta=0.8),
    "snntorch RLeaky": cell("snntorch", "snn", "RLeaky", 2, why=MIXES, beta=0.9),
    "snntorch RSynaptic": cell("snntorch", "snn", "RSynaptic", 3, why=MIXES, alpha=0.9, beta=0.8),
    "snntorch Alpha": cell("snntorch", "snn", "Alpha", 3, why=MIXES, alpha=0.9, beta=0.8),
    "snntorch Lapicque": cell("snntorch", "snn", "Lapicque", 1, why=MIXES, beta=0.9),
    "snntorch SLSTM": cell("snntorch", "snn", "SLSTM", 2, why=MIXES),
    "snntorch SConv2dLSTM": cell("snntorch", "spiking_conv_lstm", why=MIXES),
    "snntorch net": cell("snntorch", "spiking_net", False, why=MIXES),
    "snntorch recurrent net": cell("snntorch", "spiking_net", True, why=MIXES),
    **{
        f"norse {name}": cell("norse", "norse_cell", name, why=MIXES, is_recurrent=is_recurrent)
        for names, is_recurrent in ((FORWARD_SPIKING, False), (RECURRENT_SPIKING, True))
        for name in names.split()
    },
    "speechbrain LiGRU": cell("speechbrain", "speechbrain_layer", "LiGRU_Layer", normalization="layernorm"),
    "speechbrain SLiGRU": cell("speechbrain", "speechbrain_layer", "SLiGRU_Layer"),
    **{
        f"speechbrain {name}": cell("speechbrain", "speechbrain_cell", name, states)
        for name, states in (("RNNCell", 1), ("GRUCell", 1), ("LSTMCell", 2))
    },
    "xlstm sLSTM": cell("xlstm", "slstm"),
    "xlstm mLSTM": cell("xlstm", "mlstm"),
    "mambapy Mamba": cell("mambapy", "mamba", why=MIXES),
    "torchrl LSTMCell": cell("torchrl", "named", TORCHRL, "LSTMCell", 2),
    "torchrl GRUCell": cell("torchrl", "named", TORCHRL, "GRUCell", 1),
    "minGRU": cell("minGRU_pytorch", "min_gru"),
    **{
        f"spikingjelly {name}": cell("spikingjelly", "jelly", name, why=MIXES, **options)
        for name, options in JELLY.items()
    },
    **{
        f"torchrecurrent {name}": cell("torchrecurrent", "recurrent", name, states, why=why)
        for names, states, why in ((ONE_STATE, 1, ""), (TWO_STATES, 2, ""), ("SGU DSGU", 1, ROUNDED))
        for name in names.split()
    },
}
