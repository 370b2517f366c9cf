# cython: language_level=3
"""Checks of what a run was given. Cold: the hot path comes here only with what it cannot read."""

import numpy as np

cimport numpy as cnp
from cpython.buffer cimport PyObject_CheckBuffer
from libc.stdint cimport uintptr_t

from fastgraph.errors import FastGraphError, InputError, UnsupportedError

cnp.import_array()

cdef tuple UNREADABLE = (
    AttributeError, BufferError, OverflowError, RuntimeError, TypeError, ValueError)

cdef extern from "numpy/arrayobject.h":
    bint PyArray_ISCARRAY_RO(cnp.ndarray)


def describe(shape, dtype):
    """Return how messages write a tensor: ``float32[2, 3]``."""
    return f"{np.dtype(dtype)}{list(shape)}"


cdef bint has_memory(value):
    """Whether a value gives its bytes by the buffer protocol, and is no text."""
    return not isinstance(value, (bytes, str)) and PyObject_CheckBuffer(value)


def as_array(str what, value, shape, dtype):
    """Return what `value`, an array of NumPy's or of another library, holds as an ndarray.

    Raises
    ------
    InputError
        It is no array, has a mask, or lies where this process cannot read it.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array; there is no place for its mask")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    # What the other library's methods raise, and NumPy about what they return; an error of some
    # other kind is the caller's own and passes through.
    try:
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if has_memory(value):
            return np.asarray(memoryview(value))
    except FastGraphError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{what}: this {type(value).__name__} cannot be read: {error}") from error
    raise InputError(
        f"{what} is a {type(value).__name__}; {describe(shape, dtype)} is needed as "
        "an array (nothing is converted)")


def as_checked(tuple spec, value):
    """Return `value` as an ndarray of the exact shape and dtype of `spec`, or raise InputError."""
    name, shape, dtype = spec
    array = as_array(f"input {name!r}", value, shape, dtype)
    if array.dtype != dtype:
        raise InputError(
            f"input {name!r} has dtype {array.dtype}, not {dtype}; nothing is cast: use "
            f"array.astype({np.dtype(dtype).name!r})")
    if array.shape != shape:
        raise InputError(f"input {name!r} has shape {array.shape}, not {shape}")
    return array


def no_handle(tuple spec, bint spoiled):
    """Return what messages say of an input that was not given."""
    name, shape, dtype = spec
    if spoiled:
        return (f"handle {name!r} is not valid: a run that was to write it where it lies has "
                "failed; bind it again, or give the input")
    return f"input {name!r} ({describe(shape, dtype)}) was not given and has no handle"


def check_number(tuple specs, list handles, set spoiled, Py_ssize_t given):
    """Raise InputError unless handles stand in for the last inputs, which were left out."""
    cdef list missing = [i for i in range(given, len(specs)) if handles[i] is None]
    for i in missing:
        if i in spoiled:
            raise InputError(no_handle(specs[i], True))
    if missing or given > len(specs):
        names = [spec[0] for spec in specs]
        raise InputError(
            f"{given} inputs were given; the graph takes {len(names)}: {names}"
            + (f"; {[names[i] for i in missing]} have no handle" if missing else ""))


def scalar_value(name, value, dtype):
    """Return `value` of the scalar `name` as `element` does; the message names it."""
    return element(value, dtype, f"scalar {name!r}")


def scalar_values(tuple specs, dict given):
    """Return the values of all scalars as arrays: those given, else the defaults.

    specs: (name, dtype, byte offset, default or None). Raises InputError for an unknown name, a
    value that is missing, or one that does not fit.
    """
    names = [spec[0] for spec in specs]
    for name in given:
        if name not in names:
            raise InputError(f"the graph has no scalar {name!r}; its scalars are {names}")
    values = []
    for name, dtype, _, default in specs:
        value = given.get(name, default)
        if value is None:
            raise InputError(f"scalar {name!r} ({dtype}) has no default and was not given")
        values.append(scalar_value(name, value, dtype))
    return values


# Every float type holds numbers of this size.
cdef double FEW = 65504.0


def element(value, dtype, str what=None, bint numbers=False):
    """Return `value` as a 0-d array of `dtype`; nothing is rounded, cut or wrapped.

    Parameters
    ----------
    value : bool, int, float or NumPy scalar
        A NumPy scalar, or a 0-d array, must have `dtype`. A Python int goes into an integer type
        in whose range it lies, or a float type that holds it exactly; a Python float into a float
        type alone, rounded as everywhere in NumPy, but never to infinity; a bool into bool.
    dtype : dtype_like
    what : str, optional
        What messages call it: "scalar 'k'".
    numbers : bool
        Whether bool takes 0 and 1 as well.

    Raises
    ------
    InputError
        The value is no element of the dtype.
    """
    kind = np.dtype(dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{value!r} is masked, so it has no value")
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.array(value)          # whatever a subclass says of itself
        if array.shape != ():
            raise InputError(
                f"{what or 'this'} is one {kind}, not an array of shape {array.shape}"
                + ("; its one element is x.reshape(())" if array.size == 1 else ""))
        if array.dtype != kind:
            found = describe((), array.dtype)
            raise InputError(
                f"{what} is {kind}, not {found}" if what
                else f"{value!r} is {found}, not {kind}; nothing is cast")
        return array
    # The number itself, for a subclass may compare and convert as it likes.
    if isinstance(value, int) and type(value) is not int and type(value) is not bool:
        value = int.__pos__(value)
    elif isinstance(value, float) and type(value) is not float:
        value = float.__pos__(value)
    if kind == np.bool_:
        fits = isinstance(value, bool) or (
            numbers and isinstance(value, int) and value in (0, 1))
    elif isinstance(value, bool):
        fits = False
    elif kind.kind in "iu":
        limits = np.iinfo(kind)
        fits = isinstance(value, int) and limits.min <= value <= limits.max
    elif isinstance(value, int):
        fits = abs(value) < 2**1000 and float(value) == value
        if fits:
            value = float(value)         # the types of ml_dtypes take no ints of many bits
            fits = held(value, kind) == value
    else:
        fits = isinstance(value, float) and (
            -FEW < value < FEW or not np.isfinite(value) or np.isfinite(held(value, kind)))
    if not fits:
        raise InputError(
            f"{what} is {kind} and takes {wanted(kind, numbers)}, not {value!r}" if what
            else f"{value!r} is no element of {kind}, which takes {wanted(kind, numbers)}")
    return np.array(value, dtype=kind)


cdef double held(value, kind):
    """What a float type makes of a number."""
    with np.errstate(over="ignore"):
        return float(np.array(value, dtype=kind))


cdef str wanted(kind, bint numbers):
    if kind == np.bool_:
        return "True, False, 0 or 1" if numbers else "True or False"
    if kind.kind in "iu":
        return f"an int from {np.iinfo(kind).min} to {np.iinfo(kind).max}"
    limit = f" up to {np.finfo(kind).max}" if kind.kind == "f" else ""
    return f"a float{limit}, or an int that it holds exactly"


def check_stream(stream):
    """Raise UnsupportedError unless `stream` is None."""
    if stream is not None:
        raise UnsupportedError(
            "streams: the cpu does its work within the call; leave stream=None")


# The stream of the driver's own that is another one in each thread.
cdef int PER_THREAD = 2


cdef bint is_handle(handle) except -1:
    return (isinstance(handle, int) and not isinstance(handle, bool)
            and 0 <= int.__pos__(handle) < 1 << 64)


def check_handle(handle):
    """Return the number of a CUstream; InputError where it is none, or another in each thread."""
    if not is_handle(handle):
        raise InputError(f"the handle of a stream is the number of a CUstream, not {handle!r}")
    number = int.__pos__(handle)
    if number == PER_THREAD:
        raise InputError(
            "stream 2 is cudaStreamPerThread, which is another stream in each thread that uses "
            "it: give a stream of your own, or 1, the legacy stream")
    return number


def handle_of(stream):
    """Return what another library's stream gives as its handle; InputError where there is none."""
    if isinstance(stream, int):
        raise InputError(
            f"a stream's number ({stream:#x}) does not keep it alive: give the stream itself, or "
            "Stream.borrow(handle, owner)")
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], int)
                and answer[0] == 0 and is_handle(answer[1])):
            raise InputError(
                f"__cuda_stream__ of {stream!r} gives {answer!r}; (0, handle) is known")
        return answer[1]
    handle = getattr(stream, "cuda_stream", None)
    if isinstance(handle, int):
        return handle
    raise InputError(f"{stream!r} is no stream: it has no __cuda_stream__")


def check_out(tuple specs, out):
    """Return `out` as a list of arrays that fit the outputs `specs`, or raise InputError."""
    if isinstance(out, dict):
        raise InputError("out is a sequence of arrays in output order, not a mapping")
    if isinstance(out, (str, bytes)) or not hasattr(out, "__iter__"):
        raise InputError(
            f"out is a sequence of arrays in output order, not {type(out).__name__}")
    arrays = list(out)
    if len(arrays) != len(specs):
        raise InputError(
            f"out has {len(arrays)} arrays; the graph has {len(specs)} outputs")
    for i, array in enumerate(arrays):
        check_output(specs[i], array)
    check_disjoint(arrays, [spec[0] for spec in specs])
    return arrays


def check_output(tuple spec, array):
    """Raise InputError unless `array` can take the output `spec`."""
    name, shape, dtype = spec
    if not isinstance(array, np.ndarray):
        raise InputError(f"output {name!r}: {type(array).__name__} is not a NumPy array")
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"output {name!r} is {describe(shape, dtype)}, not "
            f"{describe(array.shape, array.dtype)}")
    if not array.flags.writeable:
        raise InputError(f"the array for output {name!r} is read-only")
    if overlaps_itself(array):
        raise InputError(f"the array for output {name!r} has the same bytes for several elements")


cdef bint overlaps_itself(array):
    """Tell whether axes may step over each other: no array that NumPy makes writable does."""
    reach = array.itemsize
    if not array.size:
        return False
    for stride, size in sorted(
            [(abs(s), n) for s, n in zip(array.strides, array.shape) if n > 1]):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


cdef bint shared(a, b):
    """Tell whether two arrays have a byte in common; yes where that is too hard to say."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)
    except np.exceptions.TooHardError:
        return True


def check_disjoint(arrays, names):
    """Raise InputError if two of the arrays to be written share memory."""
    for i, array in enumerate(arrays):
        for j in range(i):
            if shared(array, arrays[j]):
                raise InputError(f"outputs {names[j]!r} and {names[i]!r} were given the same bytes")


def dense(str what, value, shape, dtype, bint written):
    """Return (array, address) of the caller's own bytes; InputError where only a copy would do."""
    if not (isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")
            or hasattr(value, "__array_interface__") or has_memory(value)) \
            or isinstance(value, np.generic):
        raise InputError(f"{what}: a {type(value).__name__} has no fixed bytes; bind an array")
    array = as_array(what, value, shape, dtype)
    if array.shape != tuple(shape) or array.dtype != dtype:
        raise InputError(
            f"{what} is {describe(shape, dtype)}, not {describe(array.shape, array.dtype)}")
    if not PyArray_ISCARRAY_RO(<cnp.ndarray> array):
        raise InputError(f"{what}: bind needs a dense aligned array; use np.ascontiguousarray")
    if written and not array.flags.writeable:
        raise InputError(f"{what}: the array is read-only")
    return array, <uintptr_t> cnp.PyArray_DATA(<cnp.ndarray> array)
