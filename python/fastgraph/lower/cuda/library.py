"""Large matrix products that a library does better than a kernel of the package's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastgraph.lower.call import Temp
from fastgraph.lower.cuda.launch import cost, traffic
from fastgraph.lower.cuda.planned import LibraryCall
from fastgraph.lower.cuda.registry import WIDEST, Target
from fastgraph.lower.cuda.tiles import LIBRARY, library_ns
from fastgraph.passes.rewrite import is_sized

if TYPE_CHECKING:
    from fastgraph.lower.cuda.matmul import Product

__all__ = ["by_library"]

# What it ends a product with by itself. Its GELU has eleven digits, whatever the type.
ACTIVATIONS = frozenset({"none", "relu", "gelu_tanh"})
EXACT_ACTIVATIONS = frozenset({"none", "relu"})
# How much longer products of float32 were measured to take among others than their tables say.
AMONG_OTHERS = {"f32": 1.5, "tf32": 2.1}


def by_library(product: Product, own_ns: float, target: Target) -> LibraryCall | None:
    """Return the call of a library, where there is one that is expected to take less than `own_ns`.

    It does the end of the product as well, or else its first output is no value but the sums as
    they are accumulated, and the end is left to a kernel.
    """
    kind = "tf32" if target.tf32 and product.dtype == "f32" else product.dtype
    if (
        target.library is None
        or kind not in LIBRARY
        or product.node in target.is_set
        or is_sized(product.node)  # Its descriptions have one size.
        or len(product.batch) > 1
        or not product.shape.flops
        or any(
            target.alignment(value) < WIDEST
            for value in (product.result, *product.operands)
            if not isinstance(value, Temp)  # Those lie as well as can be.
        )
    ):
        return None
    if _can_end(product):
        call = _planned(product, target, kind, own_ns, ends=True)
        if call is not None or not _has_end(product):
            return call
    return _planned(product, target, kind, own_ns, ends=False)


def _has_end(product: Product) -> bool:
    attrs = product.node.attrs
    return any(attrs[name] is not None for name in ("bias", "residual", "activation"))


def _can_end(product: Product) -> bool:
    """Whether a library ends a product like that: what is added comes before the activation."""
    attrs = product.node.attrs
    activation = attrs["activation"] or "none"
    late = attrs["residual"] is not None and not attrs["residual_first"]
    known = EXACT_ACTIVATIONS if product.dtype == "f64" else ACTIVATIONS
    return activation in known and not (late and activation != "none")


def _planned(
    product: Product, target: Target, kind: str, own_ns: float, *, ends: bool
) -> LibraryCall | None:
    shape, attrs = product.shape, product.node.attrs
    sums = 0 if ends else shape.matrices * shape.m * shape.n * (8 if kind == "f64" else 4)
    own_ns *= AMONG_OTHERS.get(kind, 1.0)
    if library_ns(kind, shape, target.multiprocessors, 2 * sums) >= own_ns:
        return None
    assert target.library is not None
    ((_, x_step, w_step),) = product.batch or ((1, 0, 0),)
    planned = target.library.plan(
        kind=product.dtype,
        result=product.dtype if ends or kind == "f64" else "f32",
        tf32=target.tf32,
        matrices=shape.matrices,
        m=shape.m,
        n=shape.n,
        k=shape.k,
        x_transposed=product.x_transposed,
        w_transposed=product.w_transposed,
        x_step=x_step,
        w_step=w_step,
        bias=ends and attrs["bias"] is not None,
        activation=(ends and attrs["activation"]) or "none",
        residual=ends and attrs["residual"] is not None,
    )
    if planned is None:
        return None
    result = product.result if ends else Temp(sums, "sums")
    scratch = planned.workspace_nbytes
    operands = product.operands if ends else product.operands[:2]
    nbytes = traffic((result, *operands))
    return LibraryCall(
        planned,
        (result, Temp(scratch, "workspace")) if scratch else (result,),
        operands,
        inplace=product.inplace if ends else (),
        flops=shape.flops,
        nbytes=nbytes,
        label="fused_matmul, cuBLASLt",
        cost_ns=cost(shape.flops, nbytes),
    )
