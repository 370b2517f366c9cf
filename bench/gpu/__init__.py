"""Measurements of the GPU, its driver and the C twins that the package is compared with."""
