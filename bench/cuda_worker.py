"""`python -m bench.cuda_worker`: measures cases in a process of its own, which a kernel may hang or a fault may end.

Two lines of JSON come on standard input: settings, and once this process has told what machine it is on, cases. What
happens goes to standard output, an object a line, as it happens; whatever libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from bench.cuda_cases import CudaCase, all_cases
from bench.cuda_floor import Rates, measure_rates
from bench.cuda_machine import describe_cuda_machine
from bench.cuda_measure import DeadDeviceError, measure_case, reason_of
from bench.cuda_place import NoDeviceError, Place, find_place
from bench.cuda_timing import CudaSettings

Job = Mapping[str, Any]
Emit = Callable[..., None]


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as events:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def emit(event: str, **words: Any) -> None:
            print(json.dumps({"event": event, **words}), file=events, flush=True)

        try:
            work(lambda: json.loads(sys.stdin.readline()), emit)
        except DeadDeviceError:
            os._exit(1)  # all that a failed device is asked for on the way out may hang


def work(listen: Callable[[], Job], emit: Emit) -> None:
    """All cases of a job."""
    job = listen()
    settings = CudaSettings(**job["settings"])
    try:
        place = find_place(settings.tiny)
    except NoDeviceError as error:
        emit("no device", reason=str(error))
        return
    rates = rates_of(job, place, settings.tiny)
    emit("machine", machine=describe_cuda_machine(settings.tiny), rates=asdict(rates))
    by_name, chosen = {case.name: case for case in all_cases(settings.tiny)}, listen()
    for name in chosen["cases"]:
        measure(by_name[name], chosen["failed"].get(name, {}), place, rates, settings, emit)


def rates_of(job: Job, place: Place, tiny: bool) -> Rates:
    """Known from a worker before, or measured."""
    if job["rates"]:
        return Rates(**job["rates"])
    return Rates(missing=("the simulator has no rates",)) if tiny else measure_rates(place)


def measure(
    case: CudaCase, failed: Mapping[str, str], place: Place, rates: Rates, settings: CudaSettings, emit: Emit
) -> None:
    """One case; what goes wrong beside its contenders is its error."""
    current = [""]

    def tell(label: str) -> None:
        current[0] = label
        emit("turn", case=case.name, label=label)

    tell("")
    try:
        measured, differences = measure_case(case, place, rates, settings, failed, tell)
    except DeadDeviceError as error:
        emit("dead", case=case.name, label=current[0], reason=str(error))
        raise
    except Exception as error:  # the data does not fit, or a mistake of the benchmark
        emit("case", case=case.name, measured=[], error=reason_of(error))
        place.clean()
        return
    emit("case", case=case.name, measured=[asdict(one) for one in measured], error="; ".join(differences))


if __name__ == "__main__":
    main()
