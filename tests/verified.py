"""Passes on steps whose results are verified; an error says which pass has made what means nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.schedule.plan_step import PlanPass, StepPass
from rnnops.compiler.schedule.step_plan import Step, StepPlan
from rnnops.compiler.schedule.verify_step import StepError, verify_plan, verify_step


def verified_pass(step_pass: StepPass) -> StepPass:
    """A pass whose steps are verified, where it has changed or moved a node; plans, made of the last, always are."""

    def verified(step: Step) -> Step:
        with named(step_pass):
            made = step_pass(step)
            if list(map(id, made.nodes)) != list(map(id, step.nodes)):
                verify_step(made)
        return made

    return verified


def verified_plan_pass(plan_pass: PlanPass) -> PlanPass:
    """A pass whose plans are verified."""

    def verified(scan: Scan, plan: StepPlan) -> StepPlan:
        with named(plan_pass):
            made = plan_pass(scan, plan)
            verify_plan(scan, made)
        return made

    return verified


@contextmanager
def named(a_pass: Callable[..., object]) -> Iterator[None]:
    """An error says which pass has made what means nothing."""
    try:
        yield
    except StepError as error:
        raise StepError(f"after {a_pass.__name__}: {error}") from error
