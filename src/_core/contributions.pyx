# cython: language_level=3, binding=False
"""What functions, inputs and whole graphs contribute to keys."""

from cpython.ref cimport Py_REFCNT

from fastgraph._core.keys cimport KeyWriter, Mark, let_go

cdef KeyWriter _spare = None             # of the last search, for the next


def write_function(KeyWriter writer not None, function):
    """Add a build function, or any other callable.

    Parameters
    ----------
    writer : KeyWriter
    function : callable
        A Python function counts by its code object (by identity), by the values of the variables
        that it captures, of its defaults and attributes, and of the module globals that its code
        names. Bound methods and partials count by their parts, other callable objects by type
        and identity and by their class's ``__call__``. Names that the function itself assigns do
        not count.

    Raises
    ------
    InputError
        `function` is not callable; nothing was written.

    Notes
    -----
    Values count as `KeyWriter.write_object` has it. A Python function found among them counts by
    the same parts again, so a helper made anew with the same values is the same, and a global
    that only the helper names is seen. The nearest 64 functions are followed so; those farther
    away, and a global function of another top-level package than the function that names it,
    count by identity. What a mutable object holds is not seen, nor are names that code reaches
    by strings.

    Examples
    --------
    >>> from fastgraph._core.contributions import write_function
    >>> from fastgraph._core.keys import KeyWriter
    >>> def make(value):
    ...     return lambda builder: builder.add_memset(None, value)
    >>> def key(function):
    ...     writer = KeyWriter()
    ...     write_function(writer, function)
    ...     return writer.take_key()
    >>> key(make(1.0)) == key(make(1.0)), key(make(1.0)) == key(make(2.0))
    (True, False)
    """
    writer.check_open()
    cdef Mark mark = writer.mark()
    try:
        writer.put_build(function)
    except BaseException:
        writer.roll_back(mark)
        raise


def write_inputs(KeyWriter writer not None, inputs, frozenset arrays not None, convert):
    """Add inputs, each delimited from the next whatever it writes.

    Parameters
    ----------
    writer : KeyWriter
    inputs : iterable
    arrays : frozenset of type
        An object of exactly one of these types counts by its ``shape`` and ``dtype``.
    convert : callable
        Called with any other object; returns one of those, or an object whose
        ``write_graph_key(writer)`` writes its contributions. Its type counts too.

    Raises
    ------
    Exception
        What `convert` or ``write_graph_key`` raises; nothing was written.
    """
    writer.check_open()
    cdef Mark mark = writer.mark()
    try:
        writer.put_inputs(tuple(inputs), arrays, convert)
    except BaseException:
        writer.roll_back(mark)
        raise


def compose(build, tuple inputs not None, tuple settings not None,
            frozenset arrays not None, convert):
    """Return the key of a graph in one call.

    Parameters
    ----------
    build : callable
        As `write_function` has it.
    inputs, arrays, convert
        As `write_inputs` has them.
    settings : tuple
        All else that tells the graph apart: the device, what the caller adds, checks. They count
        as `KeyWriter.write_object` has it.

    Returns
    -------
    Key
    """
    cdef KeyWriter writer = KeyWriter.__new__(KeyWriter)
    writer.put_tuple(settings, 0)
    writer.put_functions()
    writer.put_inputs(inputs, arrays, convert)
    writer.put_build(build)
    return writer.key()


cdef KeyWriter search_begin(object build, tuple inputs, object device, object key, object check,
                            object verify, frozenset arrays, object convert):
    """What `compose` writes for these settings."""
    global _spare
    cdef KeyWriter writer = _spare
    if writer is None:
        writer = KeyWriter.__new__(KeyWriter)
    else:
        _spare = None
        writer.size = 0
        writer.taken = False
        writer.n_written = 0
    writer.searching = True
    try:
        writer.put_word(b"t", 4)
        writer.put_value(device, 1)
        writer.put_value(key, 1)
        writer.put_value(check, 1)
        writer.put_value(verify, 1)
        writer.put_functions()
        writer.put_inputs(inputs, arrays, convert)
        writer.put_build(build)
    except BaseException:
        search_end(writer)
        raise
    return writer


cdef int search_end(KeyWriter writer) except -1:
    """Close the writer, whoever has it, and let go of what it names, which may run code."""
    global _spare
    writer.taken = True
    writer.kept = None
    let_go(writer, 0, 0)
    writer.searching = False
    if Py_REFCNT(writer) == 1 and writer.data == writer.inline_bytes:
        _spare = writer                  # nobody has it but the caller, and this call
    return 0
