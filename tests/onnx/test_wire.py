"""Large initialisers stay where they lie in a file; whatever else a file is, protobuf says."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fastgraph as fg
from fastgraph.errors import CompileError
from fastgraph.onnx.proto import ReadModel, read_model
from fastgraph.onnx.wire import LEAST_BYTES, without_large
from tests.onnx.build import model, node

ROWS, COLUMNS = 300, 256
RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "w": RANDOM.standard_normal((COLUMNS, COLUMNS), dtype=np.float32),
    "b": RANDOM.standard_normal(COLUMNS, dtype=np.float32),
    "table": RANDOM.standard_normal((ROWS, COLUMNS), dtype=np.float32),
}


def built() -> onnx.ModelProto:
    nodes = [
        node("Gather", "table ids", "x", axis=0),
        node("MatMul", "x w", "h"),
        node("Add", "h b", "y"),
    ]
    return model(nodes, {"ids": (3,)}, ["y"], WEIGHTS, dtype=TensorProto.INT64)


def test_what_is_taken_out_is_where_it_is_said_to_be() -> None:
    data = built().SerializeToString()
    shorter, large = without_large(data)
    assert len(shorter) + sum(span.nbytes for span in large.values()) < len(data) + 1
    assert sorted(large) == [0, 2]
    message = onnx.ModelProto.FromString(shorter)
    names = [tensor.name for tensor in message.graph.initializer]
    assert names == list(WEIGHTS)
    assert not message.graph.initializer[0].HasField("raw_data")
    for number, (offset, nbytes) in large.items():
        assert data[offset : offset + nbytes] == WEIGHTS[names[number]].tobytes()
    assert ReadModel(message, data, large).whole() == built()


@pytest.mark.parametrize("shift", range(4))
def test_wherever_the_data_begins(shift: int) -> None:
    proto = built()
    proto.producer_name = "p" * (shift + 1)
    data = proto.SerializeToString()
    graph = fg.onnx.load(data)
    for value in graph.params:
        array = value.node.attrs["initial"]
        np.testing.assert_array_equal(array, WEIGHTS[value.name])
        assert not array.flags.writeable
    if shift == 0:
        assert any(np.shares_memory(v.node.attrs["initial"], in_place(data)) for v in graph.params)
    ids = np.array([5, 0, 299])
    wanted = WEIGHTS["table"][ids] @ WEIGHTS["w"] + WEIGHTS["b"]
    (found,) = fg.load(data).run({"ids": ids})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def in_place(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_other_layouts_are_left_to_protobuf() -> None:
    proto = built()
    data = proto.SerializeToString()
    graph = proto.graph.SerializeToString()
    assert without_large(data[:1000]) == (data[:1000], {})
    assert without_large(bytes(len(data)))[1] == {}
    # Of a field that comes twice protobuf merges both.
    twice = data + b"\x3a" + bytes([0])
    assert without_large(twice) == (twice, {})
    assert onnx.ModelProto.FromString(twice).graph.SerializeToString() == graph
    tensor = proto.graph.initializer[0]
    again = tensor.SerializeToString() + b"\x4a\x01x"
    other = onnx.GraphProto.FromString(graph)
    del other.initializer[:]
    head, tail = data[: data.index(graph) - 4], data[data.index(graph) + len(graph) :]
    size = len(again)
    field = b"\x2a" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + again
    body = other.SerializeToString() + field
    size = len(body)
    written = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    odd = head + b"\x3a" + written + body + tail
    assert onnx.ModelProto.FromString(odd).graph.initializer[0].raw_data == b"x"
    assert without_large(odd) == (odd, {})


def test_damaged_files_are_refused_as_ever(tmp_path) -> None:
    data = built().SerializeToString()
    rng = random.Random(0)
    for _ in range(30):
        cut = data[: rng.randrange(len(data))]
        with pytest.raises(CompileError):
            fg.onnx.load(cut)
    for _ in range(60):
        # Anything but the bytes of a tensor, or a length that they would follow.
        broken = bytearray(data)
        broken[rng.randrange(200)] = rng.randrange(256)
        shorter, large = without_large(bytes(broken))
        try:
            wanted = onnx.ModelProto.FromString(bytes(broken))
        except Exception:
            with pytest.raises(CompileError):
                fg.onnx.load(bytes(broken))
        else:
            read = ReadModel(onnx.ModelProto.FromString(shorter), bytes(broken), large)
            assert read.whole() == wanted


def test_what_does_not_fit_its_header_is_said_as_ever() -> None:
    proto = built()
    proto.graph.initializer[2].dims[0] += 1
    with pytest.raises(CompileError, match="initialiser 'table': its data do not fit its shape"):
        fg.onnx.load(proto.SerializeToString())
    proto = built()
    proto.graph.initializer[2].data_type = TensorProto.STRING
    with pytest.raises(CompileError, match="initialiser 'table': it has dtype string"):
        fg.onnx.load(proto.SerializeToString())


def test_functions_are_inlined_with_all_data_in_place() -> None:
    double = helper.make_function(
        "own", "Double", ["a"], ["c"], [helper.make_node("Add", ["a", "a"], ["c"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    large = RANDOM.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Double", ["x"], ["d"], domain="own"),
         helper.make_node("Add", ["d", "t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (COLUMNS,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (ROWS, COLUMNS))],
        [numpy_helper.from_array(large, "t")],
    )  # fmt: skip
    proto = helper.make_model(
        graph, functions=[double],
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("own", 1)], ir_version=9,
    )  # fmt: skip
    data = proto.SerializeToString()
    assert without_large(data)[1]
    read = read_model(data)
    assert read.message.graph.initializer[0].raw_data == large.tobytes()
    (found,) = fg.load(data).run({"x": np.ones(COLUMNS, "f4")})
    np.testing.assert_array_equal(found, large + 2)


def test_small_ones_are_not_looked_at() -> None:
    data = built().SerializeToString()
    assert WEIGHTS["b"].nbytes < LEAST_BYTES
    assert 1 not in without_large(data)[1]


def test_what_lies_behind_the_data_is_kept() -> None:
    """Fields of a message may come in any order: here the name of a tensor is its last one."""
    proto = built()
    tensor = proto.graph.initializer[0]
    before = TensorProto(dims=tensor.dims, data_type=tensor.data_type).SerializeToString()
    raw = TensorProto(raw_data=tensor.raw_data).SerializeToString()
    name = TensorProto(name=tensor.name).SerializeToString()
    del proto.graph.initializer[0]
    graph = _field(5, before + raw + name) + proto.graph.SerializeToString()
    proto.ClearField("graph")
    data = proto.SerializeToString() + _field(7, graph)
    shorter, large = without_large(data)
    assert sorted(large) == [0, 2]
    assert onnx.ModelProto.FromString(shorter).graph.initializer[0].name == "w"
    loaded = {value.name: value.node.attrs["initial"] for value in fg.onnx.load(data).params}
    np.testing.assert_array_equal(loaded["w"], WEIGHTS["w"])


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes, as protobuf writes it."""
    length, written = len(value), bytearray([number << 3 | 2])
    while length > 127:
        written.append(length & 127 | 128)
        length >>= 7
    return bytes(written) + bytes([length]) + value


def test_a_field_that_ends_beyond_the_file_is_left_to_protobuf() -> None:
    data = built().SerializeToString()
    for missing in (1, LEAST_BYTES):
        assert without_large(data[:-missing]) == (data[:-missing], {})
