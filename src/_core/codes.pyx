# cython: language_level=3, binding=False
"""Code objects: which names of the module and which captured variables they read and bind."""

import dis
from types import CodeType

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memset

from fastgraph.errors import InputError

cdef enum:
    MAX_CODES = 4096                     # remembered, with what they name
    NEAR = 64

cdef dict _codes = {}                    # address of a code object → CodeNames, which keeps it
# Some of them, by their addresses, for a look that costs next to nothing.
cdef PyObject *_near[NEAR]

_READ_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_BIND_GLOBAL = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_BIND_CAPTURED = frozenset(("STORE_DEREF", "DELETE_DEREF"))
_BIND_ATTRIBUTE = frozenset(("STORE_ATTR", "DELETE_ATTR"))


@cython.final
cdef class CodeNames:
    """What one code object and the codes inside it name. Made by `names_of`."""

    def __init__(self):
        raise TypeError("CodeNames are made by names_of")


cdef CodeNames names_of(object code):
    """What `code` names; remembered for the codes met last, which stay alive as long."""
    cdef uintptr_t address = <uintptr_t> <PyObject *> code
    cdef PyObject **near = &_near[(address >> 5) % NEAR]
    cdef CodeNames names
    if near[0] != NULL and (<CodeNames> near[0]).code is code:
        return <CodeNames> near[0]
    names = _codes.get(address)
    if names is not None:
        near[0] = <PyObject *> names
        return names
    read, bound, captured, attributes = scan(code)
    names = CodeNames.__new__(CodeNames)
    names.code = code
    names.module_names = tuple([name for name in read if name not in bound])
    names.captured = tuple([
        place for place, name in enumerate(code.co_freevars) if name not in captured])
    names.bound_attributes = frozenset(attributes)
    while len(_codes) >= MAX_CODES:
        _dropped = _codes.pop(next(iter(_codes)), None)
        memset(_near, 0, sizeof(_near))          # before that dies
    _codes[address] = names
    return names


cdef tuple scan(object code):
    """Names of the code and of the codes inside it.

    Returns module names that are read (in order) and those that are bound, captured variables
    that are bound, and attributes that are bound on any object.
    """
    cdef dict read = {}
    cdef set bound = set()
    cdef set captured = set()
    cdef set attributes = set()
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in _READ_GLOBAL:
            read[instruction.argval] = None
        elif name in _BIND_GLOBAL:
            bound.add(instruction.argval)
        elif name in _BIND_CAPTURED:
            captured.add(instruction.argval)
        elif name in _BIND_ATTRIBUTE:
            attributes.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            parts = scan(inner)
            read.update(parts[0])
            bound |= parts[1]
            captured |= parts[2]
            attributes |= parts[3]
    # A variable of the code's own, which its inner functions bind, is nobody else's.
    return read, bound, captured.intersection(code.co_freevars), attributes


def names(code):
    """Return what a code object and the codes inside it name, as keys see it.

    Parameters
    ----------
    code : types.CodeType

    Returns
    -------
    tuple of str
        Names of the module that are read and not bound.
    tuple of str
        Captured variables that are read and not bound.

    Raises
    ------
    InputError
        `code` is no code object.

    Examples
    --------
    >>> from fastgraph._core import codes
    >>> codes.names((lambda x: scale * x).__code__)
    (('scale',), ())
    """
    if not isinstance(code, CodeType):
        raise InputError(f"names takes a code object, not {code!r:.80}")
    cdef CodeNames found = names_of(code)
    return found.module_names, tuple([code.co_freevars[place] for place in found.captured])


cdef bint same_package(dict module, dict other) except -1:
    """Whether two modules, by their globals, belong to one top-level package."""
    if module is other:
        return True
    name, other_name = module.get("__name__"), other.get("__name__")
    return (type(name) is str and type(other_name) is str
            and name.partition(".")[0] == other_name.partition(".")[0])
