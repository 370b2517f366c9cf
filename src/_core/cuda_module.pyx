# cython: language_level=3
"""Code on a GPU: loaded images and the functions in them."""

import warnings

cimport cython
from libc.stdint cimport uint8_t, uintptr_t

from fastgraph._core.counters cimport MODULES, counters_add
from fastgraph._core.driver cimport (
    driver_idle, function_attribute, function_name, function_parameter, function_residency,
    function_set_attribute, kernel_function, module_function, module_global, module_load,
    module_unload)
from fastgraph._core.stream cimport CudaDevice, devices_drain

from fastgraph.errors import FastGraphWarning


# The driver's numbers (CUfunction_attribute).
cdef dict FUNCTION_ATTRIBUTES = {
    "max_threads_per_block": 0,
    "shared_size_bytes": 1,
    "const_size_bytes": 2,
    "local_size_bytes": 3,
    "num_regs": 4,
    "max_dynamic_shared_size_bytes": 8,
}


@cython.no_gc_clear
cdef class Module:
    """An image that is loaded on a device; unloaded with the last reference.

    Parameters
    ----------
    device : CudaDevice
    image : bytes
        PTX text, a cubin or a fatbin.

    Raises
    ------
    GraphError
        The driver does not take the image; the message has its log.
    """

    cdef readonly CudaDevice device
    cdef uintptr_t module
    cdef object __weakref__

    def __cinit__(self, CudaDevice device not None, const uint8_t[::1] image not None):
        self.device = device
        self.module = module_load(device.context, &image[0], image.shape[0])
        counters_add(MODULES, 1)

    def __dealloc__(self):
        cdef uintptr_t context
        if not self.module:
            return
        counters_add(MODULES, -1)
        context = self.device.context
        try:
            # Work that runs the code may be under way, and may want the GIL.
            if not driver_idle(context):
                devices_drain(self.device)
            with nogil:
                module_unload(context, self.module)
        except Exception as error:
            warnings.warn(f"a module was not unloaded: {error}", FastGraphWarning, stacklevel=1)

    def function(self, str symbol not None):
        """Return the handle of a function; DriverError where the image has none of that name."""
        name = symbol.encode()
        return module_function(self.device.context, self.module, name)

    def variable(self, str symbol not None):
        """Return (address, bytes) of a global variable of the image."""
        cdef uintptr_t ptr = 0
        cdef size_t nbytes = 0
        name = symbol.encode()
        module_global(self.device.context, self.module, name, &ptr, &nbytes)
        return ptr, nbytes


def name_of_function(CudaDevice device not None, uintptr_t function):
    """Return the name of a function in its image."""
    return function_name(device.context, function)


def function_of_kernel(CudaDevice device not None, uintptr_t kernel):
    """Return (handle, name) of the function that a library's kernel is on a device."""
    return kernel_function(device.context, kernel)


def parameter_sizes(CudaDevice device not None, uintptr_t function):
    """Return (offset, bytes) of each parameter of a function."""
    cdef size_t offset = 0, nbytes = 0
    sizes = []
    while function_parameter(device.context, function, len(sizes), &offset, &nbytes):
        sizes.append((offset, nbytes))
    return sizes


def attribute_of_function(CudaDevice device not None, uintptr_t function, str name not None):
    """Return an attribute of a function, by the driver's name in lower case."""
    return function_attribute(device.context, function, <int> FUNCTION_ATTRIBUTES[name])


def allow_shared_bytes(CudaDevice device not None, uintptr_t function, int nbytes):
    """Let a function be launched with so many bytes of dynamic shared memory."""
    cdef int kind = FUNCTION_ATTRIBUTES["max_dynamic_shared_size_bytes"]
    if nbytes > function_attribute(device.context, function, kind):
        function_set_attribute(device.context, function, kind, nbytes)


def blocks_at_once(CudaDevice device not None, uintptr_t function, int threads,
                   size_t shared_bytes):
    """Return how many blocks of a function are on the device at once."""
    return function_residency(device.context, function, threads, shared_bytes)
