"""Every error and warning that fastgraph raises.

What a failed call leaves behind is said in each function's documentation; the rule is that a call
that raises has changed nothing.
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "ContextPoisonedError",
    "DriverError",
    "FastGraphError",
    "FastGraphWarning",
    "GraphError",
    "HazardError",
    "InputError",
    "OutOfMemoryError",
    "ScopeError",
    "StaleAddressError",
    "StaleOutputError",
    "UnsupportedError",
]


class FastGraphError(Exception):
    """Base of all errors that fastgraph raises.

    Examples
    --------
    >>> import fastgraph as fg
    >>> try:
    ...     fg.Session("cpu", threads=0)
    ... except fg.FastGraphError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(FastGraphError, ValueError):
    """What a run or a call was given does not fit.

    Raised for a name, shape, dtype, size, value or layout, before anything has changed: the next
    correct call gives what it would have given. Raised also for a data fault, such as an index
    out of range that a run computed: the message names the node, the run is over and hands out no
    outputs, and parameters and later runs are unaffected.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("twice")
    >>> x = g.input("x", (3,))
    >>> _ = g.output(x + x, "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> model.run({"x": np.ones(4, "f4")})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.InputError: input 'x' ...
    """


class GraphError(FastGraphError):
    """A graph was built or used wrongly.

    Raised for a shape, dtype, axis or name that does not fit, a value or node of another graph,
    or a graph that was closed. The graph, or its builder, is as it was before the call.

    Examples
    --------
    >>> import fastgraph as fg
    >>> g = fg.Graph("sum")
    >>> g.input("x", (2,)) + g.input("y", (3,))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.GraphError: add: ...
    >>> [node.op for node in g.nodes]
    ['input', 'input']
    """


class ScopeError(GraphError):
    """A builder or node was used outside the callback that it belongs to.

    Nothing has changed; a graph that the callback made stays good.

    Examples
    --------
    >>> import fastgraph as fg
    >>> kept = []
    >>> graph = fg.DeviceGraph.create(fg.DeviceContext("cpu"), kept.append)
    >>> kept[0].add_empty()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.ScopeError: ...
    """


class HazardError(GraphError):
    """Two nodes that no edge orders touch the same bytes, and one of them writes.

    The message names both; no graph is made. An edge, given as ``dependencies``, mends it.

    Examples
    --------
    >>> import fastgraph as fg
    >>> ctx = fg.DeviceContext("cpu")
    >>> x = ctx.create_buffer((4,))
    >>> def build(builder):
    ...     builder.add_memset(x, 0.0)
    ...     builder.add_memset(x[0:2], 1.0)
    >>> fg.DeviceGraph.create(ctx, build)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.HazardError: ...
    """


class CompileError(FastGraphError):
    """A graph or file cannot be compiled.

    The message lists everything at once: every unsupported or ill-typed operator by its name in
    the model, every unbound dimension, or why the file cannot be read. No model is made.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.Session("cpu").compile(fg.Graph("empty"))
    Traceback (most recent call last):
    fastgraph.errors.CompileError: graph 'empty' has no outputs; name one with g.output
    """


class UnsupportedError(FastGraphError, NotImplementedError):
    """The device or this build cannot do what was asked.

    The message names what is missing. Nothing has changed, and no other device stepped in.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("twice")
    >>> x = g.input("x", (3,))
    >>> _ = g.output(x + x, "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> model.run({"x": np.ones(3, "f4")}, stream=7)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.UnsupportedError: ...
    """


class StaleOutputError(FastGraphError):
    """A raw output was asked for its array after a later run had replaced its contents.

    Arrays that were taken before stay readable memory. `CompiledGraph.run` gives outputs that
    never go stale.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> g = fg.Graph("twice")
    >>> x = g.input("x", (3,))
    >>> _ = g.output(x + x, "y")
    >>> model = fg.Session("cpu").compile(g)
    >>> (first,) = model.run_raw({"x": np.ones(3, "f4")})
    >>> (second,) = model.run_raw({"x": np.zeros(3, "f4")})
    >>> first.array()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.StaleOutputError: output 'y' belongs to an earlier run; ...
    """


class StaleAddressError(FastGraphError):
    """A recorded address no longer belongs to the memory that it was recorded for.

    Nothing ran. Record the graph again on the memory that is to be used now.
    """


class DriverError(FastGraphError, RuntimeError):
    """A call of the device driver failed.

    That call did not happen; work that was handed to the device before it goes on. Raised by
    devices with a driver; on the cpu only its child `OutOfMemoryError` can occur.

    Attributes
    ----------
    code : int
        The driver's result code.
    name : str
        The driver's name of that code.
    node : str or None
        The graph node concerned, where one is known.

    Examples
    --------
    >>> import fastgraph as fg
    >>> error = fg.DriverError("the launch failed", code=700, name="CUDA_ERROR_ILLEGAL_ADDRESS")
    >>> str(error), error.code, error.node is None
    ('the launch failed', 700, True)
    """

    def __init__(
        self, message: str, code: int = 0, name: str = "", node: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.node = node


class ContextPoisonedError(DriverError):
    """The device was lost to an earlier fault.

    Every later call on that device raises this too, until the process ends; other devices are
    unaffected.
    """


class OutOfMemoryError(DriverError, MemoryError):
    """The device or the host has too little memory for what was asked.

    The message has the bytes. Nothing was allocated or changed.

    Attributes
    ----------
    asked : int or None
        Bytes that were asked for, where known.
    available : int or None
        Bytes that were free then, where known.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.DeviceContext("cpu").create_buffer(((1 << 45) - 1,))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fastgraph.errors.OutOfMemoryError: ...
    """

    def __init__(
        self,
        message: str,
        code: int = 0,
        name: str = "",
        node: str | None = None,
        *,
        asked: int | None = None,
        available: int | None = None,
    ) -> None:
        super().__init__(message, code, name, node)
        self.asked = asked
        self.available = available


class FastGraphWarning(UserWarning):
    """Something is not as a caller would expect, but no result is wrong.

    The program goes on. Failures while an object is destroyed are reported by it as well.

    Examples
    --------
    >>> import warnings
    >>> import fastgraph as fg
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", fg.FastGraphWarning)
    ...     ctx = fg.DeviceContext()
    """
