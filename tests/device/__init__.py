"""The conformance suite of recorded graphs, run on every device."""
