"""Every operator, compiled, against the reference."""
