"""The runtime: sessions, compiled graphs, parameters."""
