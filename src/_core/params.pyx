# cython: language_level=3, nonecheck=True
"""Parameter blocks: never written again once shared, so clones cost no copy until one side sets."""

from libc.string cimport memcpy
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer

from fastgraph._core.buffer cimport Block, Block_create
from fastgraph.errors import GraphError


def block_of(array):
    """Return a new `Block` with a copy of the elements of `array` in C order.

    Parameters
    ----------
    array : numpy.ndarray
        C-contiguous.

    Raises
    ------
    OutOfMemoryError
        The host has too little memory.
    """
    cdef Py_buffer view
    cdef Block block = Block_create(array.nbytes, False)
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS)
    if view.len:
        memcpy(<void *> block.ptr, view.buf, view.len)
    PyBuffer_Release(&view)
    return block


cdef class ParamBlocks:
    """A numbered set of blocks. Setting replaces a block; its bytes stay what they were.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph._core.params import ParamBlocks, block_of
    >>> mine = ParamBlocks(1)
    >>> mine.replace({0: block_of(np.ones(4))})
    >>> theirs = mine.share()
    >>> theirs.replace({0: block_of(np.zeros(4))})
    >>> mine.get(0) is theirs.get(0)
    False
    """

    cdef list _blocks

    def __init__(self, Py_ssize_t count):
        self._blocks = [None] * count

    def __len__(self):
        return len(self._blocks)

    @property
    def nbytes(self):
        """Bytes of all blocks held."""
        return sum([(<Block> block).nbytes for block in self._blocks if block is not None])

    def get(self, Py_ssize_t index):
        """Return block `index`, or None where none was set."""
        return self._blocks[index]

    def replace(self, dict blocks):
        """Put each given block at its number.

        Raises
        ------
        GraphError
            No such number; nothing was replaced.
        """
        for index in blocks:
            if not 0 <= index < len(self._blocks):
                raise GraphError(f"no parameter block has number {index}")
        for index, block in blocks.items():
            self._blocks[index] = block

    def share(self):
        """Return a second set over the same blocks; replacing in one leaves the other alone."""
        other = ParamBlocks(0)
        (<ParamBlocks> other)._blocks = list(self._blocks)
        return other
