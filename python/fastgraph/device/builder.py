"""The builder that a graph's build callback writes nodes with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastgraph._core import arena, buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.order import Order
from fastgraph._core.record import Operand, Record
from fastgraph.device.context import DeviceContext, check_dtype, check_shape
from fastgraph.device.function import NativeKernel
from fastgraph.device.values import pattern
from fastgraph.errors import GraphError, InputError, ScopeError, UnsupportedError

__all__ = ["DeviceGraphBuilder", "Node", "Scratch"]

# Estimates for one thread: a node, and a byte that it touches in memory.
NODE_NS = 10.0
BYTE_NS = 0.1


class Node:
    """A node of the graph being built: what `dependencies=` takes.

    Attributes
    ----------
    id : int
        Its number, in the order of adding.
    name : str
    """

    __slots__ = ("_builder", "id", "name")

    def __init__(self, builder: DeviceGraphBuilder, id: int, name: str) -> None:
        self._builder = builder
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return f"<Node {self.id} {self.name!r}>"


class Scratch:
    """Memory of the graph's own, given an address after the build; made by `create_buffer`."""

    __slots__ = ("device", "dtype", "nbytes", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize

    def __repr__(self) -> str:
        return f"<Scratch {self.dtype}{list(self.shape)}>"


class _Access(NamedTuple):
    place: Any  # Buffer | Scratch | ndarray
    reads: bool
    writes: bool


class _Pending(NamedTuple):
    name: str
    kind: str
    kernel: str | None
    accesses: list[_Access]
    params: tuple[int, ...]
    dependencies: tuple[int, ...]
    keep: object


class DeviceGraphBuilder:
    """Writes the nodes of one `DeviceGraph`; valid inside its build callback only.

    Every ``add_*`` takes ``dependencies=`` (nodes that must be done before; none makes a root) and
    ``name=``, and returns a `Node`. A call that raises adds nothing.

    Attributes
    ----------
    context : DeviceContext
    nodes : list of Node
    num_outputs : int
    """

    def __init__(self, context: DeviceContext) -> None:
        self.context = context
        self._pending: list[_Pending] = []
        self._nodes: list[Node] = []
        self._scratch: dict[int, Scratch] = {}
        self._outputs: list[Buffer | Scratch] = []
        self._open = True

    @property
    def nodes(self) -> list[Node]:
        """list of Node: what was added so far."""
        return list(self._nodes)

    @property
    def num_outputs(self) -> int:
        """int: how often `add_output` was called."""
        return len(self._outputs)

    def add_function(
        self,
        f: NativeKernel,
        *args: Any,
        grid_dim: int | Sequence[int] = 1,
        block_dim: int | Sequence[int] = 1,
        cluster_dim: object = None,
        shared_mem_bytes: int = 0,
        cooperative: bool = False,
        priority: int | None = None,
        programmatic: bool = False,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add a call of a function.

        Parameters
        ----------
        f : NativeKernel
        *args
            A buffer for each pointer, a number for each value, as `f` declares them.
        grid_dim, block_dim : int or sequence of up to 3 int
            Positive; handed to the kernel as they are.
        cluster_dim, shared_mem_bytes, cooperative
            Not on cpu: UnsupportedError when used.
        priority, programmatic
            Hints without effect on cpu.
        dependencies : iterable of Node
        name : str, optional

        Returns
        -------
        Node

        Raises
        ------
        InputError
            Number, type or value of an argument, or a buffer of another device.
        GraphError
            A dimension that is not positive, a node of another graph.
        UnsupportedError
            Something that the device cannot do.
        ScopeError
            The build is over.
        """
        self._check_open()
        if not isinstance(f, NativeKernel):
            raise UnsupportedError(f"the cpu runs NativeKernel functions, not {type(f).__name__}")
        if cluster_dim is not None or shared_mem_bytes or cooperative:
            raise UnsupportedError("the cpu has no clusters, shared memory or cooperative launches")
        dims = (*check_dims("grid_dim", grid_dim), *check_dims("block_dim", block_dim))
        values = f.check_arguments(args)
        words = np.array(dims, dtype=np.int32).view(np.int64).tolist()
        params = [f.pointer, len(values), *words]
        first_value = len(params) + len(values)
        accesses: list[_Access] = []
        stored: list[int] = []
        for parameter, value in zip(f.parameters, values, strict=True):
            if parameter.pointer:
                params.append(-1)
                place = self._place(value, written=not parameter.const)
                accesses.append(_Access(place, True, not parameter.const))
            else:
                params.append(first_value + len(stored))
                stored.append(_word(value))
        return self._add(
            f.name if name is None else name,
            "function",
            "call_native",
            accesses,
            (*params, *stored),
            dependencies,
            f,
        )

    def add_copy(
        self, dst: Any, src: Any, *, dependencies: Iterable[Node] = (), name: str | None = None
    ) -> Node:
        """Add a copy between buffers, or between a buffer and a dense host array.

        Raises
        ------
        InputError
            Sizes or dtypes differ, `dst` is read-only, a host array is not dense.
        GraphError, ScopeError
            As `add_function`.
        """
        self._check_open()
        source, target = self._place(src), self._place(dst, written=True)
        if source.nbytes != target.nbytes or source.dtype != target.dtype:
            raise InputError(
                f"copy of {source.dtype}{list(source.shape)} ({source.nbytes} bytes) to "
                f"{target.dtype}{list(target.shape)} ({target.nbytes} bytes)"
            )
        accesses = [_Access(target, False, True), _Access(source, True, False)]
        return self._add(
            "copy" if name is None else name,
            "copy",
            "copy_bytes",
            accesses,
            (source.nbytes,),
            dependencies,
            None,
        )

    def add_memset(
        self, dst: Any, value: Any, *, dependencies: Iterable[Node] = (), name: str | None = None
    ) -> Node:
        """Add a node that sets every element of the buffer `dst` to `value`.

        Raises
        ------
        InputError
            `value` is no exact element of the dtype.
        GraphError, ScopeError
            As `add_function`.
        """
        self._check_open()
        target = self._place(dst, written=True)
        element = pattern(value, target.dtype)
        params = (target.nbytes, target.dtype.itemsize, _word(element))
        accesses = [_Access(target, False, True)]
        return self._add(
            "memset" if name is None else name,
            "memset",
            "set_bytes",
            accesses,
            params,
            dependencies,
            None,
        )

    def add_empty(self, *, dependencies: Iterable[Node] = (), name: str | None = None) -> Node:
        """Add a node that does nothing but wait for others.

        Raises
        ------
        GraphError, ScopeError
            As `add_function`.
        """
        self._check_open()
        return self._add(
            "empty" if name is None else name, "empty", None, [], (), dependencies, None
        )

    def create_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Scratch:
        """Return scratch memory of the graph, planned over the edges once the build is over.

        Its bytes may serve other scratch that the edges put before or after it.

        Raises
        ------
        InputError
            A bad shape or dtype.
        ScopeError
            The build is over.
        """
        self._check_open()
        kind = check_dtype(dtype)
        scratch = Scratch(check_shape(shape, kind.itemsize), kind, self.context.device)
        self._scratch[id(scratch)] = scratch
        return scratch

    def add_output(self, output: Buffer | Scratch) -> None:
        """Make `output` something that `DeviceGraph.run` returns a copy of, in this order.

        Raises
        ------
        InputError
            It is no buffer of the graph's device.
        ScopeError
            The build is over.
        """
        self._check_open()
        place = self._place(output)
        if isinstance(place, np.ndarray):
            raise InputError("an output is a buffer; a host array can be copied to by add_copy")
        self._outputs.append(place)

    def _check_open(self) -> None:
        if not self._open:
            raise ScopeError("this builder's callback has returned; build a new graph instead")

    def _place(self, value: Any, written: bool = False) -> Any:
        if isinstance(value, Buffer | Scratch):
            if value.device != self.context.device:
                raise InputError(
                    f"{value!r} is on {value.device}, the graph on {self.context.device}"
                )
            if isinstance(value, Scratch) and id(value) not in self._scratch:
                raise GraphError(f"{value!r} belongs to another graph")
            return value
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise InputError(f"a buffer or a NumPy array is needed, not {type(value).__name__}")
        if not (value.flags.c_contiguous and value.flags.aligned):
            raise InputError("a host array in a graph must be dense; use numpy.ascontiguousarray")
        if written and not value.flags.writeable:
            raise InputError("the destination array is read-only")
        check_dtype(value.dtype)
        return value

    def _add(
        self,
        name: str,
        kind: str,
        kernel: str | None,
        accesses: list[_Access],
        params: tuple[int, ...],
        dependencies: Iterable[Node],
        keep: object,
    ) -> Node:
        if not isinstance(name, str):
            raise GraphError(f"the name of a node is a string, not {name!r}")
        if isinstance(dependencies, Node):
            dependencies = (dependencies,)
        if not isinstance(dependencies, Iterable):
            raise GraphError(f"dependencies are nodes, not {type(dependencies).__name__}")
        wanted = []
        for node in dependencies:
            if not isinstance(node, Node):
                raise GraphError(f"dependencies are nodes, not {type(node).__name__}")
            if node._builder is not self or node not in self._nodes[node.id : node.id + 1]:
                raise GraphError(f"{node!r} belongs to another graph")
            wanted.append(node.id)
        self._pending.append(
            _Pending(name, kind, kernel, accesses, params, tuple(dict.fromkeys(wanted)), keep)
        )
        node = Node(self, len(self._nodes), name)
        self._nodes.append(node)
        return node

    def _finish(self) -> Recorded:
        """Close the builder and turn what was added into a record and its bindings."""
        self._open = False
        return _record(self)

    def _close(self) -> None:
        """End the build, whatever came of it: a node or builder that is kept holds no memory."""
        self._open = False
        self._pending, self._scratch, self._outputs = [], {}, []


class Recorded(NamedTuple):
    """A record, the blocks of its memories (None for the arena), and where its outputs lie."""

    record: Record
    blocks: list[Block | None]
    arena_nbytes: int
    outputs: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]]


def _record(builder: DeviceGraphBuilder) -> Recorded:
    offsets, total = _plan_scratch(builder)
    record = Record()
    blocks: list[Block | None] = []
    if builder._scratch:
        record.add_memory("arena", "scratch", total)
        blocks.append(None)
    places = [access.place for pending in builder._pending for access in pending.accesses]
    located = _locate([*places, *builder._outputs], record, blocks)
    located.update({key: (0, offset) for key, offset in offsets.items()})
    for pending in builder._pending:
        operands = [
            Operand(*located[id(a.place)], a.place.nbytes, a.reads, a.writes)
            for a in pending.accesses
        ]
        record.add_node(
            pending.name,
            pending.kind,
            pending.kernel,
            operands,
            pending.params,
            cost_ns=NODE_NS + BYTE_NS * sum(operand.nbytes for operand in operands),
            dependencies=pending.dependencies,
            keep=pending.keep,
        )
    outputs = [(*located[id(out)], out.shape, out.dtype) for out in builder._outputs]
    return Recorded(record, blocks, total, outputs)


def _locate(
    places: list[Any], record: Record, blocks: list[Block | None]
) -> dict[int, tuple[int, int]]:
    """Add a memory for each block of buffers and arrays; return (memory, offset) by id of a place.

    Blocks that share bytes, as arrays over one foreign buffer do, become one memory, so that the
    hazard check sees that they do.
    """
    spans = []
    for place in {id(p): p for p in places if not isinstance(p, Scratch)}.values():
        block = place.block if isinstance(place, Buffer) else _host_block(place)
        at = place.ptr if isinstance(place, Buffer) else _address(place)
        spans.append((block, id(place), at))
    groups: list[list[Block]] = []
    group_of: dict[int, int] = {}
    stop = 0
    for block, key, _ in sorted(spans, key=lambda span: span[0].ptr):
        if not groups or (block.ptr >= stop and block is not groups[-1][-1]):
            groups.append([])
            stop = 0
        groups[-1].append(block)
        group_of[key] = len(groups) - 1
        stop = max(stop, block.ptr + block.nbytes)
    memory_of: dict[int, tuple[int, int]] = {}
    located = {}
    for _, key, at in spans:
        group = group_of[key]
        if group not in memory_of:
            block = _union(groups[group])
            number = record.add_memory("buffer", f"buffer {len(blocks)}", block.nbytes)
            memory_of[group] = number, block.ptr
            blocks.append(block)
        number, start = memory_of[group]
        located[key] = number, at - start
    return located


def _union(group: list[Block]) -> Block:
    """One block over the bytes of all, which it keeps alive."""
    if all(block is group[0] for block in group):
        return group[0]
    low = min(block.ptr for block in group)
    high = max(block.ptr + block.nbytes for block in group)
    return buffer.borrow(low, high - low, group)


def _plan_scratch(builder: DeviceGraphBuilder) -> tuple[dict[int, int], int]:
    if not builder._scratch:
        return {}, 0
    writers: dict[int, list[int]] = {key: [] for key in builder._scratch}
    for number, pending in enumerate(builder._pending):
        for access in pending.accesses:
            if id(access.place) in writers:
                # A read counts as a write: what was never written must not be another's bytes.
                writers[id(access.place)].append(number)
    used = [scratch for key, scratch in builder._scratch.items() if writers[key]]
    unused = [scratch for key, scratch in builder._scratch.items() if not writers[key]]
    kept = {id(output) for output in builder._outputs}
    pinned = [i for i, scratch in enumerate(used) if id(scratch) in kept]
    order = Order([pending.dependencies for pending in builder._pending])
    touches = [writers[id(scratch)] for scratch in used]
    planned, total = arena.plan(order, [s.nbytes for s in used], touches, touches, pinned)
    offsets = {id(scratch): offset for scratch, offset in zip(used, planned, strict=True)}
    for scratch in unused:
        offsets[id(scratch)] = total
        total += -(-scratch.nbytes // arena.ALIGNMENT) * arena.ALIGNMENT
    return offsets, total


def _host_block(array: np.ndarray[Any, Any]) -> Block:
    """The bytes of the array that owns `array`'s, so that views of it count as one memory."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    low, high = np.lib.array_utils.byte_bounds(root)
    return buffer.borrow(low, high - low, array)


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _word(value: np.ndarray[Any, Any]) -> int:
    """The bytes of a 0-d array, zero-padded, as one 64-bit word."""
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)


def check_dims(what: str, dims: int | Sequence[int]) -> tuple[int, int, int]:
    """Return three positive sizes; GraphError naming the axis of one that is not."""
    try:
        sizes = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    except TypeError:
        sizes = ()
    if not 1 <= len(sizes) <= 3:
        raise GraphError(f"{what} is {dims!r}; one to three sizes are possible")
    for axis, size in zip("xyz", sizes, strict=False):
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise GraphError(f"{what}.{axis} is {size!r}, not an integer")
        if not 1 <= size < 2**31:
            raise GraphError(f"{what}.{axis} is {size}; 1 to {2**31 - 1} is possible")
    x, y, z = (*[int(size) for size in sizes], 1, 1)[:3]
    return x, y, z
