# cython: language_level=3, binding=False
"""What keys of graphs are written with.

A key is a list of tokens in one string of bytes. Each token is a tag and either a payload of fixed
size or a length and as many bytes, so the string is read back in one way only: different lists of
contributions never give the same bytes. Whatever counts by identity stands there as its address
and is kept alive by the key, so that two live keys of equal bytes name the same objects.
"""

from functools import partial

import numpy as np

cimport cython
cimport numpy as cnp
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.complex cimport PyComplex_CheckExact
from cpython.float cimport PyFloat_CheckExact
from cpython.object cimport PyObject

from fastgraph._core.codes cimport (
    CodeNames, PyCell_GET, PyCFunction_CheckExact, PyCFunction_GET_FUNCTION, PyCFunction_GET_SELF,
    PyDict_GetItemWithError, PyFunction_Check, PyFunction_GET_CLOSURE, PyFunction_GET_CODE,
    PyFunction_GET_DEFAULTS, PyFunction_GET_GLOBALS, PyFunction_GET_KW_DEFAULTS, PyFunctionObject,
    PyLong_AsLongLongAndOverflow, PyLong_CheckExact, PyMethod_Check, PyMethod_GET_FUNCTION,
    PyMethod_GET_SELF, PyModule_Check, PyType_Check, PyUnicode_AsUTF8AndSize, names_of,
    same_package)
from fastgraph._core.key cimport Described, Key

from fastgraph.errors import InputError, ScopeError

cnp.import_array()


cdef extern from "keys.hpp" nogil:
    uint64_t fg_hash_bytes(const unsigned char *data, size_t size)

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object value)
    bint PyType_IsSubtype(type a, type b)

cdef enum:
    MAX_DEPTH = 64                       # of tuples in tuples; deeper ones count by identity
    MAX_DTYPES = 4096                    # of others than NumPy's numbers

# C variables: a name of the module costs a look-up in its dictionary.
cdef type generic = np.generic
cdef type void = np.void
cdef object partial_type = partial
cdef frozenset nothing = frozenset()
cdef dict _dtypes = {}


@cython.final
@cython.auto_pickle(False)
cdef class KeyWriter:
    """Gathers the contributions that make a `Key`.

    Notes
    -----
    Every contribution is told apart from every other: ``write_int(1)`` and ``write_int(23)`` never
    equal ``write_int(12)`` and ``write_int(3)``, and a number never equals a string. A call that
    raises has written nothing. Used by one thread at a time.

    Examples
    --------
    >>> from fastgraph._core.keys import KeyWriter
    >>> writer = KeyWriter()
    >>> writer.write_str("scale")
    >>> writer.write_shape((4, 8))
    >>> writer.write_dtype("float32")
    >>> writer.write_int("4")
    Traceback (most recent call last):
    fastgraph.errors.InputError: write_int takes an integer, not '4'
    >>> key = writer.take_key()
    """

    def __cinit__(self):
        self.data = self.inline_bytes
        self.size = 0
        self.room = INLINE_BYTES
        self.taken = self.searching = False
        self.n_held = self.n_found = self.n_written = 0

    def __dealloc__(self):
        if self.data != self.inline_bytes:
            free(self.data)

    def write_int(self, value):
        """Add an integer of any size.

        Raises
        ------
        InputError
            `value` is no integer, or is a bool.
        ScopeError
            The key was taken; true of every method.
        """
        self.check_open()
        self.put_int(integer(value, "write_int"))

    def write_bytes(self, value):
        """Add bytes.

        Parameters
        ----------
        value : bytes, bytearray or memoryview

        Raises
        ------
        InputError
            `value` is none of these; only the bytes count, not which of these it is.
        """
        self.check_open()
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InputError(f"write_bytes takes bytes, not {value!r:.80}")
        self.put_bytes(b"b", bytes(value))

    def write_str(self, value):
        """Add a string.

        Raises
        ------
        InputError
            `value` is no str.
        """
        self.check_open()
        if not isinstance(value, str):
            raise InputError(f"write_str takes a str, not {value!r:.80}")
        self.put_str(value)

    def write_dtype(self, dtype):
        """Add a dtype; equal dtypes count as one.

        Raises
        ------
        InputError
            `dtype` is no dtype and names none.
        """
        self.check_open()
        if not isinstance(dtype, cnp.dtype):
            if dtype is None:
                raise InputError("write_dtype takes a dtype, not None")
            try:
                dtype = np.dtype(dtype)
            except (TypeError, ValueError) as error:
                raise InputError(f"write_dtype takes a dtype, not {dtype!r:.80}") from error
        self.put_dtype(dtype)

    def write_shape(self, shape):
        """Add a shape.

        Parameters
        ----------
        shape : int or sequence of int
            One integer is one axis.

        Raises
        ------
        InputError
            A size is no integer, negative, or larger than any memory.
        """
        self.check_open()
        self.put_shape(checked_shape(shape))

    def write_address(self, address):
        """Add an address of memory; whoever writes it keeps the memory alive.

        Raises
        ------
        InputError
            `address` is no integer from 0 to 2**64 − 1.
        """
        self.check_open()
        value = integer(address, "write_address")
        if not 0 <= value < 1 << 64:
            raise InputError(f"write_address takes an address from 0 to 2**64 − 1, not {value}")
        self.put_word(b"a", <uint64_t> value)

    def write_object(self, value):
        """Add any object.

        Plain immutables count by type and value, functions as `write_function` has it, all else
        by identity, kept alive by the key. Plain are None, Ellipsis, bool, int, float, complex,
        str, bytes, dtypes, NumPy scalars, and exact tuples and frozensets, whose elements count
        one by one. A float counts by its bits: −0.0 is not 0.0, and nan is nan.
        """
        self.check_open()
        cdef Mark mark = self.mark()
        try:
            self.put_value(value, 0)
            self.put_functions()
        except BaseException:
            self.roll_back(mark)
            raise

    def take_key(self):
        """Return the `Key` of all contributions; the writer is closed.

        Raises
        ------
        ScopeError
            The key was taken before.
        """
        self.check_open()
        return self.key()

    cdef Key key(self):
        cdef Key key = Key.__new__(Key)
        cdef list kept = [<object> self.held[i] for i in range(self.n_held)]
        if self.kept is not None:
            kept += self.kept
        key.data = PyBytes_FromStringAndSize(<char *> self.data, self.size)
        key.kept = tuple(kept)
        key.hash = written_hash(self)
        self.taken = True
        self.kept = None
        self.functions = None
        return key

    cdef int check_open(self) except -1:
        if self.taken:
            raise ScopeError("this KeyWriter's key was taken; write to a new KeyWriter")
        return 0

    cdef Py_ssize_t n_functions(self) except -1:
        return self.n_found + (0 if self.functions is None else len(self.functions))

    cdef Mark mark(self):
        cdef Mark mark
        mark.size = self.size
        mark.n_kept = self.n_held + (0 if self.kept is None else len(self.kept))
        mark.n_functions = self.n_functions()
        mark.n_written = self.n_written
        return mark

    cdef int roll_back(self, Mark mark) except -1:
        if self.taken:
            return 0
        self.size = mark.size
        if self.kept is not None:
            del self.kept[max(mark.n_kept - self.n_held, 0):]
        self.n_written = mark.n_written
        if self.functions is not None:
            del self.functions[mark.n_functions:]
        let_go(self, mark.n_kept, mark.n_functions)
        return 0

    cdef inline int reserve(self, Py_ssize_t nbytes) except -1:
        return 0 if self.size + nbytes <= self.room else self.grow(nbytes)

    cdef int grow(self, Py_ssize_t nbytes) except -1:
        cdef Py_ssize_t room
        cdef unsigned char *larger
        room = max(2 * self.room, self.size + nbytes)
        if self.data == self.inline_bytes:
            larger = <unsigned char *> malloc(room)
            if larger != NULL:
                memcpy(larger, self.data, self.size)
        else:
            larger = <unsigned char *> realloc(self.data, room)
        if larger == NULL:
            raise MemoryError(f"a key of {room} bytes")
        self.data = larger
        self.room = room
        return 0

    cdef inline int put_tag(self, char tag) except -1:
        self.reserve(1)
        self.data[self.size] = tag
        self.size += 1
        return 0

    cdef inline int put_word(self, char tag, uint64_t word) except -1:
        self.reserve(9)
        self.data[self.size] = tag
        memcpy(self.data + self.size + 1, &word, 8)
        self.size += 9
        return 0

    cdef int put_raw(self, char tag, const void *source, Py_ssize_t nbytes) except -1:
        """A tag, the length, and as many bytes."""
        self.reserve(9 + nbytes)
        self.put_word(tag, nbytes)
        memcpy(self.data + self.size, source, nbytes)
        self.size += nbytes
        return 0

    cdef int put_bytes(self, char tag, bytes value) except -1:
        return self.put_raw(tag, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))

    cdef int put_str(self, str value) except -1:
        cdef Py_ssize_t size = 0
        cdef const char *text
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            # Lone surrogates have no UTF-8; this gives each of them bytes of its own.
            return self.put_bytes(b"u", str.encode(value, "utf-8", "surrogatepass"))
        return self.put_raw(b"u", text, size)

    cdef int put_int(self, object value) except -1:
        cdef int overflow = 0
        cdef int64_t word = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            return self.put_word(b"i", <uint64_t> word)
        return self.put_bytes(b"n", int.to_bytes(
            value, (int.bit_length(value) + 8) // 8, "little", signed=True))

    cdef int put_shape(self, tuple shape) except -1:
        """A tuple of sizes, each already known to be from 0 to 2**63 − 1."""
        cdef int64_t size
        self.reserve(9 + 8 * len(shape))
        self.put_word(b"s", len(shape))
        for item in shape:
            size = item
            memcpy(self.data + self.size, &size, 8)
            self.size += 8
        return 0

    cdef int put_dtype(self, object given) except -1:
        cdef cnp.dtype dtype = given
        cdef int number = dtype.type_num
        if number < cnp.NPY_OBJECT or number == cnp.NPY_FLOAT16:
            # Kind and size, not the number: C's long and long long are one dtype to NumPy.
            self.reserve(4)
            self.data[self.size] = b"d"
            self.data[self.size + 1] = dtype.kind
            self.data[self.size + 2] = <unsigned char> dtype.itemsize
            # The machine's own order is one, said ("<f4") or not.
            self.data[self.size + 3] = (b"=" if cnp.PyDataType_ISNOTSWAPPED(dtype)
                                        else dtype.byteorder)
            self.size += 4
        else:
            if len(_dtypes) >= MAX_DTYPES:
                _dtypes.clear()
            # Of equal dtypes one stands for all; type is what the elements are as scalars.
            self.put_identity(_dtypes.setdefault((dtype, dtype.type), dtype))
        return 0

    cdef inline int put_identity(self, object value) except -1:
        self.reserve(9)
        if self.searching and self.n_held < INLINE_KEPT:
            Py_INCREF(value)
            self.held[self.n_held] = <PyObject *> value
            self.n_held += 1
        elif self.kept is None:
            self.kept = [value]
        else:
            self.kept.append(value)
        return self.put_word(b"O", <uintptr_t> <PyObject *> value)

    cdef int put_value(self, object value, int depth) except -1:
        cdef double[2] parts
        if PyLong_CheckExact(value):
            return self.put_int(value)
        if PyUnicode_CheckExact(value):
            return self.put_str(value)
        if value is None:
            return self.put_tag(b"N")
        if value is True or value is False:
            return self.put_tag(b"T" if value is True else b"F")
        if PyFloat_CheckExact(value):
            parts[0] = value
            return self.put_raw(b"f", parts, 8)
        if PyFunction_Check(value):
            return self.put_function(value)
        if PyModule_Check(value) or PyType_Check(value):
            return self.put_identity(value)
        if type(value) is bytes:
            return self.put_bytes(b"b", value)
        if PyComplex_CheckExact(value):
            parts[0], parts[1] = value.real, value.imag
            return self.put_raw(b"c", parts, 16)
        if value is Ellipsis:
            return self.put_tag(b"E")
        if depth < MAX_DEPTH:
            if type(value) is tuple:
                return self.put_tuple(value, depth)
            if type(value) is frozenset:
                return self.put_set(value, depth)
            if PyMethod_Check(value):
                self.put_tag(b"M")
                self.put_callable(<object> PyMethod_GET_FUNCTION(value), depth + 1)
                return self.put_value(<object> PyMethod_GET_SELF(value), depth + 1)
            if type(value) is partial_type:
                self.put_tag(b"P")
                self.put_callable(value.func, depth + 1)
                self.put_tuple(value.args, depth + 1)
                return self.put_mapping(value.keywords, nothing, depth + 1)
            if PyCFunction_CheckExact(value):
                return self.put_builtin(value, depth)
        if isinstance(value, cnp.dtype):
            return self.put_dtype(value)
        # By the type alone: `isinstance` would ask every other object for its ``__class__``.
        if PyType_IsSubtype(type(value), generic) and not PyType_IsSubtype(type(value), void):
            dtype = value.dtype
            # A subclass may hold more than the value, an object's bytes are an address.
            if dtype.type is type(value) and not dtype.hasobject:
                self.put_tag(b"g")
                self.put_dtype(dtype)
                return self.put_bytes(b"b", value.tobytes())
        return self.put_identity(value)

    cdef int put_tuple(self, tuple values, int depth) except -1:
        self.put_word(b"t", len(values))
        for value in values:
            self.put_value(value, depth + 1)
        return 0

    cdef int put_set(self, frozenset values, int depth) except -1:
        """The elements' tokens in the order of their bytes: a set has none of its own."""
        cdef Mark mark = self.mark()
        cdef Py_ssize_t start
        cdef list encoded = []
        for value in values:
            start = self.size
            self.put_value(value, depth + 1)
            encoded.append(PyBytes_FromStringAndSize(<char *> self.data + start, self.size - start))
        self.size = mark.size
        if self.n_functions() > mark.n_functions:
            # Their numbers come from the order in which this set happened to give them.
            self.roll_back(mark)
            return self.put_identity(values)
        encoded.sort()
        self.put_word(b"z", len(encoded))
        for item in encoded:
            self.reserve(PyBytes_GET_SIZE(item))
            memcpy(self.data + self.size, PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))
            self.size += PyBytes_GET_SIZE(item)
        return 0

    cdef int put_mapping(self, dict items, frozenset left_out, int depth) except -1:
        if not items:
            return self.put_word(b"k", 0)
        cdef list chosen = [item for item in items.items() if item[0] not in left_out]
        self.put_word(b"k", len(chosen))
        for name, value in chosen:
            self.put_value(name, depth + 1)
            self.put_value(value, depth + 1)
        return 0

    cdef int put_builtin(self, object function, int depth) except -1:
        """A function in C; a bound one is made anew at every look, so its parts count."""
        cdef PyObject *owner = PyCFunction_GET_SELF(function)
        if owner == NULL or PyModule_Check(<object> owner):
            return self.put_identity(function)
        self.put_word(b"B", <uintptr_t> PyCFunction_GET_FUNCTION(function))
        self.put_str(function.__name__)
        return self.put_value(<object> owner, depth + 1)

    cdef int put_callable(self, object function, int depth) except -1:
        """A function as `put_value` has it, or an object with a ``__call__``."""
        if (PyFunction_Check(function) or PyMethod_Check(function)
                or PyCFunction_CheckExact(function) or type(function) is partial_type):
            return self.put_value(function, depth)
        self.put_tag(b"X")
        self.put_identity(function)
        self.put_identity(type(function))
        # What its class does when it is called is seen like a function; its attributes are not.
        call = getattr(type(function), "__call__", None)
        return self.put_value(call if PyFunction_Check(call) else None, depth)

    cdef int put_function(self, object function) except -1:
        """The number of a function; its parts follow when `put_functions` comes to it."""
        cdef Py_ssize_t number
        for number in range(self.n_functions()):
            if (self.found[number] == <PyObject *> function if self.searching
                    else self.functions[number] is function):
                return self.put_word(b"R", number)
        number = self.n_functions()
        if number == MAX_FUNCTIONS:
            return self.put_identity(function)
        self.put_word(b"R", number)
        if self.searching:
            Py_INCREF(function)
            self.found[number] = <PyObject *> function
            self.n_found += 1
        elif self.functions is None:
            self.functions = [function]
        else:
            self.functions.append(function)
        return 0

    cdef int put_functions(self) except -1:
        """The parts of all functions met, the nearest first: what refers to itself ends too."""
        cdef Py_ssize_t number
        while self.n_written < self.n_functions():
            number = self.n_written
            self.n_written += 1
            self.put_parts(<object> self.found[number] if self.searching
                           else self.functions[number])
        return 0

    cdef int put_parts(self, object function) except -1:
        code = <object> PyFunction_GET_CODE(function)
        cdef CodeNames names = names_of(code)
        cdef PyObject *part = PyFunction_GET_CLOSURE(function)
        cdef dict module
        cdef tuple cells
        cdef Py_ssize_t i
        self.put_identity(code)
        if part != NULL:
            cells = <tuple> part
            for i in names.captured:
                self.put_optional(PyCell_GET(cells[i]))
        self.put_optional(PyFunction_GET_DEFAULTS(function))
        self.put_mapping(items(PyFunction_GET_KW_DEFAULTS(function)), nothing, 0)
        self.put_mapping(
            items((<PyFunctionObject *> function).func_dict), names.bound_attributes, 0)
        module = <dict> PyFunction_GET_GLOBALS(function)
        for name in names.module_names:
            part = PyDict_GetItemWithError(module, name)
            if (part != NULL and PyFunction_Check(<object> part)
                    and not same_package(
                        module, <dict> PyFunction_GET_GLOBALS(<object> part))):
                self.put_identity(<object> part)
            else:
                self.put_optional(part)
        return 0

    cdef inline int put_optional(self, PyObject *value) except -1:
        """An object, or that there is none: an empty cell, a name that is a builtin."""
        if value == NULL:
            return self.put_tag(b"-")
        held = <object> value            # whatever runs meanwhile may empty its place
        return self.put_value(held, 0)

    cdef int put_inputs(self, tuple inputs, frozenset arrays, object convert) except -1:
        cdef type known = None           # one of `arrays`, of which more follow as a rule
        cdef Described described
        self.put_word(b"I", len(inputs))
        for source in inputs:
            if type(source) is cnp.ndarray:
                self.put_array(source)
                continue
            if isinstance(source, Described) and (
                    type(source) is known or type(source) in arrays):
                known = type(source)
                described = source
                self.put_tag(b"A")
                self.put_shape(described.shape)
                self.put_dtype(described.dtype)
                continue
            if type(source) not in arrays:
                source = convert(source)
            if type(source) in arrays:
                self.put_tag(b"A")
                self.put_shape(source.shape)
                self.put_dtype(source.dtype)
                continue
            self.put_tag(b"{")
            self.put_identity(type(source))
            source.write_graph_key(self)
            self.check_open()
            self.put_tag(b"}")
        return 0

    cdef int put_array(self, object given) except -1:
        """What `put_inputs` writes for an array, read where NumPy has it."""
        cdef cnp.ndarray array = given
        cdef Py_ssize_t nbytes = 8 * array.ndim
        self.put_tag(b"A")
        self.put_word(b"s", array.ndim)
        self.reserve(nbytes)
        memcpy(self.data + self.size, array.shape, nbytes)
        self.size += nbytes
        return self.put_dtype(array.dtype)

    cdef int put_build(self, object function) except -1:
        if not callable(function):
            raise InputError(f"a build function is called with a builder; {function!r:.80} is "
                             "not callable")
        self.put_callable(function, 0)
        return self.put_functions()


cdef dict items(PyObject *mapping):
    return None if mapping == NULL else <dict> mapping


cdef int let_go(KeyWriter self, Py_ssize_t n_held, Py_ssize_t n_found) except -1:
    """Drop what the arrays of a search hold beyond these numbers."""
    cdef PyObject *last
    while self.n_held > n_held:
        self.n_held -= 1
        last = self.held[self.n_held]
        Py_DECREF(<object> last)
    while self.n_found > n_found:
        self.n_found -= 1
        last = self.found[self.n_found]
        Py_DECREF(<object> last)
    return 0


cdef Py_hash_t written_hash(KeyWriter writer) noexcept:
    cdef Py_hash_t found = <Py_hash_t> fg_hash_bytes(writer.data, writer.size)
    return -2 if found == -1 else found


cdef object integer(value, str caller):
    """`value` as an int; a bool is none: True would count as 1."""
    if PyLong_CheckExact(value):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise InputError(f"{caller} takes an integer, not {value!r:.80}")


cdef tuple checked_shape(shape):
    try:
        axes = (shape,) if isinstance(shape, (int, np.integer)) else shape
        sizes = tuple([integer(size, "write_shape") for size in axes])
    except TypeError as error:
        raise InputError(f"write_shape takes a sequence of sizes, not {shape!r:.80}") from error
    for axis, size in enumerate(sizes):
        if not 0 <= size < 1 << 63:
            raise InputError(f"shape {shape!r:.80}: axis {axis} has size {size}")
    return sizes
