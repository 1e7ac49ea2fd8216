"""What plans say of themselves: text, memory, time."""
