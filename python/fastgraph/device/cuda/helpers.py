"""The package's own kernels on one device."""

from __future__ import annotations

from functools import cached_property

from fastgraph._core.record import Launch
from fastgraph.device.cuda.function import CudaFunction, compile_function
from fastgraph.device.cuda.kernels import KERNELS, source_text
from fastgraph.device.cuda.loader import DeviceLoader

__all__ = ["Helpers"]

THREADS = 256
# Enough blocks to fill any device; the kernel strides.
MAX_BLOCKS = 4096


class Helpers:
    """Each compiled when first needed."""

    def __init__(self, loader: DeviceLoader) -> None:
        self._loader = loader

    def _compiled(self, name: str) -> CudaFunction:
        kernel = KERNELS[name]
        return compile_function(self._loader, source_text(kernel.file), name, kernel.signature)

    @cached_property
    def set_condition(self) -> CudaFunction:
        """CudaFunction: hands a uint32 to a conditional node."""
        return self._compiled("fg_set_condition")

    @cached_property
    def fill8(self) -> CudaFunction:
        """CudaFunction: sets elements of 8 bytes."""
        return self._compiled("fg_fill8")

    def fill8_launch(self, pattern: int, nbytes: int) -> Launch:
        """Return the launch that fills the one buffer of its operands."""
        count = nbytes // 8
        blocks = min(-(-count // THREADS), MAX_BLOCKS)
        arguments = (
            ("pointer", 0),
            ("value", pattern.to_bytes(8, "little")),
            ("value", count.to_bytes(8, "little")),
        )
        return Launch(self.fill8, (blocks, 1, 1), (THREADS, 1, 1), arguments)
