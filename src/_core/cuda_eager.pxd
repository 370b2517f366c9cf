"""Nodes of a graph put on a stream one by one, as profiles do them."""

from fastgraph._core.cuda_graph cimport CudaGraph
from fastgraph._core.record cimport RecordNode
from fastgraph._core.stream cimport Stream

# Put one node on a stream, where the graph's memory lies now, with these values of scalars; bodies
# as the host finds the conditions to be.
cdef int Eager_do(CudaGraph graph, Stream stream, RecordNode node, dict values) except -1
