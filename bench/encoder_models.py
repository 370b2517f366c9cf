"""The encoder as an ONNX file: in ONNX's own operators, or with ONNX Runtime's fused ones."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bench.encoder import EPS, HEADS, LAYERS, WIDTH, Sentence, seeded_weights

__all__ = ["encoder_model"]

FUSED = "com.microsoft"


class Writer:
    """Nodes and constants in the making."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, array: np.ndarray) -> str:
        """The name of a constant, entered once."""
        self.constants.setdefault(name, np.ascontiguousarray(array))
        return name

    def ints(self, *numbers: int) -> str:
        """The name of a constant of these numbers."""
        return self.constant(f"ints{'_'.join(map(str, numbers))}", np.array(numbers, np.int64))

    def add(self, op: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        """The name of a new node's first output."""
        name = f"{op}_{len(self.nodes)}"
        node = helper.make_node(op, list(inputs), [name], name, domain=domain, **attrs)
        self.nodes.append(node)
        return name


def encoder_model(sentence: Sentence, *, fused: bool = False) -> bytes:
    """The encoder for sentences of this length; with `fused` in ONNX Runtime's own operators.

    These are the ones that its transformer optimiser writes: attention with packed projections,
    norms with the sum before them, GELU with the bias before it.
    """
    w = seeded_weights()
    g = Writer()

    def weight(name: str) -> str:
        return g.constant(f"{name}.weight", w[f"{name}.weight"].T)

    def bias(name: str) -> str:
        return g.constant(f"{name}.bias", w[f"{name}.bias"])

    def linear(x: str, name: str) -> str:
        return g.add("Add", g.add("MatMul", x, weight(name)), bias(name))

    def norm(x: str, y: str, name: str) -> str:
        parts = [g.constant(f"{name}.LayerNorm.{k}", w[f"{name}.LayerNorm.{k}"])
                 for k in ("weight", "bias")]  # fmt: skip
        if fused:
            return g.add("SkipLayerNormalization", x, y, *parts, domain=FUSED, epsilon=EPS)
        return g.add("LayerNormalization", g.add("Add", x, y), *parts, axis=-1, epsilon=EPS)

    def plain_attention(x: str, name: str) -> str:
        size = WIDTH // HEADS
        apart = g.ints(1, sentence.tokens, HEADS, size)
        q, k, v = (
            g.add("Reshape", linear(x, f"{name}.{part}"), apart)
            for part in ("query", "key", "value")
        )
        q, v = (g.add("Transpose", y, perm=[0, 2, 1, 3]) for y in (q, v))
        scores = g.add("MatMul", q, g.add("Transpose", k, perm=[0, 2, 3, 1]))
        root = g.constant("root", np.float32(math.sqrt(size)))
        weights = g.add("Softmax", g.add("Div", scores, root), axis=-1)
        mixed = g.add("Transpose", g.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        return g.add("Reshape", mixed, g.ints(1, sentence.tokens, WIDTH))

    def fused_attention(x: str, name: str) -> str:
        names = [f"{name}.{part}" for part in ("query", "key", "value")]
        packed = np.concatenate([w[f"{one}.weight"].T for one in names], axis=1)
        added = np.concatenate([w[f"{one}.bias"] for one in names])
        return g.add(
            "Attention", x, g.constant(f"{name}.packed", packed),
            g.constant(f"{name}.packed.bias", added), domain=FUSED, num_heads=HEADS,
        )  # fmt: skip

    words = g.constant("words", w["embeddings.word_embeddings.weight"])
    places = w["embeddings.position_embeddings.weight"][: sentence.tokens]
    places = places + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(g.add("Gather", words, "ids", axis=0), g.constant("places", places[None]),
             "embeddings")  # fmt: skip
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        mixed = (fused_attention if fused else plain_attention)(x, f"{name}.attention.self")
        mixed = linear(mixed, f"{name}.attention.output.dense")
        x = norm(x, mixed, f"{name}.attention.output")
        up = f"{name}.intermediate.dense"
        if fused:
            inner = g.add("BiasGelu", g.add("MatMul", x, weight(up)), bias(up), domain=FUSED)
        else:
            inner = g.add("Gelu", linear(x, up))
        x = norm(x, linear(inner, f"{name}.output.dense"), f"{name}.output")
    pooled = g.add("ReduceMean", x, g.ints(1), keepdims=0)
    g.nodes.append(helper.make_node("LpNormalization", [pooled], ["y"], "length", axis=-1, p=2))
    graph = helper.make_graph(
        g.nodes,
        "encoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, (1, sentence.tokens))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, WIDTH))],
        [numpy_helper.from_array(array, name) for name, array in g.constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
