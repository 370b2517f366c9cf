# cython: language_level=3
"""The process's worker threads: a resource that no result depends on."""

import os

from libc.stdint cimport uint32_t

from fastgraph.errors import InputError


cdef extern from "pool.hpp" namespace "fastgraph" nogil:
    Pool *g_pool
    uint32_t g_forks
    void start_pool()
    void copy_long(void *to, const void *source, size_t nbytes, uint32_t threads)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

start_pool()


cdef Pool *pool_get() noexcept nogil:
    return g_pool


cdef void pool_copy(void *to, const void *source, size_t nbytes, uint32_t threads) noexcept nogil:
    copy_long(to, source, nbytes, threads)


cdef uint32_t pool_forks() noexcept nogil:
    """How many forks lie between the first process and this one."""
    return g_forks


cdef int pool_nap() except -1:
    """Let other Python threads go on for 50 microseconds."""
    with nogil:
        usleep(50)
    return 0


def copy(const unsigned char[::1] source not None, unsigned char[::1] to not None,
         uint32_t threads):
    """Copy bytes by up to `threads` of the threads, as inputs and outputs of a GPU are copied.

    Raises
    ------
    InputError
        There are other numbers of bytes on both sides.
    """
    if source.shape[0] != to.shape[0]:
        raise InputError(f"{source.shape[0]} bytes do not fit {to.shape[0]}")
    if source.shape[0]:
        with nogil:
            pool_copy(&to[0], &source[0], <size_t> source.shape[0], threads)


def forks():
    """Return how many forks lie between the first process and this one."""
    return g_forks


def available_cores():
    """Return how many cores this process may run on.

    Returns
    -------
    int
    """
    return len(os.sched_getaffinity(0))


def set_spin(seconds):
    """Set how long an idle worker polls before it sleeps.

    Parameters
    ----------
    seconds : float
        Default 50e-6. Waking a sleeping worker costs several microseconds; a polling one costs a
        core.

    Raises
    ------
    InputError
        `seconds` is negative or above 1; nothing was changed.
    """
    if not 0 <= seconds <= 1:
        raise InputError(f"spin of {seconds} s; 0 to 1 is possible")
    g_pool.set_spin_ns(<long long> (seconds * 1e9))


def state():
    """Return the number of worker threads and how long they poll before they sleep.

    Returns
    -------
    dict
        ``workers`` (int), ``spin`` (float, seconds).
    """
    return {"workers": g_pool.started(), "spin": g_pool.spin_ns() * 1e-9}
