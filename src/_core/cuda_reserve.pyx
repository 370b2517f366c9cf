# cython: language_level=3
"""Addresses of a GPU that are reserved as a whole, with granules mapped behind their first part."""

import warnings

cimport cython
from libc.stdint cimport uintptr_t

from fastgraph._core.counters cimport BLOCKS, DEVICE_BYTES, counters_add
from fastgraph._core.driver cimport driver_idle
from fastgraph._core.driver_virtual cimport (
    address_free, address_reserve, granule_bytes, granules_map, granules_unmap)
from fastgraph._core.reserve cimport Reservation, whole_granules
from fastgraph._core.stream cimport CudaDevice, devices_drain

from fastgraph._core import cuda_work
from fastgraph._core.buffer import view
from fastgraph._core.device_memory import borrow
from fastgraph._core.stream import Stream
from fastgraph.errors import FastGraphWarning


@cython.final
@cython.no_gc_clear
cdef class CudaReservation(Reservation):
    """Addresses of a GPU; unmapped with the last reference, once our work there is done."""

    cdef CudaDevice device
    cdef list pieces                     # (address, bytes), as they were mapped

    cdef int extend(self, size_t stop) except -1:
        cdef uintptr_t start = self.ptr + self.committed
        cdef uintptr_t context = self.device.context
        cdef size_t nbytes = stop - self.committed
        cdef int ordinal = self.device.ordinal
        with nogil:
            granules_map(context, ordinal, start, nbytes)
        self.pieces.append((start, nbytes))
        counters_add(DEVICE_BYTES, nbytes)
        # Whoever reads rows that nothing was written to finds zeros.
        block = borrow(self.device, start, nbytes, self.device)
        stream = Stream(self.device)
        cuda_work.fill(
            stream, view(block, 0, (nbytes,), "uint8", f"cuda:{ordinal}"), 0, 1)
        stream.synchronize()
        return 0

    def __dealloc__(self):
        cdef uintptr_t start, context
        cdef size_t nbytes
        if not self.ptr:
            return
        context = self.device.context
        counters_add(BLOCKS, -1)
        counters_add(DEVICE_BYTES, -<Py_ssize_t> sum([size for _, size in self.pieces]))
        try:
            if driver_idle(context):
                return
            devices_drain(self.device)
            for start, nbytes in reversed(self.pieces):
                granules_unmap(context, start, nbytes)
            address_free(context, self.ptr, self.nbytes)
        except Exception as error:
            warnings.warn(f"addresses were not freed: {error}", FastGraphWarning, stacklevel=1)


def reserve(CudaDevice device not None, size_t nbytes):
    """Return a `Reservation` of a GPU's addresses, and the `Block` of its `nbytes`.

    The first granule has memory.

    Raises
    ------
    OutOfMemoryError
        There are not so many addresses, or no memory; nothing is held.
    """
    cdef CudaReservation self = CudaReservation.__new__(CudaReservation)
    cdef uintptr_t context = device.context
    self.pieces = []
    self.device = device
    self.granule = granule_bytes(context, device.ordinal)
    self.nbytes = whole_granules(nbytes, self.granule)
    self.ptr = address_reserve(context, self.nbytes)
    counters_add(BLOCKS, 1)
    self.commit(1)
    return self, borrow(device, self.ptr, nbytes, self)
