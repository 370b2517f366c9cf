# cython: language_level=3
"""DLPack, both ways: capsules of buffers, and tensors that another library hands over."""

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from cpython.pycapsule cimport (
    PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName)
from cpython.ref cimport Py_DECREF, Py_INCREF

from fastgraph._core.buffer cimport Buffer

from fastgraph.errors import InputError

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

# What is written; of a reader's version only the major number matters.
cdef enum:
    MAJOR = 1
    MINOR = 0

# (code, bits) of DLPack by the name of the dtype, and back.
cdef dict CODES = {
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "complex64": (5, 64), "complex128": (5, 128), "bool": (6, 8),
    "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
}
cdef dict NAMES = {code: name for name, code in CODES.items()}


cdef class Tensor:
    """A tensor that a capsule held; it is the producer's, and given back with the last reference.

    Parameters
    ----------
    capsule : capsule
        Of ``__dlpack__``; used up.

    Raises
    ------
    InputError
        It is no capsule of DLPack, of an unknown version, or its elements do not lie dense.
    """

    def __cinit__(self, capsule):
        if PyCapsule_IsValid(capsule, "dltensor_versioned"):
            self.versioned = <DLManagedVersioned *> PyCapsule_GetPointer(
                capsule, "dltensor_versioned")
            if self.versioned.major != MAJOR:
                version = f"{self.versioned.major}.{self.versioned.minor}"
                self.versioned = NULL
                raise InputError(f"the tensor comes by DLPack {version}; {MAJOR}.x is known")
            PyCapsule_SetName(capsule, "used_dltensor_versioned")
            self.tensor = &self.versioned.tensor
        elif PyCapsule_IsValid(capsule, "dltensor"):
            self.plain = <DLManaged *> PyCapsule_GetPointer(capsule, "dltensor")
            PyCapsule_SetName(capsule, "used_dltensor")
            self.tensor = &self.plain.tensor
        else:
            raise InputError(f"{capsule!r} is no capsule of DLPack, or was used already")
        if self.tensor.lanes != 1:
            raise InputError(f"the tensor has elements of {self.tensor.lanes} lanes; 1 is known")
        if not self.is_dense():
            raise InputError(
                f"the tensor of shape {self.shape} is not dense: make it contiguous first")

    def __dealloc__(self):
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)
        elif self.plain != NULL and self.plain.deleter != NULL:
            self.plain.deleter(self.plain)

    def is_dense(self):
        """Return whether the elements lie one behind the other in the order of the shape."""
        cdef int64_t expected = 1
        cdef int64_t size
        cdef int i
        if self.tensor.strides == NULL or 0 in self.shape:
            return True
        for i in range(self.tensor.ndim - 1, -1, -1):
            size = self.tensor.shape[i]
            if size != 1 and self.tensor.strides[i] != expected:
                return False
            expected *= size
        return True

    @property
    def ptr(self):
        """int: address of the first element."""
        return <uintptr_t> self.tensor.data + <uintptr_t> self.tensor.byte_offset

    @property
    def shape(self):
        """tuple of int."""
        return tuple([self.tensor.shape[i] for i in range(self.tensor.ndim)])

    @property
    def dtype(self):
        """str: NumPy's or ml_dtypes' name; InputError where there is none."""
        key = (self.tensor.code, self.tensor.bits)
        if key not in NAMES:
            raise InputError(f"DLPack's type {key[0]} of {key[1]} bits is not known here")
        return NAMES[key]

    @property
    def device(self):
        """tuple of int: DLPack's (type, number)."""
        return self.tensor.device_type, self.tensor.device_id

    @property
    def readonly(self):
        """bool: the producer forbids to write."""
        return self.versioned != NULL and (self.versioned.flags & DL_READ_ONLY) != 0


cdef int fill(DLTensor *tensor, Buffer buffer, int device_type, int device_id,
              int64_t *sizes) except -1:
    cdef int ndim = <int> len(buffer.shape)
    cdef int64_t stride = 1
    cdef int i
    tensor.code, tensor.bits = CODES[buffer.dtype.name]
    tensor.lanes = 1
    tensor.data = <void *> (buffer.block.ptr + <uintptr_t> buffer.offset)
    tensor.device_type = device_type
    tensor.device_id = device_id
    tensor.ndim = ndim
    tensor.byte_offset = 0
    tensor.shape = sizes
    tensor.strides = sizes + ndim
    for i in range(ndim - 1, -1, -1):
        tensor.shape[i] = buffer.shape[i]
        tensor.strides[i] = stride
        stride *= max(tensor.shape[i], 1)
    return 0


cdef void drop(void *context) noexcept with gil:
    Py_DECREF(<object> context)


cdef void delete_plain(DLManaged *managed) noexcept nogil:
    # The consumer may call this from a thread of its own, and after the interpreter has ended.
    if Py_IsInitialized():
        drop(managed.context)
    free(managed)


cdef void delete_versioned(DLManagedVersioned *managed) noexcept nogil:
    if Py_IsInitialized():
        drop(managed.context)
    free(managed)


cdef void destroy_capsule(object capsule) noexcept:
    """A capsule that nobody took gives its tensor back."""
    cdef DLManaged *plain
    cdef DLManagedVersioned *versioned
    if PyCapsule_IsValid(capsule, "dltensor"):
        plain = <DLManaged *> PyCapsule_GetPointer(capsule, "dltensor")
        plain.deleter(plain)
    elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
        versioned = <DLManagedVersioned *> PyCapsule_GetPointer(capsule, "dltensor_versioned")
        versioned.deleter(versioned)


cdef object dlpack_capsule(Buffer buffer, int device_type, int device_id, bint versioned):
    """A capsule of a buffer, which it keeps alive; BufferError for a dtype that DLPack lacks."""
    cdef DLManaged *plain
    cdef DLManagedVersioned *managed
    cdef size_t tail = 2 * len(buffer.shape) * sizeof(int64_t)
    if buffer.dtype.name not in CODES or not buffer.dtype.isnative:
        raise BufferError(f"DLPack has no type for {buffer.dtype}")
    # Shape and strides lie behind the structure, and go with it.
    if versioned:
        managed = <DLManagedVersioned *> malloc(sizeof(DLManagedVersioned) + tail)
        if managed == NULL:
            raise MemoryError
        managed.major = MAJOR
        managed.minor = MINOR
        managed.flags = 0
        managed.context = <void *> buffer
        managed.deleter = delete_versioned
        fill(&managed.tensor, buffer, device_type, device_id, <int64_t *> (managed + 1))
        Py_INCREF(buffer)
        return PyCapsule_New(managed, "dltensor_versioned", destroy_capsule)
    plain = <DLManaged *> malloc(sizeof(DLManaged) + tail)
    if plain == NULL:
        raise MemoryError
    plain.context = <void *> buffer
    plain.deleter = delete_plain
    fill(&plain.tensor, buffer, device_type, device_id, <int64_t *> (plain + 1))
    Py_INCREF(buffer)
    return PyCapsule_New(plain, "dltensor", destroy_capsule)
