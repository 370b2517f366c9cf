"""Building graphs of operators."""

from typing import assert_type

import numpy as np

import fastgraph as fg

g = fg.Graph("mlp")
x = g.input("x", (1, 784))
w = g.param("w", (784, 512), dtype=np.float32)
steps = g.scalar("steps", "int32", default=0)
table = g.constant(np.zeros((4, 4), "f4"))

assert_type(x, fg.Value)
assert_type(w, fg.Value)
assert_type(steps, fg.Value)
assert_type(table, fg.Value)
assert_type(x.shape, tuple[int, ...])
assert_type(x @ w + 1.0, fg.Value)
assert_type(-x / 2, fg.Value)
assert_type(2 * x, fg.Value)
assert_type(x[:, ::-1], fg.Value)
assert_type(x.T, fg.Value)
assert_type(x < 1, fg.Value)
assert_type(fg.ops.gelu(x @ w), fg.Value)
assert_type(fg.ops.softmax(x, axis=-1), fg.Value)
assert_type(fg.ops.concat([x, x], axis=0), fg.Value)
g.output(fg.ops.relu(x), "y")
assert_type(g.copy(), fg.Graph)

# What is ignored must be an error: an unused ignore is one itself.
fg.Graph(3)  # type: ignore[arg-type]
g.input("x")  # type: ignore[call-arg]
g.output("y")  # type: ignore[arg-type]
fg.ops.gelu(x, approximation="tanh")  # type: ignore[call-arg]
fg.ops.no_such_operator(x)  # type: ignore[attr-defined]
