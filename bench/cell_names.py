"""Names of the cells of `bench.package_cells`, for those who list them without PyTorch."""

ONE_STATE = [
    "ATR", "AntisymmetricRNN", "BR", "CFN", "FastGRNN", "FastRNN", "GatedAntisymmetricRNN", "IndRNN",
    "IntersectionRNN", "LiGRU", "LightRU", "MGU", "MUT1", "MUT2", "MUT3", "MiRU1", "MiRU2", "MinimalRNN", "NBR", "SGRN",
    "STAR", "TRNN", "UGRNN", "tauGRU",
]  # fmt: skip
TWO_STATES = [
    "JANET", "LEM", "MultiplicativeLSTM", "NAS", "OriginalLSTM", "PeepholeLSTM", "RAN", "ResLSTM", "SCRN", "TGRU",
    "UnICORNN", "WMCLSTM", "coRNN",
]  # fmt: skip
ROUNDED_STATES = ["SGU", "DSGU"]  # of one state, compared in float32 alone
CELL_NAMES = (
    *("nn.LSTMCell", "nn.GRUCell", "nn.RNNCell", "nn.LSTM of two layers"),
    *("peephole LSTM", "minimal gated unit", "layer norm LSTM"),
    *("ncps CfCCell", "ncps WiredCfCCell", "ncps LTCCell"),
    *("snntorch Leaky", "snntorch Synaptic", "snntorch RLeaky", "snntorch net", "snntorch recurrent net"),
    *("norse LIFCell", "norse LICell", "norse LIFRecurrentCell"),
    *("speechbrain LiGRU", "speechbrain SLiGRU", "xlstm sLSTM", "torchrl LSTMCell", "torchrl GRUCell", "minGRU"),
    *("spikingjelly LIFNode", "spikingjelly ParametricLIFNode"),
    *(f"torchrecurrent {name}" for name in (*ONE_STATE, *TWO_STATES, *ROUNDED_STATES)),
)
