"""Some of each family of kernels under the compiler's address and undefined-behaviour sanitizers.

Run by `test_sanitized`, in a process that has their library loaded before all others:
``python -m tests.cuda_host.sanitized``. Exits with an error where one of them finds something.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from fastgraph.ir import ops
from tests.cuda_host import Guarded, Kernels
from tests.cuda_host.lowered import SMALL, Case, Suite, close

RNG = np.random.default_rng(24)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def cases() -> list[Case]:
    """Odd sizes, so that reading a byte too many is reading outside."""
    ends = np.array([2147483647, -2147483648, 2147483646, 0, 1, 2], "i4")
    x, half = normal(37, 13), normal(9, 24, dtype="f2")
    return [
        Case("region", lambda x, y: ops.gelu(x * 2 + y) * 3, (x, normal(13))),
        Case("vectors", lambda x, y: x + y, (normal(5003), normal(5003))),
        Case("integers", lambda x: (x * x + 3) // (x - 2147483647), (ends,)),
        Case("casts", lambda x: x.astype("int8"), (np.float32([np.nan, 1e30, -1e30, 3.7]),)),
        Case("transpose", lambda x: ops.transpose(x), (x,)),
        Case("slice", lambda x: x[::-3, 1::2], (x,)),
        Case("concat", lambda x, y: ops.concat([x, y], axis=1), (x, normal(37, 6))),
        Case("take", lambda x, i: ops.take(x, i, axis=1), (x, np.array([12, -13, 0]))),
        Case("rows", lambda x: ops.sum(x, axis=1), (x,)),
        Case("columns", lambda x: ops.argmax(x, axis=0), (x,)),
        Case("all", lambda x: ops.max(x), (normal(20011),)),
        Case("softmax", lambda x: ops.softmax(x), (half,)),
        Case("softmax of columns", lambda x: ops.softmax(x, axis=0), (x,)),
        Case("norm", lambda x, y, w: ops.layer_norm(x + y, w, w), (x, x, normal(13))),
        Case("norm in parts", lambda x: ops.rms_norm(x), (normal(1, 20011),)),
        Case("product", lambda x, w: x @ w, (normal(7, 33), normal(33, 9))),
        Case("normed product", lambda x, w: ops.layer_norm(x @ w), (normal(7, 700), normal(700, 9)),
             replace(SMALL, multiprocessors=132)),
    ]  # fmt: skip


def main() -> int:
    found = cases()
    suite = Suite(found, sanitize=True, level="-O0")
    for case in found:
        for seed in (0, 1):
            (one,) = suite.run(case, seed)
            close(one, case.expected()[0], scale=20)
    # Sanitizers that see nothing would pass all of the above.
    text = "__global__ void past(const float *x, float *y) { y[0] = x[3]; }"
    past = Kernels([(text, "past")], sanitize=True)
    three, out = (Guarded(normal(n), sanitize=True) for n in (3, 1))
    print("all is well; now a byte too many", flush=True)
    past.launch("past", (1, 1, 1), (1, 1, 1), [three, out])
    return 0


if __name__ == "__main__":
    sys.exit(main())
