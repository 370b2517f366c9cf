"""Tests of the compiled core through its Python names."""
