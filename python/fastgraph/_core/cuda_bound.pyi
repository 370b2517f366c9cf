import logging

from fastgraph._core.executable import Executable
from fastgraph._core.record import Record
from fastgraph._core.stream import CudaDevice

LOGGER: logging.Logger

class Bound(Executable):
    @property
    def device(self) -> CudaDevice: ...
    @property
    def record(self) -> Record: ...
    @property
    def rebuilds(self) -> int: ...
