"""The device layer: contexts, functions, and graphs of work on stable addresses."""
