"""A loader without a driver: images are remembered, functions are what a test says they are."""

from __future__ import annotations

import fastgraph as fg

ATTRIBUTES = {
    "shared_size_bytes": 1024,
    "max_threads_per_block": 512,
    "max_dynamic_shared_size_bytes": 48 << 10,
}


class Owner:
    """What keeps an image loaded."""

    def __init__(self, image: bytes, loader: FakeLoader) -> None:
        self.image = image
        self.loader = loader
        loader.live += 1

    def __del__(self) -> None:
        self.loader.live -= 1


class FakeLoader:
    """`sizes` maps the symbols that every image has to the sizes of their parameters."""

    def __init__(self, sizes=None, device="cuda:0", arch="sm_90", kernels=None):
        self.sizes = {} if sizes is None else dict(sizes)
        self.device = device
        self.arch = arch
        self.kernels = {} if kernels is None else kernels
        self.images: list[bytes] = []
        self.live = 0

    def load(self, image: bytes) -> Owner:
        if b".bad" in image:
            raise fg.GraphError("ptxas application ptx input, line 3; error: .bad is unknown")
        self.images.append(image)
        return Owner(image, self)

    def function(self, owner: Owner, symbol: str) -> int:
        if symbol not in self.sizes:
            raise fg.DriverError("no such function", code=500, name="CUDA_ERROR_NOT_FOUND")
        return 1000 + list(self.sizes).index(symbol)

    def kernel_function(self, kernel: int) -> tuple[int, str]:
        symbol = self.kernels[kernel]
        return self.function(None, symbol), symbol

    def parameter_sizes(self, handle: int) -> list[tuple[int, int]]:
        offset, layout = 0, []
        for size in self.sizes[list(self.sizes)[handle - 1000]]:
            offset = -(-offset // min(size, 8)) * min(size, 8)
            layout.append((offset, size))
            offset += size
        return layout

    def attribute(self, handle: int, name: str) -> int:
        return ATTRIBUTES[name]
