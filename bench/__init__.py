"""rnnops beside PyTorch, JAX, ONNX Runtime and cuDNN: `python -m bench`, on processors or with `--device cuda`.

Every number is measured in the same run on the same data with the same number of threads, and only after outputs and
gradients of all contenders agree. `cases.py` is the table of what is measured and what is wanted of it, `contender.py`
that of who computes it. A run (`run.py`) watches workers (`watch.py`), which measure one case after another
(`worker.py`, `measure.py`, `timing.py`); what comes is judged (`goals.py`, `judge.py`), saved (`record.py`) and shown
(`report.py`). The first minutes on a GPU (`first_minutes`) are a list of processes with time limits, of which the
benchmark is the last one. `gemm.py` is a command of its own.
"""
