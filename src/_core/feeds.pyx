# cython: language_level=3
"""Feeds: which output goes into which handle after a run, and at which rows."""

from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t)
from libc.string cimport memmove

from fastgraph._core.buffer cimport Block
from fastgraph._core.reserve cimport Reservation, Reservation_commit

from fastgraph.errors import InputError


cdef class Feed:
    """One output on its way into one handle; made by `feed`, told by `CompiledGraph`'s methods."""

    def __init__(self):
        raise TypeError("feeds are made by fastgraph._core.feeds.feed")


def feed(Py_ssize_t handle, Py_ssize_t output, Block block not None, Py_ssize_t offset,
         Py_ssize_t nbytes, Py_ssize_t rows, Py_ssize_t n_rows, tuple names not None,
         bint in_place=False, bint ring=False, Py_ssize_t scalar=-1, Py_ssize_t input=-1,
         int width=0):
    """Return a `Feed`.

    Parameters
    ----------
    handle, output : int
        Numbers of the input and of the output.
    block, offset
        Where the handle lies.
    nbytes : int
        Bytes of the output.
    rows, n_rows : int
        Rows of the handle and of the output; equal unless there is a position.
    names : tuple of str
        What messages call handle, output and position.
    in_place : bool
        The run computes the output where the handle lies, so nothing is copied.
    ring : bool
        Rows past the last are the first ones.
    scalar, input : int
        What tells the first row: a byte offset in the block of scalars, or an input; else -1.
    width : int
        Bytes of that; less than 0 where it has no sign.
    """
    cdef Feed self = Feed.__new__(Feed)
    self.handle = handle
    self.output = output
    self.in_place = in_place
    self.block = block
    self.offset = offset
    self.nbytes = nbytes
    self.rows = rows
    self.n_rows = n_rows
    self.names = names
    self.ring = ring
    self.scalar = scalar
    self.input = input
    self.width = width
    return self


cdef class Growth:
    """A handle of which only the first rows have memory; made by `growth`."""

    def __init__(self):
        raise TypeError("made by fastgraph._core.feeds.growth")

    def fill(self, Py_ssize_t rows):
        """See to it that so many rows have memory, and count them as given."""
        Growth_prepare(self, rows)
        self.filled = max(self.filled, rows)

    def follow(self, Feed feed):
        """Take note of the feed, or of None."""
        self.feed = feed


def growth(Py_ssize_t handle, Reservation reserved not None, Py_ssize_t row_nbytes,
           Py_ssize_t rows):
    """Return a `Growth` without any rows."""
    cdef Growth self = Growth.__new__(Growth)
    self.handle = handle
    self.reserved = reserved
    self.row_nbytes = row_nbytes
    self.rows = rows
    return self


cdef Py_ssize_t last_fed(Growth self) noexcept:
    cdef Py_ssize_t last
    if self.feed is None:
        return 0
    last = self.feed.first + self.feed.n_rows
    return self.rows if last > self.rows else last


cdef int Growth_prepare(Growth self, Py_ssize_t read) except -1:
    cdef Py_ssize_t needed = max(read, last_fed(self))
    return Reservation_commit(self.reserved, needed * self.row_nbytes)


cdef int note_growth(list growing) except -1:
    cdef Growth growth
    for growth in growing:
        growth.filled = max(growth.filled, last_fed(growth))
    return 0


cdef uintptr_t computed_at(list feeds, Py_ssize_t output) except? 0:
    cdef Feed feed
    for feed in feeds:
        if feed.output == output and feed.in_place:
            return feed.block.ptr + <uintptr_t> feed.offset
    return 0


cdef int Feed_locate(Feed self, const void *position) except -1:
    cdef uint64_t found = 0
    cdef int64_t signed = 0
    cdef bint negative
    if self.width == 1:
        signed = (<const int8_t *> position)[0]
    elif self.width == 2:
        signed = (<const int16_t *> position)[0]
    elif self.width == 4:
        signed = (<const int32_t *> position)[0]
    elif self.width == 8:
        signed = (<const int64_t *> position)[0]
    elif self.width == -1:
        found = (<const uint8_t *> position)[0]
    elif self.width == -2:
        found = (<const uint16_t *> position)[0]
    elif self.width == -4:
        found = (<const uint32_t *> position)[0]
    else:
        found = (<const uint64_t *> position)[0]
    negative = signed < 0
    if self.width > 0 and not negative:
        found = <uint64_t> signed
    if self.ring and not negative:
        found %= <uint64_t> self.rows
    elif negative or found > <uint64_t> (self.rows - self.n_rows):
        raise_outside(self, <object> signed if negative else <object> found)
    self.first = <Py_ssize_t> found
    return 0


cdef int raise_outside(Feed self, position) except -1:
    handle, output, at = self.names
    raise InputError(
        f"feed of handle {handle!r}: {at!r} is {position}; output {output!r} of "
        f"{rows_of(self.n_rows)} goes into {rows_of(self.rows)} at row 0 "
        + ("or later, and round" if self.ring else f"to {self.rows - self.n_rows}"))


cdef str rows_of(Py_ssize_t count):
    return "1 row" if count == 1 else f"{count} rows"


cdef void Feed_copy(Feed self, const void *source) noexcept nogil:
    cdef char *to = <char *> (self.block.ptr + <uintptr_t> self.offset)
    cdef Py_ssize_t row, until_end
    if self.rows == self.n_rows and self.first == 0:
        # The caller may have had the output put into the handle's own bytes.
        memmove(to, source, self.nbytes)
        return
    row = self.nbytes // self.n_rows
    until_end = min(self.n_rows, self.rows - self.first)
    memmove(to + self.first * row, source, until_end * row)
    memmove(to, <const char *> source + until_end * row, (self.n_rows - until_end) * row)
