"""Building blocks for x86 and ARM processors, called by name from generated code."""
