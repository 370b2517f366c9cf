# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The run methods of a compiled graph: check, say where things lie, run, hand out. No decisions."""

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Buffer, Bytes_create
from fastgraph._core.calls cimport read_words, word
from fastgraph._core.counters cimport ENGINES, counters_add
from fastgraph._core.feeds cimport Feed, note_growth
from fastgraph._core.lock cimport GraphLock_give, GraphLock_take
from fastgraph._core.runner cimport Runner
from fastgraph._core.staging cimport (
    Active, Active_bring, Active_copy, Active_fill, Active_grow, Active_part, Active_stage,
    fresh_output, input_slot, is_plain, stage)
from fastgraph._core.checks import (
    as_checked, check_number, describe, no_handle, scalar_values)
from fastgraph.errors import GraphError, InputError

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyArray_CheckExact(object)
    bint PyArray_ISCARRAY_RO(cnp.ndarray)


cdef bint Engine_is_plain(Engine self, Py_ssize_t i, object value) except -1:
    return is_plain(&self.slots[i], self.dims.data() + self.slots[i].first_dim, value)


cdef int place_input(Engine self, Py_ssize_t i, object value) except -1:
    """Point input `i` at the caller's bytes, or at a dense copy where those cannot be read."""
    cdef input_slot *slot = &self.slots[i]
    cdef const Py_ssize_t *wanted = self.dims.data() + slot.first_dim
    cdef cnp.ndarray array
    if not is_plain(slot, wanted, value):
        if value is None and i in self.spoiled:
            raise InputError(no_handle(self.input_specs[i], i in self.spoiled))
        if self.target.on_device and not PyArray_CheckExact(value):
            value = self._on_device(self.input_specs[i][0], value, self.target.stream())
            if isinstance(value, Buffer):
                return place_buffer(self, i, value)
        if Active_stage(self.active, self.target, i, slot, wanted, self.input_specs[i], value):
            return 0
        array = as_checked(self.input_specs[i], value)
        if not PyArray_ISCARRAY_RO(array) or array is not value:
            return stage(self.target, i, slot, wanted, array)
    return self.target.take(i, cnp.PyArray_DATA(<cnp.ndarray> value))


cdef int place_buffer(Engine self, Py_ssize_t i, Buffer buffer) except -1:
    """Let input `i` be read from memory of a device."""
    name, shape, dtype = self.input_specs[i]
    if Active_bring(self.active, self.target, i, &self.slots[i],
                    self.dims.data() + self.slots[i].first_dim, self.input_specs[i], buffer):
        return 0
    if buffer.shape != shape or buffer.dtype != dtype:
        raise InputError(f"input {name!r} is {describe(shape, dtype)}, not {buffer!r}; nothing is "
                         "cast or broadcast")
    return self.target.take_block(i, buffer.block, buffer.offset)


cdef int place_list(Engine self, list inputs) except -1:
    """Place every input. Only this frame may see `inputs` where Python code can run meanwhile."""
    cdef Py_ssize_t i, given = PyList_GET_SIZE(inputs)
    for i in range(self.n_inputs):
        if i < given and (<object> PyList_GET_ITEM(inputs, i) is not None
                          or <object> PyList_GET_ITEM(self.handles, i) is None):
            place_input(self, i, <object> PyList_GET_ITEM(inputs, i))
        else:
            Engine_place_handle(self, i)
    return 0


cdef int Engine_place_handle(Engine self, Py_ssize_t i) except -1:
    """Let input `i`, which this run was not given, be what its handle holds."""
    cdef Buffer buffer = <Buffer> PyList_GET_ITEM(self.handles, i)
    if buffer is None:
        raise InputError(no_handle(self.input_specs[i], i in self.spoiled))
    return self.target.take_handle(i, buffer.block, buffer.offset)


cdef int place_sequence(Engine self, object inputs) except -1:
    cdef Py_ssize_t i
    cdef bint plain = (PyList_CheckExact(inputs) and not self.runner.release_gil
                       and self.active is None)
    if not plain:
        if isinstance(inputs, (str, bytes, dict)) or not hasattr(inputs, "__iter__"):
            raise InputError(
                f"run_slots takes a list of arrays in declared order, not {type(inputs).__name__}")
        inputs = list(inputs)
    if PyList_GET_SIZE(inputs) != self.n_inputs:
        check_number(self.input_specs, self.handles, self.spoiled, len(inputs))
    if plain:
        for i in range(PyList_GET_SIZE(inputs)):
            plain = plain and (<object> PyList_GET_ITEM(inputs, i) is None or (
                PyArray_CheckExact(<object> PyList_GET_ITEM(inputs, i))
                and PyArray_ISCARRAY_RO(<cnp.ndarray> PyList_GET_ITEM(inputs, i))))
        if plain:
            # No Python code runs and the GIL is kept to the end: the caller's list will do.
            return place_list(self, inputs)
        inputs = list(inputs)
    self.held = inputs
    return place_list(self, inputs)


cdef list Engine_by_position(Engine self, object inputs):
    cdef Py_ssize_t i
    cdef PyObject *found
    cdef Py_ssize_t given = 0
    cdef list arrays = []
    if not isinstance(inputs, dict):
        if not hasattr(inputs, "keys"):
            raise InputError(
                f"run takes a mapping of names to arrays, not {type(inputs).__name__}")
        inputs = dict(inputs)
    for i in range(self.n_inputs):
        found = PyDict_GetItemWithError(inputs, (<tuple> self.input_specs[i])[0])
        if found != NULL:
            if <object> found is None:
                as_checked(self.input_specs[i], None)      # raises: no array
            arrays.append(<object> found)
            given += 1
        elif self.handles[i] is not None:
            arrays.append(None)
        elif i in self.spoiled:
            raise InputError(no_handle(self.input_specs[i], i in self.spoiled))
        else:
            raise InputError(
                f"input {self.input_specs[i][0]!r} ({describe(*self.input_specs[i][1:])}) was "
                f"not given; given: {sorted(map(str, inputs))}")
    if len(<dict> inputs) != given:
        names = [spec[0] for spec in self.input_specs]
        raise InputError(
            f"{sorted([str(name) for name in inputs if name not in names])} are not inputs of the "
            f"graph; it takes {names}")
    return arrays


cdef int Engine_place(Engine self, object inputs, dict scalars) except -1:
    if self.n_scalars or scalars:
        Engine_place_scalars(self, scalars)
    cdef list arrays = Engine_by_position(self, inputs)
    self.held = arrays
    return place_list(self, arrays)


cdef int Engine_place_scalars(Engine self, dict given) except -1:
    """Write every scalar: the value given for this call, else the default.

    Called before any input is placed: checking a value runs Python code, under which the caller's
    arrays may go, so no address may be held by then.
    """
    cdef vector[word] words
    cdef Py_ssize_t offset
    words.resize(self.n_scalars)
    if read_words(self.scalar_specs, given, words.data()):
        for known in words:
            self.target.take_scalar(known.offset, &known.bytes, known.nbytes)
        return 0
    for spec, value in zip(self.scalar_specs, scalar_values(self.scalar_specs, given)):
        offset = spec[2]
        self.target.take_scalar(offset, cnp.PyArray_DATA(<cnp.ndarray> value), value.nbytes)
    return 0


cdef int Engine_begin(Engine self) except -1:
    """Take the graph for a run, of which the runner is told; it ends with `Engine_end`.

    Runs that were handed in are over then; raises what one of them met.
    """
    if not self.ready:
        Engine_check_ready(self)
    Engine_lock(self)
    if self.ahead or self.dirty:
        prepare(self)
    return 0


cdef int prepare(Engine self) except -1:
    """Get ready for a run, with the lock, which is given up if that raises."""
    try:
        if self.ahead:
            self.lanes.make_way(self)
        Engine_settle(self)
    except BaseException:
        GraphLock_give(self.runner.lock)
        raise
    return 0


cdef int Engine_settle(Engine self) except -1:
    """Let the runner know of handles and feeds as they are now; the lock is held."""
    if self.dirty:
        self._settle()
        self.dirty = False
    return 0


cdef int Engine_check_ready(Engine self) except -1:
    check_open(self)
    if not self.ready:
        raise InputError(f"parameters {self.unset} have no value yet; set_params gives them one")
    return 0


cdef int check_open(Engine self) except -1:
    if self.closed:
        raise GraphError("this model is closed")
    return 0


cdef int Engine_lock(Engine self) except -1:
    cdef Runner runner = self.runner             # kept: another thread may close the model
    cdef bint cut_off = runner.lock.busy
    GraphLock_take(runner.lock)
    if self.closed:
        GraphLock_give(runner.lock)
        check_open(self)
    if cut_off:
        # Perhaps by a fork amid a step of a thread that is no more: its outputs are not ours.
        runner.home()
        runner.set_apart(False)
        self.target = runner
        if runner.spoiled:
            spoil(self)
    return 0


cdef void Engine_end(Engine self) noexcept:
    # What dies with these arrays may run code that enters this graph.
    cdef list _held = self.held
    self.held = None
    if self.runner.spoiled:
        spoil(self)
    GraphLock_give(self.runner.lock)


cdef void spoil(Engine self) noexcept:
    """A run has failed amid writing where handles lie: they are not valid until bound again."""
    cdef Feed feed
    self.runner.spoiled = False
    for feed in self.runner.feeds:
        if feed.in_place:
            self.handles[feed.handle] = None
            self.spoiled.add(feed.handle)


cdef int Engine_finish(Engine self, bint wait) except -1:
    Engine_check(self)
    # From here on memory changes: what earlier raw outputs name is gone.
    self.generation += 1
    if wait:
        self.runner.run()
    else:
        self.runner.enqueue()
    if self.growing is not None:
        note_growth(self.growing)
    return 0


cdef int Engine_check(Engine self) except -1:
    """What is known of feeds and handles before a run: positions, and memory that they need."""
    if self.runner.feeds is not None:
        self.runner.check_feeds()
    if self.growing is not None:
        Active_grow(self.active, self.growing, self.input_specs)
    return 0


@cython.no_gc_clear
cdef class Engine:
    """The run methods of a compiled graph. Users hold a `CompiledGraph`.

    That knows of arrays and streams of devices, by ``_on_device``, ``_check_out``, ``_as_stream``
    and ``_let_go``.
    """

    def __cinit__(self):
        self.runner = self.target = Runner.__new__(Runner)
        counters_add(ENGINES, 1)

    def __dealloc__(self):
        counters_add(ENGINES, -1)

    def _setup(self, Runner runner not None, inputs, outputs, scalars, unset):
        """Connect a runner: called once, by the runtime.

        inputs: (name, shape, dtype); outputs: (name, shape, dtype, byte offset in the runner's
        outputs); scalars: (name, dtype, byte offset, default); unset: parameter names.
        """
        cdef input_slot slot
        cdef output_slot result
        self.runner = self.target = runner
        self.input_specs = tuple([(n, tuple(s), np.dtype(d)) for n, s, d in inputs])
        self.output_specs = tuple([(n, tuple(s), np.dtype(d)) for n, s, d, _ in outputs])
        self.scalar_specs = tuple([(n, np.dtype(d), at, value) for n, d, at, value in scalars])
        self.n_inputs = len(inputs)
        self.handles = [None] * self.n_inputs
        self.spoiled = set()
        self.n_scalars = len(scalars)
        for _, shape, dtype in inputs:
            slot.type_num = np.dtype(dtype).num
            slot.n_dims = len(shape)
            slot.nbytes = np.dtype(dtype).itemsize
            for size in shape:
                slot.nbytes *= size
            slot.first_dim = self.dims.size()
            for size in shape:
                self.dims.push_back(size)
            self.slots.push_back(slot)
        offsets = []
        for _, shape, dtype, offset in outputs:
            result.nbytes = np.dtype(dtype).itemsize
            count = 1
            for size in shape:
                count *= size
            result.nbytes *= count
            result.home = <char *> runner.outputs.ptr + <Py_ssize_t> offset
            self.results.push_back(result)
            offsets.append((offset, count))
        self.offsets = tuple(offsets)
        self.views = tuple([self._view(i) for i in range(len(outputs))])
        self.unset = unset
        self.ready = not self.unset

    def _view(self, Py_ssize_t i):
        _, shape, dtype = self.output_specs[i]
        block, at = self.runner.output_place(i)
        view = np.frombuffer(
            Bytes_create(block, at, self.results[i].nbytes, True),
            dtype=np.uint8) if self.results[i].nbytes else np.empty(0, np.uint8)
        view = view.view(dtype).reshape(shape)
        view.flags.writeable = False
        return view

    def _locked(self, work):
        """Return ``work()``, called with the lock; in Cython, so no signal can leave it held."""
        Engine_lock(self)
        try:
            if self.ahead:
                self.lanes.join(self)
            return work()
        finally:
            GraphLock_give(self.runner.lock)

    def _adopt(self, params, list places, list unset):
        """Take over new parameters; the caller holds the lock.

        params: what ``_params`` becomes; places: (memory, block) to rebind; unset: names of
        parameters without a value.
        """
        self.runner.adopt(places, not unset)
        # No Python code runs from here on: neither a signal nor another thread sees half of it.
        self.unset = unset
        self.ready = not unset
        self._params = params
        if self.lanes is not None:
            self.lanes.adopt(self, places, self.ready)

    def _hold(self, Py_ssize_t i, buffer, state):
        """Let input `i` be what `buffer` holds where it is not given; the caller holds the lock.

        buffer: None for no handle; state: what ``_state`` becomes.
        """
        # No Python code runs from here on: neither a signal nor another thread sees half of it.
        _before = self.handles[i], self._state
        self.handles[i] = buffer
        self.spoiled.discard(i)
        self._state = state
        self.dirty = True

    def _spoiled(self):
        """Return the numbers of inputs whose handles a failed run has spoiled."""
        return frozenset(self.spoiled)

    def _spoil(self, numbers):
        """Let the handles of these inputs be spoiled: of a clone, as those it was made of."""
        for i in numbers:
            self.handles[i] = None
            self.spoiled.add(i)

    def _connect(self, list feeds, list handles, list growing):
        """Let runs feed handles like this, and outputs be where they then are; with the lock.

        feeds, handles: as `Runner.connect` has them; growing: a Growth for each that grows.
        """
        cdef Py_ssize_t i
        cdef list views = list(self.views), offsets = list(self.offsets)
        self.runner.connect(feeds, handles)
        self.growing = growing if growing else None
        for i in range(<Py_ssize_t> self.results.size()):
            _, at = self.runner.output_place(i)
            if at != <uintptr_t> self.results[i].home:
                self.results[i].home = <void *> <uintptr_t> at
                offsets[i] = at - self.runner.outputs.ptr, offsets[i][1]
                views[i] = self._view(i)
        if offsets != list(self.offsets):
            self.views = tuple(views)
            self.offsets = tuple(offsets)

    def _switch(self, executable, list places not None):
        """Run another program from now on, in the same memory; the caller holds the lock.

        executable: of a record whose first memories are those of the model's own program; places:
        (memory, block) for the others.
        """
        self.runner.switch(executable, places)

    def _set_active(self, Active active, list parts not None, bint anew):
        """Say which parts of inputs and outputs runs read and write; the caller holds the lock.

        active: None for all; parts: as `Runner.set_parts` has them; anew: the runner is to be told
        of handles and feeds, which may copy other parts from now on.
        """
        self.runner.set_parts(parts)
        self.active = active
        self.dirty = self.dirty or anew

    def close(self):
        """Give up the arena and the executable; waits for a run. May be called again.

        Later calls raise GraphError, raw outputs are stale, and memory that a view shows stays as
        long as the view. Also happens when the last reference goes.

        Raises
        ------
        GraphError
            A run of this model is under way in this very thread; nothing was closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.close()
        >>> model.run({"x": np.ones(3, "f4")})
        Traceback (most recent call last):
        fastgraph.errors.GraphError: this model is closed
        """
        if self.closed:
            return
        Engine_lock(self)
        cdef Runner runner = self.runner
        try:
            if self.lanes is not None:
                self.lanes.close(self)
            runner.close()
            self.closed = True
            self.ready = False
            self.generation += 1
            self.views = ()
            self.handles = [None] * self.n_inputs
            self.dirty = False
            self.runner = self.target = Runner.__new__(Runner)
        finally:
            GraphLock_give(runner.lock)

    @property
    @cython.nonecheck(True)
    def _lanes(self):
        """Lanes or None: those that `open_lanes` has made."""
        return self.lanes

    def _check_open(self):
        check_open(self)

    @property
    def _runner(self):
        return self.runner

    @property
    def executable(self):
        """Executable: what runs; None once closed."""
        return self.runner.executable

    @property
    @cython.nonecheck(True)
    def stream(self):
        """Stream or None: where runs are put by default; None on cpu, which has no streams."""
        check_open(self)
        return self.runner.own_stream

    @property
    @cython.nonecheck(True)
    def arena_ptr(self):
        """int: address to which the offsets of `run_slots` are relative.

        On cpu the arena's, on cuda that of the memory in which the host reads outputs.
        """
        check_open(self)
        return self.runner.outputs.ptr

    @property
    @cython.nonecheck(True)
    def arena_nbytes(self):
        """int: bytes of the arena, in which all values of a run lie."""
        check_open(self)
        return self.runner.arena.nbytes

    def run_slots(self, inputs, **scalars):
        """Run on arrays given by position; the fastest way in and out.

        Parameters
        ----------
        inputs : list of numpy.ndarray or None
            One array for each declared input, in declared order, also for unused ones; exact
            shape and dtype. Dense arrays are read where they are; others are copied first. None
            stands for what the input's handle holds; at the end of the list it may be left out.
        **scalars
            Values of the graph's scalars for this call.

        Returns
        -------
        tuple of (int, int)
            For each output its byte offset from `arena_ptr` and its number of elements: the same
            tuple in every call. The bytes are readable until the next run; `output_view` gives
            them as an array.

        Raises
        ------
        InputError
            Wrong number, shape, dtype or scalar, a parameter without a value: nothing was run.
            A data fault: the outputs of this run are not to be used.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> ((offset, count),) = model.run_slots([np.array([1, 2, 3], "f4")])
        >>> count
        3
        >>> model.output_view(0)
        array([2., 4., 6.], dtype=float32)
        """
        Engine_begin(self)
        try:
            self.runner.start(True)
            if self.n_scalars or scalars:
                Engine_place_scalars(self, scalars)
            place_sequence(self, inputs)
            Engine_finish(self, True)
        finally:
            Engine_end(self)
        return self.offsets

    def run(self, inputs, out=None, stream=None, **scalars):
        """Run on arrays given by name and return outputs that belong to the caller.

        Parameters
        ----------
        inputs : mapping of str to array
            Every declared input by name; any strides, exact shape and dtype. Inputs with a handle
            may be left out.
        out : sequence of array, optional
            Where to put the outputs, in output order, exact shape and dtype: NumPy arrays of any
            strides; on cuda also arrays on the device, which are written without a copy.
        stream : Stream or object with __cuda_stream__, optional
            Not on cpu, where a run is over when the call returns. On cuda the run is put there,
            behind all that is there; where `out` is on the device, the call does not wait for it.
        **scalars
            Values of the graph's scalars for this call.

        Returns
        -------
        tuple of array
            Fresh NumPy arrays in output order, or the arrays of `out`.

        Raises
        ------
        InputError
            A missing, unknown, misshaped or wrongly typed input, output or scalar, or a parameter
            without a value: nothing was run. A data fault: NumPy arrays of `out` were not written,
            what others hold is not to be used; a run that was not waited for is told of in the
            next call.
        UnsupportedError
            A stream on cpu.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> (y,) = model.run({"x": np.array([1, 2, 3], "f4")})
        >>> y
        array([2., 4., 6.], dtype=float32)
        """
        cdef Py_ssize_t i
        cdef list given = None, places = None
        cdef bint wait = True
        if stream is not None:
            stream = self._as_stream(stream)
        if out is not None:
            given, places = self._check_out(out, stream)
        Engine_begin(self)
        try:
            self.runner.start(stream is None)
            if stream is not None:
                self.runner.use(stream)
            Engine_place(self, inputs, scalars)
            if places is not None:
                wait = place_outputs(self, places) or stream is None
            Engine_finish(self, wait)
            if places is None:
                given = Engine_fresh(self, 0)
            else:
                for i in range(len(places)):
                    if not isinstance(places[i], Buffer):
                        Active_copy(self.active, i, places[i], self.views[i])
        finally:
            Engine_end(self)
        if not wait:
            self._let_go((inputs, out), stream)
        return tuple(given)

    def _run_named(self, inputs, dict scalars):
        """Run by name, leave the outputs where they lie and return the run's number.

        Raises as `run` does.
        """
        Engine_begin(self)
        try:
            self.runner.start(True)
            Engine_place(self, inputs, scalars)
            Engine_finish(self, True)
            return self.generation
        finally:
            Engine_end(self)

    def _run_feed(self, inputs, dict scalars, Py_ssize_t i, Py_ssize_t output):
        """Run by name, then copy an output into the handle of input `i`, and return it."""
        cdef Buffer buffer
        cdef list arrays
        Engine_begin(self)
        try:
            buffer = self._filled(i)
            self.runner.start(True)
            Engine_place(self, inputs, scalars)
            Engine_finish(self, True)
            arrays = Engine_fresh(self, 0)
            if Active_part(self.active, output) is None:
                self.runner.copy_output(output, buffer.block, buffer.offset)
            else:
                Active_fill(self.active, output, buffer, self.views[output])
            return arrays[output]
        finally:
            Engine_end(self)

    def output_view(self, i):
        """Return output `i` as a read-only array over the arena: the same object every time.

        Parameters
        ----------
        i : int

        Returns
        -------
        numpy.ndarray
            Shows the latest run of any thread, and keeps the memory alive.

        Raises
        ------
        InputError
            There is no such output.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> y = model.output_view(0)
        >>> for step in range(2):
        ...     _ = model.run_slots([np.full(3, step, "f4")])
        ...     print(y)
        [0. 0. 0.]
        [2. 2. 2.]
        """
        check_open(self)
        if not isinstance(i, int) or not 0 <= i < len(self.views):
            raise InputError(f"output {i!r}: the graph has {len(self.views)}, counted from 0")
        return self.views[i]

    def _time_nodes(self, inputs, dict scalars):
        """Run once by name and return each node's time in nanoseconds, by record id."""
        Engine_begin(self)
        try:
            self.runner.start(True)
            Engine_place(self, inputs, scalars)
            Engine_check(self)
            self.generation += 1
            times = self.runner.run_timed()
            if self.growing is not None:
                note_growth(self.growing)
            return times
        finally:
            Engine_end(self)


cdef bint place_outputs(Engine self, list places) except -1:
    """Let outputs be written to memory of the device; whether others are to be copied after."""
    cdef Py_ssize_t i
    cdef Buffer buffer
    cdef bint copies = False
    for i in range(len(places)):
        if isinstance(places[i], Buffer):
            buffer = places[i]
            self.runner.give_block(i, buffer.block, buffer.offset)
        else:
            copies = True
    return copies


cdef list Engine_fresh(Engine self, Py_ssize_t shift):
    cdef Py_ssize_t i
    return [fresh_output(self.active, i, <cnp.ndarray> self.views[i],
                         <char *> self.results[i].home + shift, self.results[i].nbytes,
                         self.runner.threads)
            for i in range(len(self.views))]
