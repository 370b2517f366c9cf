# cython: language_level=3, nonecheck=False
"""Nodes of a graph put on a stream one by one, as profiles do them."""

from libc.stdint cimport uintptr_t

from fastgraph._core.cuda_graph cimport CudaGraph
from fastgraph._core.record cimport Operand, RecordNode
from fastgraph._core.stream cimport Stream

from fastgraph._core import cuda_work
from fastgraph._core.buffer import view


cdef int Eager_do(CudaGraph graph, Stream stream, RecordNode node, dict values) except -1:
    cdef Operand operand
    if node.kind == "while":
        while holds(graph, node.operands[0]):
            do_all(graph, stream, node.bodies[0], values)
        return 0
    if node.kind == "if":
        return do_all(graph, stream, node.bodies[not holds(graph, node.operands[0])], values)
    addresses = []
    for operand in node.operands:
        addresses.append(graph.places.at[<size_t> operand.memory].base
                         + <uintptr_t> operand.offset)
    cuda_work.perform(stream, node, addresses, values)
    return 0


cdef int do_all(CudaGraph graph, Stream stream, tuple nodes, dict values) except -1:
    for node in nodes:
        Eager_do(graph, stream, node, values)
    return 0


cdef bint holds(CudaGraph graph, Operand operand) except *:
    """Whether the uint32 of a conditional is not 0, once the work before is done."""
    block, offset = graph.places.blocks[operand.memory]
    where = f"cuda:{graph.device.ordinal}"
    return bool(view(block, offset + operand.offset, (), "uint32", where).numpy()[()])
