"""From ops of a step to statements over memory."""
