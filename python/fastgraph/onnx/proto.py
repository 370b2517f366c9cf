"""The one file that calls the ``onnx`` package: parsing, tensors, schemas.

Everything else in this folder reads the parsed messages, which are plain objects.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph.errors import CompileError, InputError, UnsupportedError
from fastgraph.onnx.wire import Span, without_large

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

# The extra is optional: importing fastgraph works without it, using it says what to install.
try:
    import onnx
    import onnx.defs
    import onnx.external_data_helper
    import onnx.helper
    import onnx.inliner
    import onnx.numpy_helper
except ImportError as error:
    _MISSING: ImportError | None = error
else:
    _MISSING = None

__all__ = [
    "NEWEST_OPSET",
    "OLDEST_OPSET",
    "ReadModel",
    "Signature",
    "attribute_value",
    "element_type_name",
    "has_onnx",
    "read_model",
    "require_onnx",
    "signature_of",
    "tensor_array",
]

# The opsets whose operator definitions were read and compared when the rules here were written.
OLDEST_OPSET = 7
NEWEST_OPSET = 28

_DATA_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}
# Types whose bytes in a file are an array's, where this machine has their order.
_PLAIN = {
    number: np.dtype(name)
    for number, name in _DATA_TYPES.items()
    if sys.byteorder == "little" and name not in ("string", "bfloat16")
}
# Where the numbers of an attribute are, by its type.
_FIELDS = {1: "f", 2: "i"}


def has_onnx() -> bool:
    """Tell whether the ``onnx`` extra is installed; without it `load` raises UnsupportedError.

    Returns
    -------
    bool

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.onnx.has_onnx()
    True
    """
    return _MISSING is None


def require_onnx() -> None:
    """Raise UnsupportedError with the install line unless the ``onnx`` extra is there."""
    if _MISSING is not None:
        raise UnsupportedError(
            "reading ONNX files needs the onnx package, which is not installed: "
            'pip install "fastgraph-runtime[onnx]"'
        ) from _MISSING


def element_type_name(elem_type: int) -> str:
    """The dtype name of an ONNX element type, or ``ONNX type 99`` for one that has none."""
    known = _DATA_TYPES.get(elem_type)
    if known:
        return known
    for name, number in onnx.TensorProto.DataType.items():
        if number == elem_type:
            return str(name).lower()
    return f"unknown element type {elem_type}"


def tensor_array(tensor: TensorProto, data: bytes = b"", span: Span | None = None) -> np.ndarray:
    """The tensor's contents; ValueError, without its name, if they do not fit its header.

    Those of a large one lie at `span` of the model's `data`.
    """
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ValueError("its data lie in an external file, which was not given")
    dims, dtype = tensor.dims[:], _PLAIN.get(tensor.data_type)
    if tensor.HasField("raw_data"):
        data = tensor.raw_data
        span = Span(0, len(data))
    if span is not None and dtype is not None and not tensor.HasField("segment"):
        # As onnx reads it, without its questions.
        fits = span.nbytes == math.prod(dims) * dtype.itemsize
        if fits and span.nbytes and min(dims, default=0) >= 0 and len(dims) < 32:
            count = span.nbytes // dtype.itemsize
            return np.frombuffer(data, dtype, count, span.offset).reshape(dims)
    if span is not None and not tensor.HasField("raw_data"):
        tensor.raw_data = data[span.offset : span.offset + span.nbytes]
    name = element_type_name(tensor.data_type)
    if name.startswith("unknown") or name in ("string", "undefined"):
        raise ValueError(f"it has {name if name.startswith('unknown') else 'dtype ' + name}")
    if any(d < 0 for d in dims):
        raise ValueError(f"it has a negative dimension: {tuple(dims)}")
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"its data do not fit its shape {tuple(dims)} and dtype {name} ({error})"
        ) from error
    if name == "bfloat16" and array.dtype == np.float32:
        array = array.astype(name)  # as onnx before 1.18 gives it
    return np.ascontiguousarray(array).reshape(array.shape)


def attribute_value(attribute: AttributeProto) -> Any:
    """A number, a str, or a list of them; tensors and graphs as they are."""
    field = _FIELDS.get(attribute.type)
    if field is not None and not attribute.ref_attr_name:
        return getattr(attribute, field)
    found = onnx.helper.get_attribute_value(attribute)
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if isinstance(found, int | float) or not hasattr(found, "__len__"):
        return found
    return [f.decode("utf-8", "replace") if isinstance(f, bytes) else f for f in found]


@dataclass(frozen=True)
class Signature:
    """What ONNX says of one operator from one opset on.

    Attributes
    ----------
    attributes : dict of str to (int, str)
        Number and name of the type of each attribute.
    optional : tuple of bool
        Which inputs may be left out; the last entry holds for all further inputs.
    input_names : tuple of str
        What the definition calls the inputs.
    inputs, outputs : (int, int)
        The fewest and the most.
    """

    since: int
    attributes: dict[str, tuple[int, str]]
    optional: tuple[bool, ...]
    input_names: tuple[str, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]


@functools.lru_cache(maxsize=1024)
def signature_of(op_type: str, opset: int) -> Signature | None:
    """The definition of a default-domain operator at `opset`, or None where there is none."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return Signature(
        schema.since_version,
        {
            name: (attribute.type.value, attribute.type.name.lower())
            for name, attribute in schema.attributes.items()
        },
        tuple(formal.option.name == "Optional" for formal in schema.inputs),
        tuple(formal.name for formal in schema.inputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
    )


class ReadModel(NamedTuple):
    """A parsed model, and the bytes it is of, where `large` initialisers still have their data.

    By number in ``message.graph.initializer``, where these have no ``raw_data``.
    """

    message: ModelProto
    data: bytes = b""
    large: Mapping[int, Span] = MappingProxyType({})

    def array(self, number: int, tensor: TensorProto) -> np.ndarray:
        """An initialiser's contents, as `tensor_array` gives them."""
        return tensor_array(tensor, self.data, self.large.get(number))

    def whole(self) -> ModelProto:
        """The message with the data of all initialisers in it."""
        for number, (offset, nbytes) in self.large.items():
            tensor = self.message.graph.initializer[number]
            tensor.raw_data = self.data[offset : offset + nbytes]
        return self.message


def read_model(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> ReadModel:
    """Parse a file or its bytes, load external data, inline the model's own functions.

    Raises
    ------
    CompileError
        The file cannot be read, is not an ONNX model, or misses a part; names the part.
    InputError
        `source` is neither a path nor bytes.
    UnsupportedError
        The ``onnx`` package is not installed.
    """
    require_onnx()
    folder: Path | None = None
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        where = f"the model given as {len(data)} byte{'' if len(data) == 1 else 's'}"
    elif isinstance(source, str | os.PathLike) and isinstance(os.fspath(source), str):
        path = Path(source)
        folder, where = path.parent, f"{os.fspath(path)!r}"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CompileError(f"{where} cannot be read: {error.strerror or error}") from error
        except ValueError as error:  # a null byte
            raise CompileError(f"{where} cannot be read: {error}") from error
    else:
        raise InputError(
            f"a model is a path (str or os.PathLike) or the bytes of a file, "
            f"not {type(source).__name__}"
        )
    # Protobuf would copy the data of large tensors, and then again what is asked for of it.
    shorter, large = without_large(data)
    read = ReadModel(_parse(shorter, where), data, large)
    _load_external(read.message, folder, where)
    if read.message.functions:
        try:
            return ReadModel(onnx.inliner.inline_local_functions(read.whole()))
        # A function that calls itself is a ValidationError of onnx's, which derives from Exception.
        except Exception as error:
            raise CompileError(f"{where}: its functions cannot be inlined: {error}") from error
    return read


def _parse(data: bytes, where: str) -> ModelProto:
    if not data:
        raise CompileError(f"{where} is empty: no ONNX model")
    try:
        model = onnx.load_model_from_string(data)
    # The exception classes of protobuf differ between its back ends and are not ours to import.
    except Exception as error:
        raise CompileError(
            f"{where} is not an ONNX model, or is cut off: {str(error) or type(error).__name__}"
        ) from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise CompileError(f"{where} is not an ONNX model: it holds no graph")
    if not model.opset_import:
        raise CompileError(f"{where} imports no operator set: the file is cut off or damaged")
    broken = _broken_text(model)
    if broken is not None:
        raise CompileError(f"{where} is damaged: {broken!r} is no UTF-8 text")
    return model


def _broken_text(message: Any) -> bytes | None:
    """A text that protobuf hands out as bytes because it is not UTF-8, anywhere in the message."""
    for descriptor, found in message.ListFields():
        kind = descriptor.type
        if kind == descriptor.TYPE_STRING:
            try:
                "".join(found)  # One text, or several.
            except TypeError:
                texts = [found] if isinstance(found, bytes) else found
                return next(text for text in texts if isinstance(text, bytes))
        elif kind == descriptor.TYPE_MESSAGE:
            for one in [found] if hasattr(found, "ListFields") else found:
                broken = _broken_text(one)
                if broken is not None:
                    return broken
    return None


def _initialisers(graph: GraphProto) -> Iterator[TensorProto]:
    """Those of a graph and of all graphs in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _initialisers(attribute.g)


def _load_external(model: ModelProto, folder: Path | None, where: str) -> None:
    for tensor in _initialisers(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        if folder is None:
            raise CompileError(
                f"{where}: initialiser {tensor.name!r} keeps its data in an external file; "
                "load the model by its path, not as bytes"
            )
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # missing, outside the folder, a link, too short: all named
            raise CompileError(
                f"{where}: the external data of initialiser {tensor.name!r} cannot be read: {error}"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
