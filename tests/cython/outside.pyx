# cython: language_level=3
"""What a module outside the package can take from the core's declarations."""

from fastgraph._core.buffer cimport Block, Block_create, Buffer
from fastgraph._core.counters cimport BLOCKS, counters_add
from fastgraph._core.order cimport Order


def first_byte(Buffer x not None):
    """Read the first byte of `x` where it lies."""
    return (<unsigned char *> x.block.ptr)[x.offset]


def new_block(Py_ssize_t nbytes):
    """Allocate zeros by the core's own function."""
    cdef Block block = Block_create(nbytes, True)
    return block


def unchanged():
    """Call the counters without changing them."""
    return counters_add(BLOCKS, 0)


def pairs(Order order not None):
    """Count the ordered pairs, without Python calls."""
    cdef Py_ssize_t a, b, found = 0
    for a in range(order.n_nodes):
        for b in range(order.n_nodes):
            found += order.comes_before(a, b)
    return found
