"""Parameter types from the mangled name of a C++ kernel, as the Itanium ABI writes it.

Everything that cannot occur in the name of a kernel, or says nothing about its parameters
(expressions in template arguments, operators, constructors), makes the whole name unreadable:
the caller then looks elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastgraph.device.arguments import Parameter
from fastgraph.device.cuda.dtypes import BFLOAT16

__all__ = ["is_mangled", "parameters_of", "parameters_of_probe"]

_BUILTINS: dict[str, tuple[str, str | None]] = {
    "v": ("void", None),
    "b": ("bool", "?"),
    "c": ("char", "i1"),
    "a": ("signed char", "i1"),
    "h": ("unsigned char", "u1"),
    "s": ("short", "i2"),
    "t": ("unsigned short", "u2"),
    "i": ("int", "i4"),
    "j": ("unsigned int", "u4"),
    "l": ("long", "i8"),
    "m": ("unsigned long", "u8"),
    "x": ("long long", "i8"),
    "y": ("unsigned long long", "u8"),
    "f": ("float", "f4"),
    "d": ("double", "f8"),
    "w": ("wchar_t", "i4"),
    "n": ("__int128", None),
    "o": ("unsigned __int128", None),
    "e": ("long double", None),
    "g": ("__float128", None),
}
_D_BUILTINS: dict[str, tuple[str, str | None]] = {
    "n": ("std::nullptr_t", None),
    "h": ("half", "f2"),
    "s": ("char16_t", "u2"),
    "i": ("char32_t", "u4"),
    "u": ("char8_t", "u1"),
}
_STANDARD = {
    "a": "std::allocator",
    "b": "std::basic_string",
    "s": "std::string",
    "i": "std::istream",
    "o": "std::ostream",
    "d": "std::iostream",
}
# Classes that hold one number and nothing else.
_CLASS_DTYPES = {"__half": np.dtype("f2"), "__nv_bfloat16": BFLOAT16}
MAX_DEPTH = 100


class _Unreadable(Exception):
    pass


class _Type(NamedTuple):
    """A type, as far as a parameter needs it: `parts` of a function or pack, else one pointee."""

    kind: str  # value, pointer, function, pack, class, other
    text: str
    dtype: np.dtype[np.generic] | None = None
    const: bool = False
    parts: tuple[_Type, ...] = ()


def is_mangled(name: str) -> bool:
    """Whether a name is that of a C++ function, with its parameter types."""
    return name.startswith("_Z")


def parameters_of(name: str) -> tuple[Parameter, ...] | None:
    """Return the parameters that a mangled name tells, None if it cannot be read.

    The sizes of classes and enumerations are not in a name: such parameters have no `nbytes`.
    """
    try:
        reader = _Reader(name)
        return _as_parameters(reader.whole())
    except (_Unreadable, RecursionError):
        return None


def parameters_of_probe(name: str) -> tuple[Parameter, ...] | None:
    """Return the parameters of the function pointer that a template's first argument is."""
    try:
        reader = _Reader(name)
        reader.whole()
        pointer = reader.arguments[0] if reader.arguments else None
        if pointer is None or pointer.kind != "pointer" or pointer.parts[0].kind != "function":
            return None
        return _as_parameters(pointer.parts[0].parts[1:])
    except (_Unreadable, RecursionError):
        return None


def _as_parameters(types: tuple[_Type, ...]) -> tuple[Parameter, ...]:
    if len(types) == 1 and types[0].text == "void":
        return ()
    return tuple(map(_as_parameter, types))


def _as_parameter(given: _Type) -> Parameter:
    if given.kind in ("pack", "function") or given.text == "void":
        raise _Unreadable
    if given.kind != "pointer":
        return Parameter(given.dtype, False, False, given.text)
    target = given.parts[0]
    if target.kind == "function":
        return Parameter(None, False, False, given.text)
    return Parameter(target.dtype, True, target.const, given.text)


def _pointer(target: _Type) -> _Type:
    if target.kind == "pack":
        return target._replace(parts=tuple(map(_pointer, target.parts)))
    text = target.text + ("*" if target.text.endswith("*") else " *")
    return _Type("pointer", text, None, False, (target,))


def _qualified(inner: _Type, qualifiers: str) -> _Type:
    if inner.kind == "pack":
        return inner._replace(parts=tuple(_qualified(part, qualifiers) for part in inner.parts))
    if "K" not in qualifiers:
        return inner
    after = inner.kind == "pointer"
    text = f"{inner.text}const" if after else f"const {inner.text}"
    return inner._replace(text=text, const=True)


class _Reader:
    """Reads one mangled name from left to right; raises _Unreadable where it cannot."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.known: list[_Type] = []  # what S_, S0_ … stand for
        self.arguments: tuple[_Type, ...] | None = None  # what T_, T0_ … stand for
        self.depth = 0

    # ---- characters

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, wanted: str) -> bool:
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise _Unreadable

    def match(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if not found:
            raise _Unreadable
        self.at = found.end()
        return found.group()

    def index(self, digits: str, base: int) -> int:
        """``_`` → 0, ``0_`` → 1, ``1_`` → 2."""
        number = self.match(f"[{digits}]*_")[:-1]
        return int(number, base) + 1 if number else 0

    def learn(self, node: _Type) -> _Type:
        self.known.append(node)
        return node

    # ---- names

    def whole(self) -> tuple[_Type, ...]:
        """All of it: the parameter types."""
        self.expect("_Z")
        parameters = self.encoding()
        # What a compiler adds behind a function that it has copied.
        if self.at < len(self.text) and self.peek() not in ".$":
            raise _Unreadable
        return parameters

    def encoding(self) -> tuple[_Type, ...]:
        _, is_template = self.name(True)
        if is_template:
            self.type()  # what it returns
        return self.types_until("E.$")

    def types_until(self, ends: str) -> tuple[_Type, ...]:
        types: list[_Type] = []
        while self.at < len(self.text) and self.peek() not in ends:
            node = self.type()
            types += node.parts if node.kind == "pack" else (node,)
        return tuple(types)

    def name(self, is_function: bool = False) -> tuple[str, bool]:
        """A name that is no type of itself: its text, and whether template arguments end it."""
        if self.peek() == "N":
            return self.nested(is_function)
        if self.peek() == "Z":
            return self.local(), False
        if self.peek() == "S" and self.peek(2) != "St":
            text = self.substitution().text
        else:
            text = ("std::" if self.take("St") else "") + self.unqualified()
            if self.peek() == "I":
                self.learn(_Type("class", text))
        if self.peek() != "I":
            return text, False
        arguments, shown = self.template_arguments()
        if is_function:
            self.arguments = arguments
        return text + shown, True

    def nested(self, is_function: bool) -> tuple[str, bool]:
        self.expect("N")
        self.match("[rVK]*[RO]?")
        text, is_template = "", False
        while not self.take("E"):
            first = self.peek()
            is_standalone = False
            if first == "I":
                arguments, shown = self.template_arguments()
                if is_function:
                    self.arguments = arguments
                text, is_template = text + shown, True
            elif self.peek(2) == "St":
                self.expect("St")
                text, is_standalone = "std", True
            elif first == "S":
                text, is_standalone = self.substitution().text, True
            elif first == "T":
                text, is_standalone = self.template_parameter().text, True
            else:
                part = self.unqualified()
                text, is_template = f"{text}::{part}" if text else part, False
            if not is_standalone and self.peek() != "E":
                self.learn(_Type("class", text))
        return text, is_template

    def local(self) -> str:
        """A type that lives in a function."""
        self.expect("Z")
        kept = self.arguments
        self.encoding()
        self.arguments = kept
        self.expect("E")
        if self.take("s"):
            text = "string literal"
        else:
            text, _ = self.name()
        if self.peek() == "_":
            self.match(r"_\d|__\d+_")
        return text

    def unqualified(self) -> str:
        self.take("L")
        if self.take("Ul"):
            self.types_until("E")
            self.expect("E")
            self.index("0-9", 10)
            return "lambda"
        if self.take("Ut"):
            self.index("0-9", 10)
            return "unnamed type"
        text = self.source_name()
        while self.take("B"):
            self.source_name()
        return text

    def source_name(self) -> str:
        length = int(self.match(r"[1-9]\d{0,5}"))
        text = self.peek(length)
        if len(text) < length:
            raise _Unreadable
        self.at += length
        return "(anonymous namespace)" if text.startswith("_GLOBAL__N") else text

    def substitution(self) -> _Type:
        self.expect("S")
        if self.peek() in _STANDARD:
            text = _STANDARD[self.peek()]
            self.at += 1
            return _Type("class", text)
        number = self.index("0-9A-Z", 36)
        if number >= len(self.known):
            raise _Unreadable
        return self.known[number]

    def template_parameter(self) -> _Type:
        self.expect("T")
        number = self.index("0-9", 10)
        if self.arguments is None or number >= len(self.arguments):
            raise _Unreadable
        return self.learn(self.arguments[number])

    def template_arguments(self) -> tuple[tuple[_Type, ...], str]:
        self.expect("I")
        arguments = []
        while not self.take("E"):
            arguments.append(self.template_argument())
        return tuple(arguments), f"<{', '.join(node.text for node in arguments)}>"

    def template_argument(self) -> _Type:
        if self.take("J"):
            parts = []
            while not self.take("E"):
                parts.append(self.template_argument())
            return _Type("pack", ", ".join(part.text for part in parts), parts=tuple(parts))
        if self.take("XadL_Z"):
            node = self.function_argument()
            self.expect("E")
            return node
        if self.take("L_Z"):
            return self.function_argument()
        if self.take("L"):
            self.type()
            value = self.match("n?[0-9a-zA-Z]*?E")[:-1]
            return _Type("other", value.replace("n", "-") or "nullptr")
        return self.type()

    def function_argument(self) -> _Type:
        kept = self.arguments
        text, is_template = self.name(True)
        if is_template:
            self.type()
        self.types_until("E")
        self.arguments = kept
        self.expect("E")
        return _Type("other", text)

    # ---- types

    def type(self) -> _Type:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Unreadable
        try:
            return self._type()
        finally:
            self.depth -= 1

    def _type(self) -> _Type:
        first = self.peek()
        if first in _BUILTINS and first:
            self.at += 1
            text, code = _BUILTINS[first]
            return _Type("value", text, None if code is None else np.dtype(code))
        if first in "rVK" and first:
            qualifiers = self.match("[rVK]+")
            return self.learn(_qualified(self.type(), qualifiers))
        if first == "D":
            return self.d_type()
        if first == "S" and self.peek(2) != "St":
            return self.with_arguments(self.substitution())
        if first == "T":
            if self.peek(2) in ("Ts", "Tu", "Te"):  # struct, union, enum
                self.at += 2
                return self.class_type()
            return self.with_arguments(self.template_parameter())
        readers: dict[str, Callable[[], _Type]] = {
            "P": lambda: _pointer(self.type()),
            "R": self.reference,
            "O": self.reference,
            "F": self.function,
            "A": self.array,
            "M": self.member_pointer,
            "C": self.other,
            "G": self.other,
            "U": self.vendor_qualified,
            "u": self.vendor,
        }
        if first in readers:
            if first not in "FA":
                self.at += 1
            return self.learn(readers[first]())
        return self.class_type()

    def with_arguments(self, node: _Type) -> _Type:
        """What a template's name stands for, with the arguments that may follow it."""
        if self.peek() != "I":
            return node
        _, shown = self.template_arguments()
        return self.learn(_Type("class", node.text + shown))

    def class_type(self) -> _Type:
        if not re.match(r"[NZ\d]|St", self.peek(2)):
            raise _Unreadable
        text, _ = self.name()
        return self.learn(_Type("class", text, _CLASS_DTYPES.get(text)))

    def reference(self) -> _Type:
        return _Type("other", f"{self.type().text} &")

    def other(self) -> _Type:
        return _Type("other", f"_Complex {self.type().text}")

    def function(self) -> _Type:
        self.expect("F")
        self.take("Y")
        parts = self.types_until("E")
        self.expect("E")
        if not parts:
            raise _Unreadable
        text = f"{parts[0].text} ({', '.join(part.text for part in parts[1:])})"
        return _Type("function", text, parts=parts)

    def array(self) -> _Type:
        self.expect("A")
        length = self.match(r"\d*_")[:-1]
        inner = self.type()
        return _Type("other", f"{inner.text}[{length}]", inner.dtype, inner.const)

    def member_pointer(self) -> _Type:
        owner, member = self.type(), self.type()
        return _Type("other", f"{member.text} {owner.text}::*")

    def vendor_qualified(self) -> _Type:
        self.source_name()
        if self.peek() == "I":
            self.template_arguments()
        return self.type()

    def vendor(self) -> _Type:
        text = self.source_name()
        if self.peek() == "I":
            text += self.template_arguments()[1]
        return _Type("other", text)

    def d_type(self) -> _Type:
        self.expect("D")
        kind = self.peek()
        self.at += 1
        if kind in _D_BUILTINS and kind:
            text, code = _D_BUILTINS[kind]
            return _Type("value", text, None if code is None else np.dtype(code))
        if kind == "F":
            return self.d_float()
        if kind == "p":
            node = self.type()
            if node.kind != "pack":
                raise _Unreadable
            return self.learn(node)
        if kind == "v":
            length = self.match(r"\d+_")[:-1]
            return self.learn(_Type("other", f"{self.type().text} vector of {length}"))
        if kind == "o":
            return self.learn(self.function())
        raise _Unreadable

    def d_float(self) -> _Type:
        """``DF16_`` is a half, ``DF16b`` a bfloat16, ``DF32_`` a float."""
        bits = self.match(r"\d+[_bx]")
        known = {"16_": "f2", "32_": "f4", "64_": "f8"}
        if bits == "16b":
            return _Type("value", "bfloat16", BFLOAT16)
        return _Type(
            "value", f"_Float{bits[:-1]}", np.dtype(known[bits]) if bits in known else None
        )
