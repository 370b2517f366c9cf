# cython: language_level=3
"""Instruction sets: which host kernels this build holds and which one this machine runs."""

from fastgraph._core.types cimport fg_kernel


cdef extern from "isa.hpp" nogil:
    ctypedef struct fg_isa:
        const char *name
        bint runs
        fg_kernel (*lookup)(const char *name)
    int fg_isas(fg_isa *out)


cdef fg_isa _tables[4]
cdef int _count = fg_isas(_tables)


def compiled():
    """Return the names of the instruction sets that this build holds kernels for, worst first.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from fastgraph._core import isa
    >>> isa.chosen() in isa.compiled()
    True
    """
    return tuple([_tables[i].name.decode() for i in range(_count)])


def offered():
    """Return those of `compiled` that this machine can run, worst first.

    Returns
    -------
    tuple of str
    """
    return tuple([_tables[i].name.decode() for i in range(_count) if _tables[i].runs])


def chosen():
    """Return the instruction set whose kernels are used where none is asked for.

    Returns
    -------
    str

    Raises
    ------
    ImportError
        The machine runs none of the instruction sets of this build.
    """
    names = offered()
    if not names:
        raise ImportError(
            f"fastgraph needs a processor with {_tables[0].name.decode()} or better")
    return names[len(names) - 1]


cdef fg_kernel isa_lookup(str name, str isa) except NULL:
    cdef fg_kernel found
    cdef bytes wanted = name.encode()
    for i in range(_count):
        if _tables[i].name.decode() == isa:
            if not _tables[i].runs:
                raise ValueError(f"this machine does not run {isa}; it runs {offered()}")
            found = _tables[i].lookup(wanted)
            if found == NULL:
                raise KeyError(f"no host kernel is called {name!r}")
            return found
    raise ValueError(f"no kernels for instruction set {isa!r}; this build holds {compiled()}")


def has_kernel(str name, str isa):
    """Tell whether `isa` has a host kernel called `name`."""
    try:
        isa_lookup(name, isa)
    except KeyError:
        return False
    return True
