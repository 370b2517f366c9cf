"""The cuda device: functions, what they are launched with, and the package's own kernels."""
