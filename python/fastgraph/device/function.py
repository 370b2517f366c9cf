"""Functions that run on a device: on cpu, native kernels with declared argument types."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastgraph._core.calls import CallPlan
from fastgraph.device.arguments import Parameter, check_arguments
from fastgraph.device.pending import PointerSlot, Scratch
from fastgraph.errors import GraphError

__all__ = ["NativeKernel", "Parameter", "parse_signature"]

MAX_ARGUMENTS = 64
# What stands for a buffer while a graph is built.
OWN = frozenset((Scratch, PointerSlot))
# What the calling conventions of x86-64 and aarch64 both hand over in registers.
MAX_C_INTEGERS = 6
MAX_C_FLOATS = 8

_TYPES = {
    "bool": "?",
    "char": "i1",
    "int8_t": "i1",
    "signed char": "i1",
    "uint8_t": "u1",
    "unsigned char": "u1",
    "int16_t": "i2",
    "short": "i2",
    "short int": "i2",
    "uint16_t": "u2",
    "unsigned short": "u2",
    "unsigned short int": "u2",
    "int32_t": "i4",
    "int": "i4",
    "signed": "i4",
    "signed int": "i4",
    "uint32_t": "u4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "int64_t": "i8",
    "long": "i8",
    "long int": "i8",
    "long long": "i8",
    "long long int": "i8",
    "ptrdiff_t": "i8",
    "uint64_t": "u8",
    "unsigned long": "u8",
    "unsigned long int": "u8",
    "unsigned long long": "u8",
    "unsigned long long int": "u8",
    "size_t": "u8",
    "half": "f2",
    "float": "f4",
    "double": "f8",
}

# A word of these cannot be a parameter's name: "long double" is no long called double.
_TYPE_WORDS = frozenset(" ".join(_TYPES).split())


class NativeKernel:
    """A compiled function of the cpu, called once for each of its nodes.

    Parameters
    ----------
    pointer : int
        Address of a function ``void f(void *const *args, const int32_t dims[6])``. ``args[i]`` is
        the address of argument i's value (of the pointer, for a pointer argument); ``dims`` holds
        grid and block sizes, x first.
    signature : str
        The parameters as in C: ``"float *out, const float *a, int n"``. A pointer to const is
        read, any other pointer is read and written; names may be left out.
    name : str, optional
        For messages and node names.
    owner : object, optional
        Kept alive as long as the kernel and every graph that holds it (a loaded library).
    convention : {"array", "c"}
        "c" is for a plain C function, as ctypes, cffi or a numba cfunc give it: it is called with
        the arguments themselves and no sizes, at most 6 integers and pointers and 8 floating ones.

    Raises
    ------
    GraphError
        A type in `signature` is unknown, there are too many parameters, or `pointer` is not a
        positive integer.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.NativeKernel(4096, "float *out, float value, int n", name="fill")
    <NativeKernel fill(float *out, float value, int n)>
    """

    __slots__ = ("convention", "name", "owner", "parameters", "plan", "pointer", "signature")

    def __init__(
        self,
        pointer: int,
        signature: str,
        name: str = "native",
        owner: object = None,
        convention: str = "array",
    ) -> None:
        if isinstance(pointer, bool) or not isinstance(pointer, int) or not 0 < pointer < 1 << 63:
            raise GraphError(f"kernel {name!r}: {pointer!r} is not the address of a function")
        if not isinstance(name, str):
            raise GraphError(f"the name of a kernel is a string, not {name!r}")
        self.pointer = pointer
        self.signature = signature
        self.name = name
        self.owner = owner
        self.parameters = parse_signature(name, signature)
        self.plan = CallPlan(pointer, self.parameters, OWN)
        if convention not in ("array", "c"):
            raise GraphError(
                f"kernel {name!r}: convention is {convention!r}; 'array' and 'c' are possible"
            )
        self.convention = convention
        if convention == "c":
            self._check_registers()

    def _check_registers(self) -> None:
        floating = [p for p in self.parameters if p.is_floating]
        others = len(self.parameters) - len(floating)
        if others > MAX_C_INTEGERS or len(floating) > MAX_C_FLOATS:
            raise GraphError(
                f"kernel {self.name!r}: {others} integer or pointer and {len(floating)} floating "
                f"parameters; {MAX_C_INTEGERS} and {MAX_C_FLOATS} are possible in plain C"
            )
        for parameter in floating:
            if parameter.dtype == np.float16:
                raise GraphError(
                    f"kernel {self.name!r}: {parameter.text!r} has no place in a plain C signature"
                )

    def __repr__(self) -> str:
        return f"<NativeKernel {self.name}({self.signature})>"

    def check_arguments(self, args: tuple[Any, ...]) -> list[Any]:
        """Return for each argument its buffer, or its value as a 0-d array.

        Raises
        ------
        InputError
            The number, a type or a value does not fit; the message names the argument.
        """
        return check_arguments(self.name, self.signature, self.parameters, args)


def parse_signature(name: str, signature: str) -> tuple[Parameter, ...]:
    """Return the declared parameters of a C parameter list; GraphError for unknown types."""
    if not isinstance(signature, str):
        raise GraphError(f"kernel {name!r}: a signature is a string, not {signature!r}")
    texts = [part.strip() for part in signature.split(",")]
    if texts in ([""], ["void"]):
        return ()
    if len(texts) > MAX_ARGUMENTS:
        raise GraphError(f"kernel {name!r}: {len(texts)} parameters; {MAX_ARGUMENTS} are possible")
    parameters = []
    for text in texts:
        stars = text.count("*")
        head = text.split("*")[0] if stars else text
        words = re.findall(r"[A-Za-z_]\w*", head)
        const = "const" in words
        words = [word for word in words if word not in ("const", "volatile", "__restrict__")]
        # The last word is the parameter's name unless it belongs to the type.
        if not stars and len(words) > 1 and words[-1] not in _TYPE_WORDS:
            words = words[:-1]
        kind = " ".join(words)
        # An array, a reference or a function is no value, and would be taken for one.
        plain = re.fullmatch(r"[\w\s*]*", text)
        if stars > 1 or not plain or (kind not in _TYPES and not (stars and kind == "void")):
            raise GraphError(
                f"kernel {name!r}: parameter {text!r} has no known type; known are "
                f"{sorted(_TYPES)} and pointers to them or to void"
            )
        dtype = None if kind == "void" else np.dtype(_TYPES[kind])
        parameters.append(Parameter(dtype, bool(stars), const, text))
    return tuple(parameters)
