# cython: language_level=3
"""Which node of a graph comes before which other, over all paths of edges."""

from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from fastgraph.errors import GraphError


cdef class Order:
    """Which node comes before which, over all paths of edges.

    Parameters
    ----------
    dependencies : sequence of sequences of int
        For each node the nodes that it waits for. A node may wait for later ones; a cycle raises.

    Raises
    ------
    GraphError
        A dependency is out of range, or the edges form a cycle.

    Notes
    -----
    Nodes are dealt onto chains; for each node the last predecessor on each chain is kept, so a
    question costs a binary search and a plain chain needs one entry a node (chain decomposition
    as in H. V. Jagadish, ACM TODS 15(4), 1990).

    Examples
    --------
    >>> from fastgraph._core.order import Order
    >>> order = Order([[], [0], [0], [1, 2]])
    >>> order.before(0, 3), order.before(1, 2)
    (True, False)
    """

    def __cinit__(self, dependencies):
        cdef Py_ssize_t n = len(dependencies), node, other
        cdef vector[vector[int32_t]] users
        cdef vector[int32_t] missing, ready
        cdef vector[int32_t] tail
        cdef int32_t chain
        cdef size_t at
        users.resize(n)
        missing.resize(n)
        deps = []
        for node in range(n):
            mine = sorted(set(dependencies[node]))
            for d in mine:
                if not 0 <= d < n:
                    raise GraphError(f"node {node} depends on node {d}; there are {n} nodes")
                users[<Py_ssize_t> d].push_back(<int32_t> node)
            missing[node] = <int32_t> len(mine)
            deps.append(mine)
            if not mine:
                ready.push_back(<int32_t> node)
        self.n_nodes = n
        self.position.resize(n)
        self.chain.resize(n)
        self.chain_position.resize(n)
        self.before_chain.resize(n)
        self.before_position.resize(n)
        at = 0
        while at < ready.size():
            node = ready[at]
            self.position[node] = <int32_t> at
            at += 1
            chain = -1
            reach = {}
            for d in deps[node]:
                other = d
                for i in range(<Py_ssize_t> self.before_chain[other].size()):
                    c = self.before_chain[other][i]
                    p = self.before_position[other][i]
                    if reach.get(c, -1) < p:
                        reach[c] = p
                c = self.chain[other]
                p = self.chain_position[other]
                if reach.get(c, -1) < p:
                    reach[c] = p
                if tail[self.chain[other]] == self.chain_position[other]:
                    chain = self.chain[other]
            if chain < 0:
                chain = <int32_t> tail.size()
                tail.push_back(-1)
            tail[chain] += 1
            self.chain[node] = chain
            self.chain_position[node] = tail[chain]
            for c in sorted(reach):
                self.before_chain[node].push_back(c)
                self.before_position[node].push_back(reach[c])
            for i in range(<Py_ssize_t> users[node].size()):
                other = users[node][i]
                missing[other] -= 1
                if missing[other] == 0:
                    ready.push_back(<int32_t> other)
        if <Py_ssize_t> ready.size() < n:
            stuck = [node for node in range(n) if missing[node] > 0]
            raise GraphError(f"the edges form a cycle through nodes {stuck[:8]}")
        self.total = tail.size() <= 1

    cdef bint comes_before(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t low = 0, high, middle
        cdef int32_t chain
        if self.total:
            return self.position[a] < self.position[b]
        if self.position[a] >= self.position[b]:
            return False
        chain = self.chain[a]
        high = <Py_ssize_t> self.before_chain[b].size()
        while low < high:
            middle = (low + high) // 2
            if self.before_chain[b][middle] < chain:
                low = middle + 1
            else:
                high = middle
        if low == <Py_ssize_t> self.before_chain[b].size() or self.before_chain[b][low] != chain:
            return False
        return self.before_position[b][low] >= self.chain_position[a]

    def before(self, Py_ssize_t a, Py_ssize_t b):
        """Tell whether node `a` comes before node `b` over some path of edges."""
        if not (0 <= a < self.n_nodes and 0 <= b < self.n_nodes):
            raise GraphError(f"nodes {a}, {b}: there are {self.n_nodes} nodes")
        return self.comes_before(a, b)
