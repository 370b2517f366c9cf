"""Checks that read the project's sources alone: no compiler, no device, no installed package."""
