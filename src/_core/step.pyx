# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Steps: runs of a compiled graph on addresses that were checked and fixed once."""

import numpy as np

cimport cython
from libc.string cimport memmove
from libcpp.vector cimport vector
from libc.stdint cimport uintptr_t

from fastgraph._core.buffer cimport Buffer
from fastgraph._core.dispatch cimport (
    Engine, Engine_begin, Engine_end, Engine_finish, Engine_place_handle, Engine_place_scalars)
from fastgraph._core.runner cimport Runner
from fastgraph._core.staging cimport Active_copy, Active_part

from fastgraph._core.checks import check_disjoint, dense
from fastgraph.errors import GraphError, InputError


cdef struct bound:
    void *address                        # of the host; NULL: on the device, or not given
    bint copied                          # copied there after the run
    bint late                            # copied after the run under way


@cython.no_gc_clear
cdef class Step:
    """One run on fixed addresses: ``step(**scalars)``. Made by `CompiledGraph.bind`.

    It keeps the model and the bound arrays alive. A call reads what the input arrays then hold,
    fills the output arrays, returns None when the run is over, and raises what `run_slots` raises.
    One that was bound with a stream returns once the run is put there.

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
    cdef object stream
    cdef list in_buffers                 # on the device, else None
    cdef list out_buffers
    cdef list out_arrays                 # of the host, else None
    cdef vector[bound] ins
    cdef vector[bound] outs

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
        cdef Runner runner
        cdef Buffer buffer
        cdef Py_ssize_t i
        cdef bint ahead = self.stream is not None
        Engine_begin(engine)
        runner = engine.runner
        try:
            runner.start(not ahead)
            if ahead:
                runner.use(self.stream)
            if engine.n_scalars or scalars:
                Engine_place_scalars(engine, scalars)
            for i in range(<Py_ssize_t> self.ins.size()):
                if self.ins[i].address != NULL:
                    runner.take(i, self.ins[i].address)
                elif self.in_buffers[i] is not None:
                    buffer = self.in_buffers[i]
                    runner.take_block(i, buffer.block, buffer.offset)
                else:
                    Engine_place_handle(engine, i)
            for i in range(<Py_ssize_t> self.outs.size()):
                if self.outs[i].address != NULL:
                    self.outs[i].late = (
                        self.outs[i].copied or not runner.give(i, self.outs[i].address))
                elif self.out_buffers[i] is not None:
                    buffer = self.out_buffers[i]
                    runner.give_block(i, buffer.block, buffer.offset)
            Engine_finish(engine, not ahead)
            for i in range(<Py_ssize_t> self.outs.size()):
                if not self.outs[i].late:
                    continue
                if Active_part(engine.active, i) is None:
                    memmove(self.outs[i].address, engine.results[i].home, engine.results[i].nbytes)
                else:
                    Active_copy(engine.active, i, self.out_arrays[i], engine.views[i])
        finally:
            runner.home()
            Engine_end(engine)


@cython.nonecheck(True)
def bind(Engine engine not None, inputs, outputs, stream):
    """Make a `Step` for `CompiledGraph.bind`, which says what it takes and raises."""
    cdef Step self = Step.__new__(Step)
    if engine.closed:
        raise GraphError("this model is closed")
    cdef bound place
    cdef uintptr_t at
    in_names = [spec[0] for spec in engine.input_specs]
    out_names = [spec[0] for spec in engine.output_specs]
    for given, names, what in ((inputs, in_names, "inputs"), (outputs, out_names, "outputs")):
        if not isinstance(given, dict):
            raise InputError(f"{what} is a dict of names to arrays, not {type(given).__name__}")
        unknown = [str(name) for name in given if name not in names]
        if unknown:
            raise InputError(f"{unknown} are not {what} of the graph; those are {names}")
    missing = [name for i, name in enumerate(in_names)
               if name not in inputs and engine.handles[i] is None]
    if missing:
        raise InputError(f"inputs {missing} were not bound and have no handle")
    self.stream = None if stream is None else engine._as_stream(stream)
    self.engine = engine
    self.keep = []
    self.in_buffers = []
    self.out_buffers = []
    self.out_arrays = []
    taken = []
    place.late = False
    for spec in engine.input_specs:
        if spec[0] not in inputs:
            place.address = NULL
            place.copied = False
            self.in_buffers.append(None)
            self.ins.push_back(place)
            continue
        array, at = locate(engine, f"input {spec[0]!r}", spec, inputs[spec[0]], False)
        self.keep.append((inputs[spec[0]], array))
        self.in_buffers.append(array if isinstance(array, Buffer) else None)
        place.address = <void *> at
        place.copied = False
        self.ins.push_back(place)
        taken.append(array)
    written = []
    for spec in engine.output_specs:
        place.address = NULL
        place.copied = False
        array = None
        if spec[0] in outputs:
            array, at = locate(engine, f"output {spec[0]!r}", spec, outputs[spec[0]], True)
            self.keep.append((outputs[spec[0]], array))
            written.append((spec[0], array))
        if array is not None and not isinstance(array, Buffer):
            place.address = <void *> at
            # What an input still holds must not be overwritten early: such an output is copied
            # last, and so is every one that a device cannot write.
            place.copied = engine.runner.on_device or any(
                [isinstance(other, np.ndarray) and np.may_share_memory(array, other)
                 for other in taken])
            if self.stream is not None:
                raise InputError(
                    f"output {spec[0]!r}: a step on a stream does not wait, so it cannot copy to a "
                    "NumPy array; give memory of create_buffer or create_host_buffer")
        self.out_buffers.append(array if isinstance(array, Buffer) else None)
        self.out_arrays.append(None if isinstance(array, Buffer) else array)
        self.outs.push_back(place)
    hosted = [(name, array) for name, array in written if not isinstance(array, Buffer)]
    check_disjoint([array for _, array in hosted], [name for name, _ in hosted])
    check_apart([(name, array) for name, array in written if isinstance(array, Buffer)])
    return self


cdef tuple locate(Engine engine, str what, tuple spec, value, bint written):
    """The bytes of an array that a step reads or writes: (Buffer, 0) on the device, else (ndarray,
    address)."""
    name, shape, dtype = spec
    if engine.runner.on_device and not isinstance(value, np.ndarray):
        value = engine._on_device(name, value, None, written)
        if isinstance(value, Buffer):
            if value.shape != shape or value.dtype != dtype:
                raise InputError(f"{what} is {dtype}{list(shape)}, not {value!r}")
            return value, 0
    return dense(what, value, shape, dtype, written)


cdef int check_apart(list written) except -1:
    """Raise InputError where two outputs have bytes of a device in common."""
    for i, (name, buffer) in enumerate(written):
        for before, other in written[:i]:
            if buffer.ptr < other.ptr + other.nbytes and other.ptr < buffer.ptr + buffer.nbytes:
                raise InputError(f"outputs {before!r} and {name!r} were given the same bytes")
    return 0
