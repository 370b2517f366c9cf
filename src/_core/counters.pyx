# cython: language_level=3
"""Live objects and bytes. Changed under the GIL only, so plain integers do."""

from libc.stdint cimport int64_t

cdef int64_t _live[<int> COUNTED]
cdef tuple _NAMES = (
    "blocks", "block_bytes", "buffers", "programs", "executables", "engines", "streams", "events",
    "modules", "device_bytes", "pinned_bytes", "products")


cdef int counters_add(Counted what, int64_t amount) except -1:
    _live[<int> what] += amount
    return 0


def snapshot():
    """Return the number of live objects of each kind, and of bytes held by memory blocks.

    Returns
    -------
    dict of str to int
        ``blocks``, ``block_bytes``, ``buffers``, ``programs``, ``executables``, ``engines``; of
        GPUs ``streams``, ``events``, ``modules``, ``device_bytes``, ``pinned_bytes``, and
        ``products`` that a library of theirs is to do.

    Examples
    --------
    >>> from fastgraph._core import counters
    >>> list(counters.snapshot())[:6]
    ['blocks', 'block_bytes', 'buffers', 'programs', 'executables', 'engines']
    """
    return {name: _live[index] for index, name in enumerate(_NAMES)}
