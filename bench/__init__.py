"""Benchmarks of fastgraph against its peers; ``python -m bench`` runs them all."""
