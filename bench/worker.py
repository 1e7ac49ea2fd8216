"""`python -m bench.worker`: measures cases in a process of its own, which a kernel may hang or a fault may end.

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

from bench.case import Case
from bench.cases import cases_of
from bench.contender import Settings
from bench.environment import describe_cuda_machine, describe_machine
from bench.floor import Rates, measure_rates
from bench.measure import DeadDeviceError, Measurement, reason_of
from bench.place import NoDeviceError, Place, find_place

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
    settings = Settings(**job["settings"])
    try:
        place = find_place(settings.is_cuda and not settings.tiny)
    except NoDeviceError as error:
        emit("no device", reason=str(error))
        return
    rates = Rates(**job["rates"]) if job["rates"] else rates_of(place, settings)
    machine = describe_cuda_machine(settings.tiny) if settings.is_cuda else describe_machine(settings.threads)
    emit("machine", machine=machine, rates=asdict(rates) if settings.is_cuda else {})
    by_name, chosen = {case.name: case for case in cases_of(settings.device, settings.tiny)}, listen()
    for name in chosen["cases"]:
        measure(by_name[name], chosen["failed"].get(name, {}), place, rates, settings, emit)


def rates_of(place: Place, settings: Settings) -> Rates:
    if not settings.is_cuda:
        return Rates()
    return Rates(missing=("the simulator has no rates",)) if settings.tiny else measure_rates(place)


def measure(case: Case, failed: Mapping[str, str], place: Place, rates: Rates, settings: Settings, emit: Emit) -> None:
    """One case; what goes wrong beside its contenders is its error.

    Args:
        failed: label -> why a contender is not tried.
    """
    current = [""]

    def tell(label: str) -> None:
        current[0] = label
        emit("turn", case=case.name, label=label)

    tell("")
    try:
        it = Measurement(case, settings, place, rates, tell, dict(failed))
        rows, error = it.measured(), "; ".join(it.wrong)
    except DeadDeviceError as dead:
        emit("dead", case=case.name, label=current[0], reason=str(dead))
        raise
    except Exception as wrong:  # the data does not fit, or a mistake of the benchmark
        emit("case", case=case.name, measured=[], error=reason_of(wrong), others=0.0)
        place.clean()
        return
    emit("case", case=case.name, measured=[asdict(one) for one in rows], error=error, others=it.quiet.processors)


if __name__ == "__main__":
    main()
