# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Steps: runs of a compiled graph on addresses that were checked and fixed once."""

import numpy as np

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from fastgraph._core.dispatch cimport (
    Engine, Engine_begin, Engine_end, Engine_finish, Engine_place_scalars)
from fastgraph._core.host_graph cimport HostGraph

from fastgraph._core.checks import check_disjoint, check_stream, dense
from fastgraph.errors import GraphError, InputError


cdef struct bound:
    void *address
    bint copied                          # staged before the run, or copied out after it


@cython.no_gc_clear
cdef class Step:
    """One run on fixed addresses: ``step(**scalars)``. Made by `CompiledGraph.bind`.

    It keeps the model and the bound arrays alive. A call reads what the input arrays then hold,
    fills the output arrays, returns None when the run is over, and raises what `run_slots` raises.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("shift")
    >>> x, by = g.input("x", (2,)), g.scalar("by", "float32", default=1.0)
    >>> _ = g.output(x + by, "y")
    >>> x, y = np.zeros(2, "f4"), np.empty(2, "f4")
    >>> step = fg.Session("cpu").compile(g).bind({"x": x}, {"y": y})
    >>> step()
    >>> y
    array([1., 1.], dtype=float32)
    >>> x[:] = 4
    >>> step(by=0.5)
    >>> y
    array([4.5, 4.5], dtype=float32)
    """

    cdef Engine engine
    cdef list keep
    cdef vector[bound] ins
    cdef vector[bound] outs              # address NULL: the output stays in the arena

    def __init__(self):
        raise TypeError("steps are made by CompiledGraph.bind")

    def __call__(self, **scalars):
        """Run once and wait.

        Parameters
        ----------
        **scalars
            Values of the graph's scalars for this call.

        Raises
        ------
        InputError
            A wrong scalar or a parameter without a value: nothing was run. A data fault: what the
            bound outputs hold is not to be used.
        GraphError
            The model is closed.
        """
        cdef Engine engine = self.engine
        if engine is None:
            raise TypeError("steps are made by CompiledGraph.bind")
        cdef HostGraph graph
        cdef size_t i
        cdef bound place
        Engine_begin(engine)
        graph = engine.executable
        try:
            if engine.n_scalars or scalars:
                Engine_place_scalars(engine, scalars)
            for i in range(self.ins.size()):
                place = self.ins[i]
                if place.copied:
                    memcpy(engine.slots[i].staging, place.address, engine.slots[i].nbytes)
                    place.address = engine.slots[i].staging
                graph.bases[engine.slots[i].memory] = place.address
            for i in range(self.outs.size()):
                place = self.outs[i]
                if place.address != NULL and not place.copied:
                    graph.bases[engine.results[i].memory] = place.address
            Engine_finish(engine)
            for i in range(self.outs.size()):
                place = self.outs[i]
                if place.copied:
                    memcpy(place.address, engine.results[i].home, engine.results[i].nbytes)
        finally:
            for i in range(self.outs.size()):
                graph.bases[engine.results[i].memory] = engine.results[i].home
            Engine_end(engine)


@cython.nonecheck(True)
def bind(Engine engine not None, inputs, outputs, stream):
    """Make a `Step` for `CompiledGraph.bind`, which says what it takes and raises."""
    cdef Step self = Step.__new__(Step)
    check_stream(stream)
    if engine.closed:
        raise GraphError("this model is closed")
    cdef bound place
    cdef uintptr_t at, lo = engine.arena.ptr
    cdef uintptr_t hi = lo + <uintptr_t> engine.arena.nbytes
    in_names = [spec[0] for spec in engine.input_specs]
    out_names = [spec[0] for spec in engine.output_specs]
    for given, names, what in ((inputs, in_names, "inputs"), (outputs, out_names, "outputs")):
        if not isinstance(given, dict):
            raise InputError(f"{what} is a dict of names to arrays, not {type(given).__name__}")
        unknown = [str(name) for name in given if name not in names]
        if unknown:
            raise InputError(f"{unknown} are not {what} of the graph; those are {names}")
    missing = [name for name in in_names if name not in inputs]
    if missing:
        raise InputError(f"inputs {missing} were not bound")
    self.engine = engine
    self.keep = []
    taken = []
    for name, shape, dtype in engine.input_specs:
        array, at = dense(f"input {name!r}", inputs[name], shape, dtype, False)
        self.keep.append((inputs[name], array))
        place.address = <void *> at
        place.copied = at < hi and at + <uintptr_t> array.nbytes > lo
        self.ins.push_back(place)
        taken.append(array)
    written = []
    for name, shape, dtype in engine.output_specs:
        if name not in outputs:
            place.address = NULL
            place.copied = False
            self.outs.push_back(place)
            continue
        array, at = dense(f"output {name!r}", outputs[name], shape, dtype, True)
        self.keep.append((outputs[name], array))
        place.address = <void *> at
        # What an input still holds must not be overwritten early: such an output is copied last.
        place.copied = any([np.may_share_memory(array, other) for other in taken])
        self.outs.push_back(place)
        written.append((name, array))
    check_disjoint([array for _, array in written], [name for name, _ in written])
    return self
