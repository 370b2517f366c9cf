"""Tests of fastgraph."""
