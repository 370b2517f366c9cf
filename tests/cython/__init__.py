"""A module from outside that cimports the core."""
