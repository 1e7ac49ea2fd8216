"""Residuals: values that the forward pass keeps for the backward pass, and values that are recomputed."""

from rnnops.checkpoints.policy import Residuals as Residuals, Slots as Slots, choose_residuals as choose_residuals
from rnnops.checkpoints.slot_schedule import Action as Action, forward_steps as forward_steps, slots as slots
