"""The operators of graphs, as functions of values.

Names and parameters are NumPy 2's where NumPy has the function, else those of
torch.nn.functional, else ONNX's, else our own; ``fastgraph ops`` lists them all.
"""

from __future__ import annotations

from fastgraph.ir.ops.arithmetic import (
    add,
    divide,
    floor_divide,
    maximum,
    minimum,
    multiply,
    power,
    remainder,
    subtract,
)
from fastgraph.ir.ops.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from fastgraph.ir.ops.functions import (
    erf,
    exp,
    gelu,
    log,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    tanh,
)
from fastgraph.ir.ops.indexing import concat, getitem, slice, take
from fastgraph.ir.ops.matmul import matmul
from fastgraph.ir.ops.normalization import layer_norm, rms_norm, softmax
from fastgraph.ir.ops.reduction import argmax, max, mean, min, prod, sum
from fastgraph.ir.ops.shaping import broadcast_to, expand_dims, reshape, squeeze, transpose
from fastgraph.ir.ops.unary import abs, astype, ceil, clip, floor, negative, sign, square

__all__ = [
    "abs",
    "add",
    "argmax",
    "astype",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "divide",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "floor",
    "floor_divide",
    "gelu",
    "getitem",
    "greater",
    "greater_equal",
    "layer_norm",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "prod",
    "reciprocal",
    "relu",
    "remainder",
    "reshape",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "slice",
    "softmax",
    "sqrt",
    "square",
    "squeeze",
    "subtract",
    "sum",
    "take",
    "tanh",
    "transpose",
    "where",
]
