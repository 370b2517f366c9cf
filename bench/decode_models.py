"""A step of the decoder as an ONNX file: in ONNX's operators or ONNX Runtime's fused ones."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from bench.decode_case import CHARACTERS, Step, seeded_weights
from bench.encoder_models import FUSED, Writer
from examples import decoder
from examples.decoder import CONTEXT, EPS, HEAD, HEADS, KV_HEADS, LAYERS, WIDTH

__all__ = ["caches_of", "decode_model"]


def caches_of(step: Step, *, fused: bool) -> tuple[int, int]:
    """How many places the caches have before a step and after it."""
    return (CONTEXT, CONTEXT) if fused else (step.past, step.past + 1)


def decode_model(step: Step, *, fused: bool = False) -> bytes:
    """The dense decoder for the character behind `past` others.

    In ONNX's own operators caches grow by one place, and the place is known. With `fused` they
    are `GroupQueryAttention`'s, which writes the new place where the old ones are, and norms are
    `SkipSimplifiedLayerNormalization`.
    """
    w = seeded_weights(step.experts).arrays
    g = Writer()
    before, after = caches_of(step, fused=fused)
    cos, sin = decoder.rotations()

    def times(x: str, name: str) -> str:
        return g.add("MatMul", x, g.constant(name, w[name]))

    def norm(x: str, name: str) -> str:
        if fused:
            return g.add(
                "SimplifiedLayerNormalization", x, g.constant(name, w[name]), axis=-1, epsilon=EPS
            )
        mean = g.add("ReduceMean", g.add("Mul", x, x), g.ints(-1), keepdims=1)
        root = g.add("Sqrt", g.add("Add", mean, g.constant("eps", np.float32(EPS))))
        return g.add("Mul", g.add("Div", x, root), g.constant(name, w[name]))

    def turn(x: str) -> str:
        a, b = f"{x}_a", f"{x}_b"
        halves = g.ints(HEAD // 2, HEAD // 2)
        g.nodes.append(helper.make_node("Split", [x, halves], [a, b], axis=-1))
        c = g.constant("cos", cos[step.past])
        s = g.constant("sin", sin[step.past])
        first = g.add("Sub", g.add("Mul", a, c), g.add("Mul", b, s))
        second = g.add("Add", g.add("Mul", b, c), g.add("Mul", a, s))
        return g.add("Concat", first, second, axis=-1)

    def apart(x: str, heads: int) -> str:
        return g.add("Reshape", x, g.ints(1, heads, 1, HEAD))

    def plain_attention(n: str, own: str, i: int) -> str:
        q = turn(apart(times(n, f"{own}.query"), HEADS))
        k = turn(apart(times(n, f"{own}.key"), KV_HEADS))
        v = apart(times(n, f"{own}.value"), KV_HEADS)
        both = []
        for part, new in (("keys", k), ("values", v)):
            node = helper.make_node("Concat", [f"{part}.{i}", new], [f"new {part}.{i}"], axis=2)
            g.nodes.append(node)
            both.append(f"new {part}.{i}")
        # The heads of one key head are rows of one product.
        q = g.add("Reshape", q, g.ints(1, KV_HEADS, HEADS // KV_HEADS, HEAD))
        scores = g.add("MatMul", q, g.add("Transpose", both[0], perm=[0, 1, 3, 2]))
        scores = g.add("Mul", scores, g.constant("scale", np.float32(1 / math.sqrt(HEAD))))
        mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), both[1])
        return g.add("Reshape", mixed, g.ints(1, 1, HEADS * HEAD))

    def fused_attention(n: str, own: str, i: int) -> str:
        given = [times(n, f"{own}.{part}") for part in ("query", "key", "value")]
        held = [f"keys.{i}", f"values.{i}", "last", "total"]
        angles = [g.constant("cos", cos), g.constant("sin", sin)]
        name = f"attention_{i}"
        g.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*given, *held, *angles],
                [name, f"new keys.{i}", f"new values.{i}"],
                domain=FUSED,
                num_heads=HEADS,
                kv_num_heads=KV_HEADS,
                do_rotary=1,
            )
        )
        return name

    x = g.add("Gather", g.constant("embedding", w["embedding"]), "ids", axis=0)
    x = g.add("Reshape", x, g.ints(1, 1, WIDTH))
    for i in range(LAYERS):
        own = f"layer.{i}"
        n = norm(x, f"{own}.attention_norm")
        mixed = (fused_attention if fused else plain_attention)(n, own, i)
        x = g.add("Add", x, times(mixed, f"{own}.output"))
        n = norm(x, f"{own}.mlp_norm")
        gate = times(n, f"{own}.gate")
        inner = g.add("Mul", gate, g.add("Sigmoid", gate))
        inner = g.add("Mul", inner, times(n, f"{own}.up"))
        x = g.add("Add", x, times(inner, f"{own}.down"))
    x = g.add("Reshape", norm(x, "norm"), g.ints(1, WIDTH))
    g.nodes.append(helper.make_node("MatMul", [x, g.constant("head", w["embedding"].T)], ["y"]))
    shape = helper.make_tensor_value_info
    names = [f"{part}.{i}" for i in range(LAYERS) for part in ("keys", "values")]
    inputs = [shape("ids", TensorProto.INT64, (1,))]
    if fused:
        g.constant("last", np.array([step.past], np.int32))
        g.constant("total", np.array(CONTEXT, np.int32))
    inputs += [shape(n, TensorProto.FLOAT, (1, KV_HEADS, before, HEAD)) for n in names]
    outputs = [shape("y", TensorProto.FLOAT, (1, CHARACTERS))]
    outputs += [shape(f"new {n}", TensorProto.FLOAT, (1, KV_HEADS, after, HEAD)) for n in names]
    constants = [numpy_helper.from_array(array, name) for name, array in g.constants.items()]
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
