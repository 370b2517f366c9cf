"""The benchmarks: what they hold us to, and that they notice."""
