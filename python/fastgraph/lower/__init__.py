"""Lowering: from operators to kernel calls, from calls to a recorded graph."""
