# cython: language_level=3, nonecheck=True
"""Memory: blocks that own bytes, and buffers, typed dense views of a block."""

import numpy as np

from libc.stdint cimport uintptr_t
from libc.stdlib cimport free
from libc.string cimport memset
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE

from fastgraph._core.counters cimport BLOCK_BYTES, BLOCKS, BUFFERS, counters_add
from fastgraph.errors import InputError, OutOfMemoryError


cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **memptr, size_t alignment, size_t size)

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void *addr, size_t length)
    int madvise(void *addr, size_t length, int advice)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE
    void *MAP_FAILED

# From here on a block is mapped on its own and asks for huge pages: streaming packed weights
# through 4 KiB pages costs a TLB miss a page.
cdef size_t MAPPED_BYTES = 1 << 20
cdef size_t HUGE_PAGE = 1 << 21


cdef class Memory:
    """Who owns bytes that a device works on beside the host; `Block.memory` of those.

    Plain host memory has None there. ``host_visible`` says that the host can read them at their
    address.
    """

    def __init__(self):
        raise TypeError("memory of a device is made by its DeviceContext")

    cdef int wait(self) except -1:
        """Wait until no work of ours can touch the bytes."""
        raise NotImplementedError

    cdef int read(self, uintptr_t src, void *dst, size_t nbytes) except -1:
        """Wait, and copy bytes to the host."""
        raise NotImplementedError

    cdef int write(self, uintptr_t dst, const void *src, size_t nbytes) except -1:
        """Wait, and copy bytes from the host."""
        raise NotImplementedError

    cdef tuple dlpack_device(self):
        """DLPack's (type, number) of the device."""
        raise NotImplementedError

    cdef object dlpack(self, Buffer buffer, dict options):
        """DLPack's capsule of a buffer, ordered after the work that is under way."""
        raise NotImplementedError

    cdef dict cuda_array(self, Buffer buffer):
        """The ``__cuda_array_interface__`` of a buffer; None where there is none."""
        raise NotImplementedError


cdef class Block:
    """Bytes with one owner, aligned to 64; freed with the last reference.

    Made by `allocate`; ``ptr`` (address) and ``nbytes`` never change.
    """

    def __cinit__(self):
        self.ptr = 0
        self.nbytes = 0
        self.mapped = False
        self.owned = False
        self.owner = None
        self.memory = None

    def __init__(self):
        raise TypeError("blocks are made by fastgraph._core.buffer.allocate")

    def __dealloc__(self):
        if not self.owned:
            return
        if self.mapped:
            munmap(<void *> self.ptr, round_up(self.nbytes, HUGE_PAGE))
        else:
            free(<void *> self.ptr)
        counters_add(BLOCKS, -1)
        counters_add(BLOCK_BYTES, -self.nbytes)


cdef size_t round_up(size_t nbytes, size_t unit) noexcept nogil:
    return (nbytes + unit - 1) // unit * unit


cdef Block Block_create(Py_ssize_t nbytes, bint zero):
    """Allocate `nbytes` bytes; raises OutOfMemoryError and holds nothing when there are none."""
    cdef Block self = Block.__new__(Block)
    cdef void *memory = NULL
    cdef size_t size = max(nbytes, 1)
    if size >= MAPPED_BYTES:
        size = round_up(size, HUGE_PAGE)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if memory == MAP_FAILED:
            memory = NULL
        else:
            madvise(memory, size, MADV_HUGEPAGE)
            self.mapped = True
    elif posix_memalign(&memory, 64, round_up(size, 64)) != 0:
        memory = NULL
    elif zero:
        memset(memory, 0, size)
    if memory == NULL:
        raise OutOfMemoryError(f"the host has no {nbytes} bytes left")
    self.ptr = <uintptr_t> memory
    self.nbytes = nbytes
    self.owned = True
    counters_add(BLOCKS, 1)
    counters_add(BLOCK_BYTES, nbytes)
    return self


cdef Block Block_borrow(uintptr_t ptr, Py_ssize_t nbytes, object owner):
    """A block over memory that `owner` holds; it keeps `owner` alive and frees nothing."""
    cdef Block self = Block.__new__(Block)
    self.ptr = ptr
    self.nbytes = nbytes
    self.owner = owner
    self.memory = <Memory> owner if isinstance(owner, Memory) else None
    return self


def allocate(Py_ssize_t nbytes, zero=True):
    """Return a `Block` of `nbytes` bytes, zero-filled unless told otherwise.

    Raises
    ------
    OutOfMemoryError
        The host has too little memory; nothing is held.
    """
    if nbytes < 0:
        raise InputError(f"a block of {nbytes} bytes cannot be")
    return Block_create(nbytes, zero)


def borrow(uintptr_t ptr, Py_ssize_t nbytes, owner, Memory memory=None):
    """Return a `Block` over `nbytes` bytes at `ptr` that `owner` holds and keeps alive.

    `memory` says what kind of memory it is; by default the owner, if it is a `Memory`.
    """
    cdef Block block
    if owner is None:
        raise InputError("borrowed memory needs an owner to keep it alive")
    block = Block_borrow(ptr, nbytes, owner)
    if memory is not None:
        block.memory = memory
    return block


cdef class Bytes:
    """Bytes of a block, for NumPy, writable or not; keeps the block alive."""

    def __getbuffer__(self, Py_buffer *info, int flags):
        if flags & PyBUF_WRITABLE and not self.writable:
            raise BufferError("these bytes belong to a graph and are read-only")
        info.buf = <void *> self.at
        info.obj = self
        info.len = self.nbytes
        info.itemsize = 1
        info.readonly = not self.writable
        info.ndim = 1
        info.format = NULL
        info.shape = &self.nbytes
        info.strides = NULL
        info.suboffsets = NULL
        info.internal = NULL


cdef Bytes Bytes_create(Block block, uintptr_t at, Py_ssize_t nbytes, bint readonly):
    cdef Bytes self = Bytes.__new__(Bytes)
    self.block = block
    self.at = at
    self.nbytes = nbytes
    self.writable = not readonly
    return self


cdef class Buffer(Described):
    """A dense, typed array on a device. Made by a `DeviceContext`.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    nbytes : int
        Bytes.
    ptr : int
        Address of the first element on its device.
    device : str
        ``"cpu"``, ``"cuda:0"`` …

    Notes
    -----
    On cpu `numpy.asarray` gives a writable view that keeps the memory alive. A slice shares the
    memory of the buffer that it was taken from.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> x = fg.DeviceContext("cpu").to_device(np.arange(6, dtype="f4"))
    >>> x[2:4].numpy()
    array([2., 3.], dtype=float32)
    """

    def __cinit__(self):
        self.block = None
        self.nbytes = 0
        self.counted = False

    def __init__(self):
        raise TypeError("buffers are made by a DeviceContext: create_buffer, to_device")

    def __dealloc__(self):
        # A collected cycle has cleared `block` by now, so a flag tells what was counted.
        if self.counted:
            counters_add(BUFFERS, -1)

    @property
    def ptr(self):
        return self.block.ptr + <uintptr_t> self.offset

    @property
    def host_visible(self):
        """bool: the host can read and write the elements where they lie."""
        cdef Memory memory = self.block.memory
        return memory is None or memory.host_visible

    def __len__(self):
        if not self.shape:
            raise TypeError("a buffer without axes has no length")
        return self.shape[0]

    def __getitem__(self, key):
        """Return the rows ``[start:stop]`` as a buffer over the same memory."""
        start, shape = rows(self.shape, self.nbytes, key)
        return view(self.block, self.offset + start, shape, self.dtype, self.device)

    def copy_from(self, array):
        """Copy the elements of `array` in.

        Parameters
        ----------
        array : array_like
            Of this buffer's shape and dtype; any strides.

        Raises
        ------
        InputError
            Shape or dtype differ, or it is a masked array; nothing was copied.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> x = fg.DeviceContext("cpu").create_buffer((2, 3), "float32")
        >>> x.copy_from(np.arange(6, dtype="f4").reshape(3, 2).T)
        >>> x.numpy()
        array([[0., 2., 4.],
               [1., 3., 5.]], dtype=float32)
        """
        cdef Memory memory = self.block.memory
        cdef uintptr_t at
        source = as_source(array)
        if source.shape != self.shape or source.dtype != self.dtype:
            raise InputError(
                f"the buffer holds {self.dtype}{list(self.shape)}, "
                f"not {source.dtype}{list(source.shape)}; nothing is cast or broadcast")
        if memory is None or memory.host_visible:
            if memory is not None:
                memory.wait()
            np.asarray(self)[...] = source
        elif self.nbytes:
            source = np.ascontiguousarray(source)
            at = source.__array_interface__["data"][0]
            memory.write(self.ptr, <const void *> at, self.nbytes)

    def numpy(self):
        """Wait for the device and return the elements as an array of the caller's own.

        Returns
        -------
        numpy.ndarray
            Of this buffer's shape and dtype; later changes of the buffer do not show in it.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> x = fg.DeviceContext("cpu").to_device(np.zeros(2, "f4"))
        >>> before = x.numpy()
        >>> x.copy_from(np.ones(2, "f4"))
        >>> before, x.numpy()
        (array([0., 0.], dtype=float32), array([1., 1.], dtype=float32))
        """
        cdef Memory memory = self.block.memory
        cdef uintptr_t at
        if memory is None or memory.host_visible:
            if memory is not None:
                memory.wait()
            return np.array(np.asarray(self))
        result = np.empty(self.shape, self.dtype)
        if self.nbytes:
            at = result.__array_interface__["data"][0]
            memory.read(self.ptr, <void *> at, self.nbytes)
        return result

    def __array__(self, dtype=None, copy=None):
        # Reached only for dtypes without a format and for what the host cannot read: NumPy takes
        # the buffer protocol first.
        if not self.host_visible:
            raise TypeError(f"{self!r} is no host memory; use .numpy() for a copy of it")
        raw = Bytes_create(self.block, self.block.ptr + <uintptr_t> self.offset, self.nbytes, False)
        array = np.frombuffer(raw, dtype=np.uint8) if self.nbytes else np.empty(0, np.uint8)
        array = array.view(self.dtype).reshape(self.shape)
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} as {np.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options):
        cdef Memory memory = self.block.memory
        if memory is not None:
            return memory.dlpack(self, options)
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self):
        cdef Memory memory = self.block.memory
        return (1, 0) if memory is None else memory.dlpack_device()

    @property
    def __cuda_array_interface__(self):
        cdef Memory memory = self.block.memory
        interface = None if memory is None else memory.cuda_array(self)
        if interface is None:
            raise AttributeError(f"{self!r} is not memory of a GPU")
        return interface

    def __getbuffer__(self, Py_buffer *info, int flags):
        if not self.host_visible:
            raise BufferError(f"{self!r} is no host memory; use .numpy() for a copy of it")
        if self.format is None:
            raise BufferError(f"{self.dtype} has no format in the buffer protocol; use DLPack")
        info.buf = <void *> (self.block.ptr + <uintptr_t> self.offset)
        info.obj = self
        info.len = self.nbytes
        info.itemsize = self.dtype.itemsize
        info.readonly = 0
        info.ndim = <int> len(self.shape)
        info.format = NULL
        if flags & PyBUF_FORMAT:
            info.format = self.format
        info.shape = self.c_shape
        info.strides = self.c_strides
        info.suboffsets = NULL
        info.internal = NULL

    def __releasebuffer__(self, Py_buffer *info):
        pass

    def __repr__(self):
        return f"<Buffer {self.dtype}{list(self.shape)} on {self.device} at {self.ptr:#x}>"


def as_source(array):
    """Return `array` as an ndarray to copy elements from; InputError where there is no such thing.

    A masked array is refused: there is no place for its mask.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array cannot be copied from: its mask would be lost")
    try:
        return np.asarray(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"a {type(array).__name__} is no array: {error}") from error


def rows(tuple shape, Py_ssize_t nbytes, key):
    """Return the first byte and the shape of rows ``key`` of a dense array; InputError for others.
    """
    if not shape:
        raise InputError("a buffer without axes cannot be sliced")
    if not isinstance(key, slice):
        raise InputError(f"a buffer takes a slice buf[start:stop], not {key!r}")
    start, stop, step = key.indices(shape[0])
    if step != 1:
        raise InputError(f"a buffer is dense: step {step} is not 1")
    row = nbytes // shape[0] if shape[0] else 0
    return start * row, (max(start, stop) - start, *shape[1:])


def view(Block block not None, Py_ssize_t offset, shape, dtype, str device):
    """Return a `Buffer` of `shape` and `dtype` from byte `offset` of `block` on.

    Raises
    ------
    InputError
        The elements do not lie within the block.
    """
    cdef Buffer self = Buffer.__new__(Buffer)
    kind = np.dtype(dtype)
    sizes = tuple([int(size) for size in shape])
    for size in sizes:
        if size < 0:
            raise InputError(f"shape {sizes} has a negative size")
    total = kind.itemsize
    for size in sizes:
        total *= size
    if len(sizes) > MAX_NDIM:
        raise InputError(f"shape {sizes} has {len(sizes)} axes; {MAX_NDIM} are possible")
    if offset < 0 or offset + total > block.nbytes:
        raise InputError(
            f"{kind}{list(sizes)} from byte {offset} on needs {total} bytes; "
            f"the block has {block.nbytes}")
    self.offset = offset
    self.shape = sizes
    self.dtype = kind
    self.nbytes = total
    self.device = device
    stride = total
    for i, size in enumerate(sizes):
        stride = stride // size if size else 0
        self.c_shape[i] = size
        self.c_strides[i] = stride
    try:
        self.format = memoryview(np.empty(0, kind)).format.encode()
    except ValueError:
        self.format = None
    self.block = block
    self.counted = True
    counters_add(BUFFERS, 1)
    return self
