# cython: language_level=3
"""Which node of a graph comes before which other, over all paths of edges."""

from operator import index as as_index

from libc.stdint cimport int32_t
from libcpp.algorithm cimport sort
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
        cdef Py_ssize_t n = len(dependencies), node, other, i
        cdef vector[vector[int32_t]] needed, users
        cdef vector[int32_t] missing, ready
        cdef vector[int32_t] tail            # of each chain: the position of its last node
        cdef vector[int32_t] reach           # by chain: the last position that comes before
        cdef vector[int32_t] reached         # the chains in `reach`
        cdef int32_t chain
        cdef size_t at
        cdef bint one_by_one = True
        self.n_nodes = n
        self.position.resize(n)
        needed.resize(n)
        for node in range(n):
            needed[node] = wanted(dependencies[node], n, node)
            self.position[node] = <int32_t> node
            # Each node after the one before it, and none after a later one: nothing to work out.
            one_by_one = one_by_one and (needed[node].size() == 0 if node == 0 else
                                         needed[node].size() and needed[node].back() == node - 1)
        if one_by_one:
            self.total = True
            return
        users.resize(n)
        missing.resize(n)
        for node in range(n):
            missing[node] = <int32_t> needed[node].size()
            for i in range(<Py_ssize_t> needed[node].size()):
                users[needed[node][i]].push_back(<int32_t> node)
            if missing[node] == 0:
                ready.push_back(<int32_t> node)
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
            for i in range(<Py_ssize_t> needed[node].size()):
                other = needed[node][i]
                self.take_reach(other, reach, reached)
                if tail[self.chain[other]] == self.chain_position[other]:
                    chain = self.chain[other]
            if chain < 0:
                chain = <int32_t> tail.size()
                tail.push_back(-1)
                reach.push_back(-1)
            tail[chain] += 1
            self.chain[node] = chain
            self.chain_position[node] = tail[chain]
            sort(reached.begin(), reached.end())
            for i in range(<Py_ssize_t> reached.size()):
                self.before_chain[node].push_back(reached[i])
                self.before_position[node].push_back(reach[reached[i]])
                reach[reached[i]] = -1
            reached.clear()
            for i in range(<Py_ssize_t> users[node].size()):
                other = users[node][i]
                missing[other] -= 1
                if missing[other] == 0:
                    ready.push_back(<int32_t> other)
        if <Py_ssize_t> ready.size() < n:
            stuck = [node for node in range(n) if missing[node] > 0]
            raise GraphError(f"the edges form a cycle through nodes {stuck[:8]}")
        self.total = tail.size() <= 1

    cdef void take_reach(self, Py_ssize_t node, vector[int32_t] &reach,
                         vector[int32_t] &reached) noexcept nogil:
        """Add `node` and all that comes before it, by chains."""
        cdef size_t i
        for i in range(self.before_chain[node].size()):
            take_position(
                self.before_chain[node][i], self.before_position[node][i], reach, reached)
        take_position(self.chain[node], self.chain_position[node], reach, reached)

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


cdef vector[int32_t] wanted(dependencies, Py_ssize_t n, Py_ssize_t node) except *:
    """The nodes that a node waits for: sorted, each once."""
    cdef vector[int32_t] found
    if type(dependencies) is not tuple or len(dependencies) > 1:
        dependencies = sorted(set(dependencies))
    for d in dependencies:
        if not 0 <= d < n:
            raise GraphError(f"node {node} depends on node {d}; there are {n} nodes")
        found.push_back(<int32_t> (d if type(d) is int else as_index(d)))
    return found


cdef inline void take_position(int32_t chain, int32_t position, vector[int32_t] &reach,
                               vector[int32_t] &reached) noexcept nogil:
    if reach[chain] < 0:
        reached.push_back(chain)
    if reach[chain] < position:
        reach[chain] = position
