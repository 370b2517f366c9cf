from fastgraph._core.buffer import Block
from fastgraph._core.reserve import Reservation
from fastgraph._core.stream import CudaDevice

class CudaReservation(Reservation): ...

def reserve(device: CudaDevice, nbytes: int) -> tuple[CudaReservation, Block]: ...
