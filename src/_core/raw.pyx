# cython: language_level=3, nonecheck=True
"""Raw outputs: where a run left its results, good until the next one."""

from libc.stdint cimport uint64_t, uintptr_t

from fastgraph._core.dispatch cimport Engine

from fastgraph._core.checks import describe
from fastgraph.errors import StaleOutputError


def raw_outputs(Engine engine not None, uint64_t generation):
    """Return a `RawOutput` for every output of that run of `engine`, which may be over already."""
    cdef RawOutput raw
    cdef list found = []
    for index in range(len(engine.output_specs)):
        raw = RawOutput.__new__(RawOutput)
        raw.engine = engine
        raw.index = index
        raw.generation = generation
        found.append(raw)
    return tuple(found)


cdef class RawOutput:
    """One output of `CompiledGraph.run_raw`, where it lies; stale after the model's next run.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : numpy.dtype
    index : int
        Which of the graph's outputs it is.
    size : int
        Number of elements.
    ptr : int
        Address of the first element; raises StaleOutputError as `array` does.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("twice")
    >>> x = g.input("x", (3,))
    >>> _ = g.output(x + x, "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> (y,) = model.run_raw({"x": np.array([1, 2, 3], "f4")})
    >>> y
    <RawOutput 'y' float32[3]>
    >>> y.array()
    array([2., 4., 6.], dtype=float32)
    >>> _ = model.run_slots([np.zeros(3, "f4")])
    >>> y
    <RawOutput 'y' float32[3], stale>
    """

    cdef Engine engine
    cdef readonly Py_ssize_t index
    cdef uint64_t generation

    def __init__(self):
        raise TypeError("raw outputs are made by run_raw")

    cdef int check(self) except -1:
        if self.engine.generation != self.generation:
            raise StaleOutputError(
                f"output {self.name!r} belongs to an earlier run; take its array before the next "
                "run, or use run, whose outputs are the caller's own")
        return 0

    @property
    def name(self):
        return self.engine.output_specs[self.index][0]

    @property
    def shape(self):
        return self.engine.output_specs[self.index][1]

    @property
    def dtype(self):
        return self.engine.output_specs[self.index][2]

    @property
    def size(self):
        return self.engine.offsets[self.index][1]

    @property
    def ptr(self):
        self.check()
        return <uintptr_t> self.engine.results[self.index].home

    def array(self):
        """Return the output as a read-only array without a copy.

        Returns
        -------
        numpy.ndarray
            Keeps the memory alive, which later runs change.

        Raises
        ------
        StaleOutputError
            The model has run again since, or was closed. Arrays taken before stay readable.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> (y,) = model.run_raw({"x": np.array([1, 2, 3], "f4")})
        >>> y.array().sum()
        np.float32(12.0)
        """
        self.check()
        return self.engine._view(self.index)

    def __repr__(self):
        stale = ", stale" if self.engine.generation != self.generation else ""
        return f"<RawOutput {self.name!r} {describe(self.shape, self.dtype)}{stale}>"
