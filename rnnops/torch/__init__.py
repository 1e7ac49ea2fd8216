"""PyTorch cells as compiled recurrences: `scan` and `RNN`, inside the program that they live in.

Files, in the order in which a call meets them:

- `rnn.py`: `RNN` and `scan`, which users call
- `arguments.py`, `errors.py`: nested tensors as lists, batch axes, lengths, packed sequences; errors
- `run_scan.py`: one call, at once or as one op of a graph; autocast and narrow floats
- `prepare.py`: finds a trace and a compiled step for the call, or runs PyTorch's own loop; repeated calls are short
- `watch.py`, `walk.py`, `code_reads.py`: compare all that a trace has read with its values now, and fetch its tensors
- `traced.py`, `effects.py`, `step_modes.py`: make and check a trace; what a step changes; contexts while it is traced
- `translate.py`, `aten/`: a step as a graph of aten ops, and the graph as nets
- `sides.py`, `autograd.py`: runs on the host or on CUDA; autograd's node, forward mode, vmap
"""

from rnnops.torch.errors import (
    SelfCheckError as SelfCheckError,
    StepError as StepError,
    UnseenWarning as UnseenWarning,
    torch as _torch,  # first, so that a missing torch gives a clear error
)

try:
    from rnnops.torch.rnn import RNN as RNN, scan as scan
except (ImportError, AttributeError) as _error:  # a private part of PyTorch, such as the parts behind vmap, is missing
    _came = f"{_torch.__version__}: {_error}"
    raise StepError("rnnops.torch does not know this PyTorch", wanted="PyTorch 2.13", came=_came) from _error
