"""What the forward pass keeps for the backward pass, and what is computed again."""

from rnnops.checkpoints.policy import Slots as Slots
from rnnops.checkpoints.residuals import Residuals as Residuals, choose_residuals as choose_residuals
from rnnops.checkpoints.slot_schedule import Action as Action, forward_steps as forward_steps, slots as slots
