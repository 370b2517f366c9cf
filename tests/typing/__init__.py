"""Uses of the public API that mypy checks; they are not run."""
