"""The builder that a graph's build callback writes nodes with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import numpy.typing as npt

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph._core.pending import Gatherer
from fastgraph._core.record import Foreign
from fastgraph.device.backend import LaunchOptions
from fastgraph.device.child import inline
from fastgraph.device.context import DeviceContext
from fastgraph.device.inputs import as_input
from fastgraph.device.nodes import (
    as_place,
    check_in_body,
    condition_work,
    copy_work,
    host_work,
    memset_work,
)
from fastgraph.device.pending import (
    Family,
    Node,
    Pending,
    PointerSlot,
    Scalar,
    Scratch,
    Shared,
    Work,
)
from fastgraph.device.recording_context import RecordingContext
from fastgraph.device.region import Region
from fastgraph.device.values import check_dtype, check_shape, pattern
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["DeviceGraphBuilder"]

Body = Callable[["DeviceGraphBuilder"], object]
# Keywords of replay and run that no scalar can be called.
TAKEN_NAMES = frozenset(("stream", "out", "self"))


class DeviceGraphBuilder(Gatherer):
    """Writes the nodes of one `DeviceGraph`; valid inside its build callback only.

    Every ``add_*`` takes ``dependencies=`` (nodes that must be done before; none makes a root, or
    in a region the next of it) and ``name=``, and returns a `Node`. A call that raises adds
    nothing.

    Attributes
    ----------
    context : DeviceContext
    nodes : list of Node
    num_inputs, num_outputs : int
    """

    _path: tuple[int, ...] = ()  # of a body: ids and bodies that lead to it

    def __init__(
        self,
        context: DeviceContext,
        outer: DeviceGraphBuilder | None = None,
        family: Family | None = None,
    ) -> None:
        self.context = context
        self._device = context.device
        self._shared: Shared = Shared(context.device, family) if outer is None else outer._shared
        self._in_body = outer is not None

    @property
    def nodes(self) -> list[Node]:
        """list of Node: what was added so far."""
        return list(self._nodes)

    @property
    def num_nodes(self) -> int:
        """int: how many nodes were added so far."""
        return len(self._nodes)

    @property
    def num_inputs(self) -> int:
        """int: copied and in-place inputs so far."""
        return len(self._shared.twins) + len(self._shared.inputs)

    @property
    def num_outputs(self) -> int:
        """int: how often `add_output` was called."""
        return len(self._shared.outputs)

    def add_function(
        self,
        f: Any,
        *args: Any,
        grid_dim: int | Sequence[int] = 1,
        block_dim: int | Sequence[int] = 1,
        cluster_dim: int | Sequence[int] | None = None,
        shared_mem_bytes: int = 0,
        cooperative: bool = False,
        priority: int | None = None,
        programmatic: bool = False,
        constant_memory: object = None,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add a call of a function.

        Parameters
        ----------
        f : NativeKernel or Kernel
        *args
            A buffer for each pointer, a number or a `scalar` for each value. `In`, `Out` and
            `InOut` around a buffer say what the function does to it.
        grid_dim, block_dim : int or sequence of up to 3 int
            Positive; handed to the kernel as they are.
        cluster_dim, shared_mem_bytes, cooperative, constant_memory
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

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def inc(grid, block, x, delta):
        ...     x += delta
        >>> kernel, x = fg.Kernel("inc", cpu=inc), ctx.create_buffer(3)
        >>> def build(b):
        ...     first = b.add_function(kernel, fg.InOut(x), 2.0)
        ...     b.add_function(kernel, fg.InOut(x), 0.5, dependencies=[first])
        >>> fg.DeviceGraph.create(ctx, build).replay()
        >>> x.numpy()
        array([2.5, 2.5, 2.5], dtype=float32)
        """
        self._check_open()
        options = LaunchOptions(
            grid_dim,
            block_dim,
            cluster_dim,
            shared_mem_bytes,
            cooperative,
            priority,
            programmatic,
            constant_memory,
        )
        work = self.context._backend.function_work(self._place, f, args, options)
        return self._add(name, work, dependencies)

    def add_copy(
        self, dst: Any, src: Any, *, dependencies: Iterable[Node] = (), name: str | None = None
    ) -> Node:
        """Add a copy between buffers, or between a buffer and a dense host array.

        One of two buffers may be another GPU's.

        Raises
        ------
        InputError
            Sizes or dtypes differ, `dst` is read-only, a host array is not dense.
        UnsupportedError
            A host array inside the body of a conditional.
        GraphError, ScopeError
            As `add_function`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> x, host = ctx.to_device(np.arange(3, dtype="f4")), np.zeros(2, "f4")
        >>> fg.DeviceGraph.create(ctx, lambda b: b.add_copy(host, x[1:])).replay()
        >>> host
        array([1., 2.], dtype=float32)
        """
        self._check_open()
        work = copy_work(self._place, *self.context._backend.copy_sides(dst, src))
        if self._in_body:
            check_in_body(work)
        return self._add(name, work, dependencies)

    def add_memset(
        self, dst: Any, value: Any, *, dependencies: Iterable[Node] = (), name: str | None = None
    ) -> Node:
        """Add a node that sets every element of the buffer `dst` to `value`.

        Raises
        ------
        InputError
            The dtype has no such element: floats are rounded to it, ints must be exact.
        GraphError, ScopeError
            As `add_function`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(3, "int32")
        >>> fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x[:2], 7)).replay()
        >>> x.numpy()
        array([7, 7, 0], dtype=int32)
        """
        self._check_open()
        work = memset_work(self._place, dst, value)
        return self._add(name, work, dependencies)

    def add_empty(self, *, dependencies: Iterable[Node] = (), name: str | None = None) -> Node:
        """Add a node that does nothing but wait for others.

        Raises
        ------
        GraphError, ScopeError
            As `add_function`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def build(b):
        ...     start = b.add_empty(name="start")
        ...     b.add_empty(dependencies=[start])
        >>> fg.DeviceGraph.create(ctx, build).edges
        [(0, 1)]
        """
        self._check_open()
        return self._add(name, Work("empty", "empty", None, ()), dependencies)

    def add_host_function(
        self,
        f: Callable[[], object],
        *,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add a call of ``f()`` on the host; what it raises comes out of the replay.

        Raises
        ------
        UnsupportedError
            Inside the body of a conditional.
        GraphError, ScopeError
            As `add_function`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def build(b):
        ...     b.add_host_function(lambda: print("now"))
        >>> fg.DeviceGraph.create(ctx, build).replay()
        now
        """
        self._check_open()
        self._check_outside("add_host_function")
        return self._add(name, host_work(f), dependencies)

    def add_if(
        self,
        condition: Any,
        body: Body,
        else_body: Body | None = None,
        *,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add work that is done only if the uint32 in `condition` is not 0.

        Parameters
        ----------
        condition : Buffer
            One uint32, read when the node runs.
        body, else_body : callable
            Called once, now, with a builder of its own, as build is. Its nodes can be named only
            inside it. Host functions, copies from or to host arrays, inputs and outputs have no
            place there.
        dependencies : iterable of Node
        name : str, optional

        Returns
        -------
        Node

        Raises
        ------
        InputError
            `condition` is not one uint32.
        GraphError, ScopeError, Exception
            As `add_function`; what a body raises comes through as it is. Nothing was added.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> flag, x = ctx.create_buffer(1, "uint32"), ctx.create_buffer(1)
        >>> def build(b):
        ...     b.add_if(flag, lambda t: t.add_memset(x, 1.0), lambda e: e.add_memset(x, 2.0))
        >>> graph = fg.DeviceGraph.create(ctx, build)
        >>> graph.replay()
        >>> x.numpy()
        array([2.], dtype=float32)
        """
        bodies = [body] if else_body is None else [body, else_body]
        return self._add_conditional("if", condition, bodies, dependencies, name)

    def add_while(
        self,
        condition: Any,
        body: Body,
        *,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add work that is done as long as the uint32 in `condition` is not 0; see `add_if`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> left, x = ctx.create_buffer(1, "uint32"), ctx.create_buffer(1)
        >>> def turn(grid, block, x, left):
        ...     x += 1
        ...     left -= 1
        >>> kernel = fg.Kernel("turn", cpu=turn)
        >>> def build(b):
        ...     start = b.add_memset(left, 3)
        ...     b.add_while(
        ...         left,
        ...         lambda w: w.add_function(kernel, fg.InOut(x), fg.InOut(left)),
        ...         dependencies=[start],
        ...     )
        >>> fg.DeviceGraph.create(ctx, build).replay()
        >>> x.numpy()
        array([3.], dtype=float32)
        """
        return self._add_conditional("while", condition, [body], dependencies, name)

    def add_switch(
        self,
        condition: Any,
        bodies: Iterable[Body],
        *,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add the choice of one body by the uint32 in `condition`; see `add_if`.

        A value that is no index of `bodies` does nothing.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> which, x = ctx.create_buffer(1, "uint32"), ctx.create_buffer(1)
        >>> def build(b):
        ...     b.add_switch(which, [lambda s, v=v: s.add_memset(x, v) for v in (10.0, 20.0)])
        >>> graph = fg.DeviceGraph.create(ctx, build)
        >>> ctx.memset(which, 1)
        >>> graph.replay()
        >>> x.numpy()
        array([20.], dtype=float32)
        """
        return self._add_conditional("switch", condition, list(bodies), dependencies, name)

    def add_child_graph(
        self,
        graph: Any,
        owner: object = None,
        *,
        inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        dependencies: Iterable[Node] = (),
        name: str | None = None,
    ) -> Node:
        """Add all nodes of another graph as one node.

        Its buffers stay what they are; its scratch is planned anew as this graph's; its scalars
        keep the values that they have now. ``model.graph`` of a compiled model goes in too: it
        gets an arena of its own, and has the parameters that are set now, whatever
        ``model.set_param`` does later.

        Parameters
        ----------
        graph : DeviceGraph, or a driver graph of another library
            As it is now; later changes of it do not show. On a GPU also a CUgraph as a number, a
            ``torch.cuda.CUDAGraph(keep_graph=True)``, or a ``GraphDefinition`` of cuda.core: such
            a graph must stay as it is, and the memory that it names is the caller's to keep.
        owner : object, optional
            Kept alive as long as the graph. A bare handle needs one: what keeps it good.
        inputs : sequence, or mapping of str
            For a graph with copied inputs: a buffer or dense array for each, in order; of a model
            also by name, and with it numbers or scalars (``where="memory"``) for its scalars. A
            buffer is used where it lies, unless the child may write to it; all else is copied to
            scratch by the child's first nodes, whenever it runs.
        dependencies : iterable of Node
        name : str, optional

        Returns
        -------
        Node
            ``outputs`` are the buffers in which the child leaves its outputs, for nodes that
            depend on this one and for `add_output`.

        Raises
        ------
        InputError
            `inputs` do not fit, the child is of another device, or it is of a model with
            parameters that are not set.
        UnsupportedError
            `graph` is nothing of the kind, or a DeviceGraph inside a body, or a driver graph with
            a conditional node.
        GraphError, ScopeError
            As `add_function`; the child is closed; a handle has no owner; a driver graph inside a
            body holds what CUDA forbids there.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> g = fg.Graph("twice")
        >>> x = g.input("x", (3,))
        >>> _ = g.output(x + x, "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> a, b = ctx.to_device(np.arange(3, dtype="f4")), ctx.create_buffer(3)
        >>> def build(builder):
        ...     twice = builder.add_child_graph(model.graph, inputs={"x": a})
        ...     builder.add_copy(b, twice.outputs[0], dependencies=[twice])
        >>> fg.DeviceGraph.create(ctx, build).replay()
        >>> b.numpy()
        array([0., 2., 4.], dtype=float32)
        """
        self._check_open()
        part = getattr(graph, "_part", None)
        if part is None:
            foreign = self.context._backend.foreign_graph(graph, owner, self._in_body)
            if inputs is not None:
                raise InputError("a driver graph of another library has no inputs to fill")
            return self._add_foreign(name, foreign, dependencies)
        self._check_outside("add_child_graph")
        mark = self._mark()
        try:
            inlined = inline(part(), self, inputs, "child" if name is None else name)
            work = Work("child", "child", None, (), keep=owner)
            node = self._add(name, work, dependencies, inlined=inlined)
        except BaseException:
            self._roll_back(mark)
            raise
        self._shared.children.append(inlined)
        node._tell_outputs(inlined.outputs)
        return node

    def _add_foreign(
        self, name: str | None, foreign: Foreign, dependencies: Iterable[Node]
    ) -> Node:
        """Add a driver graph that others made."""
        work = Work("child", "child", None, (), keep=foreign.owner, call=foreign)
        return self._add(name, work, dependencies)

    def capture(self, dependencies: Iterable[Node] = (), keep: Iterable[object] = ()) -> Any:
        """Record what others enqueue on a stream as one node.

        Parameters
        ----------
        dependencies : iterable of Node
        keep : iterable of object
            Kept alive as long as the graph. The memory that the work names is the caller's to
            keep otherwise: nothing here sees it.

        Returns
        -------
        context manager
            Inside ``with``, ``stream`` is where the work goes (an object with
            ``__cuda_stream__``); after it, ``node`` stands for all of it.

        Raises
        ------
        UnsupportedError
            On cpu, which has no streams.
        GraphError
            On leaving: the capture was spoilt, most often by a thread that waited for the whole
            device meanwhile. Nothing was added.
        ScopeError
            The build is over.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> graph = fg.DeviceGraph.create(
        ...     ctx, lambda b: b.capture()
        ... )  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        fastgraph.errors.UnsupportedError: ...
        """
        self._check_open()
        backend = self.context._backend
        backend.require("capture", "capture")
        self._ids(dependencies := as_nodes(dependencies))
        return backend.capture(self, dependencies, tuple(keep))

    @overload
    def region(self, work: None = None, dependencies: Iterable[Node] = ()) -> Region: ...
    @overload
    def region(self, work: Body, dependencies: Iterable[Node] = ()) -> Node: ...
    def region(self, work: Body | None = None, dependencies: Iterable[Node] = ()) -> Region | Node:
        """Add nodes that run one after another and stand as one.

        Parameters
        ----------
        work : callable, optional
            Called once with this builder. Without it the region is entered by ``with``.
        dependencies : iterable of Node
            What its first node waits for.

        Returns
        -------
        Node or Region
            Its last node (an empty one for an empty region); without `work` a `Region`, whose
            ``node`` is that.

        Raises
        ------
        GraphError, ScopeError, Exception
            As `add_function`. What `work` raises comes through, and the builder is as it was
            before the region.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x, y = ctx.create_buffer(2), ctx.create_buffer(2)
        >>> def build(b):
        ...     with b.region() as r:
        ...         b.add_memset(x, 3.0)
        ...         b.add_copy(y, x)
        >>> graph = fg.DeviceGraph.create(ctx, build)
        >>> graph.edges
        [(0, 1)]
        """
        self._check_open()
        if work is not None and not callable(work):
            raise GraphError(f"a region's work is a callable, not {type(work).__name__}")
        region = Region(self, self._ids(dependencies))
        if work is None:
            return region
        with region:
            work(self)
        return region.node

    def recording_context(self, dependencies: Iterable[Node] = ()) -> RecordingContext:
        """Return an object that takes a `DeviceContext`'s calls and adds nodes, in order.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x, y = ctx.create_buffer(2), ctx.create_buffer(2)
        >>> def build(b):
        ...     rec = b.recording_context()
        ...     rec.memset(x, 4.0)
        ...     rec.copy(y, x)
        >>> fg.DeviceGraph.create(ctx, build).edges
        [(0, 1)]
        """
        self._check_open()
        before = tuple(self._nodes[number] for number in self._ids(dependencies))
        return RecordingContext(self, before)

    def scalar(self, name: str, dtype: npt.DTypeLike, default: Any, where: str = "node") -> Scalar:
        """Return a number that each replay may change by keyword.

        Parameters
        ----------
        name : str
            An identifier; one scalar or pointer of the graph has it.
        dtype : dtype_like
        default : number
            The value in replays that give none.
        where : {"node", "memory"}
            ``"node"`` goes where a kernel takes a value, ``"memory"`` where it takes a pointer to
            const; inside the bodies of conditionals there is only the latter.

        Raises
        ------
        InputError
            `dtype` has no element `default`: floats are rounded to it, ints must be exact.
        GraphError
            A bad name or `where`.
        ScopeError
            The build is over.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def scale(grid, block, x, by):
        ...     x *= by
        >>> kernel, x = fg.Kernel("scale", cpu=scale), ctx.create_buffer(2)
        >>> ctx.memset(x, 3.0)
        >>> def build(b):
        ...     b.add_function(kernel, fg.InOut(x), b.scalar("by", "float32", 1.0))
        >>> fg.DeviceGraph.create(ctx, build).replay(by=2.0)
        >>> x.numpy()
        array([6., 6.], dtype=float32)
        """
        self._check_open()
        self._check_name(name)
        if where not in ("node", "memory"):
            raise GraphError(
                f"scalar {name!r}: where is {where!r}; 'node' and 'memory' are possible"
            )
        value = pattern(default, check_dtype(dtype))
        scalar = Scalar(name, value, where, self.context.device)
        self._shared.names[name] = scalar
        return scalar

    def pointer(self, name: str, target: Buffer) -> PointerSlot:
        """Return `target` as an argument that replays and `DeviceGraph.set` may point elsewhere.

        Raises
        ------
        InputError
            `target` is no buffer of the device.
        GraphError, ScopeError
            As `scalar`.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x, y = ctx.create_buffer(2), ctx.create_buffer(2)
        >>> graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(b.pointer("where", x), 1.0))
        >>> graph.replay(where=y)
        >>> x.numpy(), y.numpy()
        (array([0., 0.], dtype=float32), array([1., 1.], dtype=float32))
        """
        self._check_open()
        self._check_name(name)
        place = self._place(target)
        if not isinstance(place, Buffer):
            raise InputError(f"pointer {name!r} takes a Buffer, not {type(target).__name__}")
        slot = PointerSlot(name, place)
        self._shared.names[name] = slot
        return slot

    def create_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Scratch:
        """Return scratch memory of the graph, planned over the edges once the build is over.

        Its bytes may serve other scratch that the edges put before or after it; reading its
        ``ptr`` inside the build takes it out of that.

        Raises
        ------
        InputError
            A bad shape or dtype.
        ScopeError
            The build is over.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def build(b):
        ...     scratch = b.create_buffer(4)
        ...     first = b.add_memset(scratch, 1.0)
        ...     b.add_memset(scratch[:2], 2.0, dependencies=[first])
        ...     b.add_output(scratch)
        >>> fg.DeviceGraph.create(ctx, build).run()
        (array([2., 2., 1., 1.], dtype=float32),)
        """
        self._check_open()
        kind = check_dtype(dtype)
        return self._own(Scratch(check_shape(shape, kind.itemsize), kind, self.context.device))

    def create_input_buffer(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32"
    ) -> Buffer:
        """Return a twin: a buffer that each replay fills from a live array before it runs.

        Raises
        ------
        UnsupportedError
            Inside the body of a conditional.
        InputError, ScopeError
            As `create_buffer`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> class Row(fg.DeviceGraphInput):
        ...     def __init__(self, matrix, row):
        ...         self.row = matrix[row]
        ...     def write_graph_key(self, writer):
        ...         writer.write_shape(self.row.shape)
        ...     def allocate_stable(self, builder):
        ...         return builder.create_input_buffer(self.row.shape, "float32")
        ...     def live_buffers(self):
        ...         return [self.row]
        >>> matrix = np.arange(6, dtype="f4").reshape(2, 3)
        >>> graph = fg.DeviceGraph.create(ctx, lambda b, x: b.add_output(x), Row(matrix, 0))
        >>> graph.run(Row(matrix, 1))
        (array([3., 4., 5.], dtype=float32),)
        """
        self._check_open()
        self._check_outside("create_input_buffer")
        kind = check_dtype(dtype)
        sizes = check_shape(shape, kind.itemsize)
        return self._shared.make_twin(sizes, kind)

    def register_in_place_input(self, live: Buffer) -> Buffer:
        """Return an alias of a caller's buffer, which the graph uses where it lies.

        Raises
        ------
        UnsupportedError, InputError, ScopeError
            As `create_input_buffer`; `live` is no buffer of the device.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(2)
        >>> def build(b):
        ...     alias = b.register_in_place_input(x)
        ...     b.add_memset(alias, 1.0)
        ...     print(alias.ptr == x.ptr, b.num_inputs)
        >>> fg.DeviceGraph.create(ctx, build).replay()
        True 1
        >>> x.numpy()
        array([1., 1.], dtype=float32)
        """
        self._check_open()
        self._check_outside("register_in_place_input")
        place = self._place(live)
        if not isinstance(place, Buffer):
            raise InputError(f"an in-place input is a Buffer, not {type(live).__name__}")
        self._shared.inputs.append(place)
        return buffer.view(place.block, place.offset, place.shape, place.dtype, place.device)

    def add_input(self, x: Any) -> Any:
        """Record an input and return what build works with: its ``allocate_stable(builder)``.

        Raises
        ------
        UnsupportedError, InputError, ScopeError
            As `create_input_buffer`; `x` is no input.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> ctx = fg.DeviceContext("cpu")
        >>> x = ctx.create_buffer(2)
        >>> def build(b):
        ...     b.add_memset(b.add_input(fg.InPlace(x)), 1.0)
        >>> fg.DeviceGraph.create(ctx, build).replay()
        >>> x.numpy()
        array([1., 1.], dtype=float32)
        """
        self._check_open()
        self._check_outside("add_input")
        return as_input(x).allocate_stable(self)

    def add_output(self, output: Buffer | Scratch) -> None:
        """Make `output` something that `DeviceGraph.run` returns a copy of, in this order.

        Raises
        ------
        InputError
            It is no buffer of the graph's device.
        UnsupportedError
            Inside the body of a conditional.
        ScopeError
            The build is over.

        Examples
        --------
        >>> import fastgraph as fg
        >>> ctx = fg.DeviceContext("cpu")
        >>> def build(b):
        ...     x = b.create_buffer(2)
        ...     b.add_memset(x, 5.0)
        ...     b.add_output(x)
        >>> fg.DeviceGraph.create(ctx, build).run()
        (array([5., 5.], dtype=float32),)
        """
        self._check_open()
        self._check_outside("add_output")
        place = self._place(output)
        if not isinstance(place, Buffer | Scratch):
            raise InputError("an output is a buffer; a host array can be copied to by add_copy")
        self._shared.outputs.append(place)

    def _check_outside(self, what: str) -> None:
        if self._in_body:
            raise UnsupportedError(f"{what}: not inside the body of a conditional")

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name.isidentifier() or name in TAKEN_NAMES:
            raise GraphError(f"a scalar or pointer is named by an identifier, not {name!r}")
        if name in self._shared.names:
            raise GraphError(f"the graph has {self._shared.names[name]!r} already")

    def _checked_place(self, value: Any, written: bool) -> Any:
        place = as_place(value, self.context.device, written)
        held = self._shared
        if isinstance(place, Scratch) and id(place.base) not in held.scratch:
            raise GraphError(f"{place!r} belongs to another graph")
        if isinstance(place, Scalar | PointerSlot):
            self._check_named(place)
        return place

    def _check_scalar(self, place: Any) -> None:
        if isinstance(place, Scalar):
            self._check_named(place)

    def _check_named(self, value: Scalar | PointerSlot) -> None:
        if self._shared.names.get(value.name) is not value:
            raise GraphError(f"{value!r} belongs to another graph")
        if isinstance(value, Scalar) and value.where == "node" and self._in_body:
            raise UnsupportedError(f"{value!r}: inside a body scalars are where='memory'")

    def _own(self, scratch: Scratch) -> Scratch:
        self._shared.scratch[id(scratch)] = scratch
        return scratch

    def _add_conditional(
        self,
        kind: str,
        condition: Any,
        callbacks: list[Body],
        dependencies: Iterable[Node],
        name: str | None,
    ) -> Node:
        self._check_open()
        for callback in callbacks:
            if not callable(callback):
                raise GraphError(f"a body is a build callback, not {type(callback).__name__}")
        if not callbacks:
            raise GraphError(f"add_{kind}: at least one body is needed")
        if name is not None and not isinstance(name, str):
            raise GraphError(f"the name of a node is a string, not {name!r}")
        work = condition_work(self._place, kind, condition)
        dependencies = tuple(dependencies) if isinstance(dependencies, Iterable) else dependencies
        self._ids(dependencies)
        mark = self._mark()
        try:
            bodies = tuple([self._build_body(f, i) for i, f in enumerate(callbacks)])
            return self._add(name, work, dependencies, bodies)
        except BaseException:
            self._roll_back(mark)
            raise

    def _build_body(self, callback: Body, number: int) -> list[Pending]:
        inner = DeviceGraphBuilder(self.context, self)
        inner._path = (*self._path, len(self._nodes), number)
        self._busy = True
        try:
            callback(inner)
            inner._check_regions()
            return inner._pending
        finally:
            self._busy = False
            inner._open = False
            inner._pending = []

    def _check_regions(self) -> None:
        if self._region is not None:
            raise GraphError("the callback has returned inside a region; regions are for `with`")

    def _mark(self) -> tuple[int, tuple[int, ...]]:
        return len(self._nodes), self._shared.mark()

    def _roll_back(self, mark: tuple[int, tuple[int, ...]]) -> None:
        del self._nodes[mark[0] :], self._pending[mark[0] :]
        self._shared.roll_back(mark[1])

    def _close(self) -> None:
        """End the build, whatever came of it: a node or builder that is kept holds no memory."""
        self._open = False
        self._region = None
        self._pending = []
        self._shared.clear()


def as_nodes(dependencies: Iterable[Node]) -> tuple[Node, ...]:
    """Return what a caller gives as dependencies, whatever the iterable."""
    if isinstance(dependencies, Node):
        return (dependencies,)
    if not isinstance(dependencies, Iterable):
        raise GraphError(f"dependencies are nodes, not {type(dependencies).__name__}")
    return tuple(dependencies)
