# cython: language_level=3
"""The planner: lifetimes over edges become byte offsets in one arena. Pure; touches no memory.

Two values may share bytes only if every access of one comes before every write of the other over
the edges that it is given; a schedule is never trusted. The one exception is a value computed in
place: its writer may be the last reader of the value whose bytes it takes over.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from fastgraph._core.order cimport Order

from fastgraph.errors import GraphError

ALIGNMENT = 64
# Above this many values one sweep in order of time replaces the trials of several orders.
cdef Py_ssize_t MANY = 3000
# How often the value that makes the peak is tried earlier.
cdef int PROMOTIONS = 48
# How often two values swap places after that; their number squared times the swaps is bounded.
cdef uint64_t SWAPS = 512
cdef uint64_t SWAP_WORK = 4_000_000


cdef struct Slot:
    int64_t nbytes          # rounded up to the alignment
    int32_t first           # position of the first write
    int32_t last            # position of the last access
    bint pinned


cdef class _Planner:
    cdef Order order
    cdef Py_ssize_t n
    cdef vector[Slot] slots
    cdef vector[vector[int32_t]] accesses
    cdef vector[vector[int32_t]] writes
    cdef vector[int64_t] offset

    cdef bint precedes(self, Py_ssize_t u, Py_ssize_t v) noexcept nogil:
        cdef size_t i, j
        if self.slots[u].last >= self.slots[v].first:
            return False
        if self.order.total:
            return True
        for i in range(self.accesses[u].size()):
            for j in range(self.writes[v].size()):
                if not self.order.comes_before(self.accesses[u][i], self.writes[v][j]):
                    return False
        return True

    cdef bint conflicts(self, Py_ssize_t u, Py_ssize_t v) noexcept nogil:
        if self.slots[u].pinned or self.slots[v].pinned:
            return True
        return not (self.precedes(u, v) or self.precedes(v, u))

    cdef int64_t place(self, const vector[int32_t]& sequence) noexcept nogil:
        """Give each slot the tightest gap among those placed before; return the peak."""
        cdef vector[pair[int64_t, int64_t]] busy
        cdef Py_ssize_t i, j, u, v
        cdef int64_t peak = 0
        for i in range(<Py_ssize_t> sequence.size()):
            v = sequence[i]
            busy.clear()
            for j in range(i):
                u = sequence[j]
                if self.conflicts(u, v):
                    busy.push_back(pair[int64_t, int64_t](
                        self.offset[u], self.offset[u] + self.slots[u].nbytes))
            self.offset[v] = tightest(busy, self.slots[v].nbytes)
            peak = max(peak, self.offset[v] + self.slots[v].nbytes)
        return peak

    cdef int64_t sweep(self, const vector[int32_t]& sequence) noexcept nogil:
        """`place` for a total order and slots sorted by time: looks at live slots only."""
        cdef vector[pair[int64_t, int64_t]] busy
        cdef vector[int32_t] live
        cdef size_t i, j, kept
        cdef Py_ssize_t u, v
        cdef int64_t peak = 0
        for i in range(sequence.size()):
            v = sequence[i]
            busy.clear()
            kept = 0
            for j in range(live.size()):
                u = live[j]
                if self.conflicts(u, v):
                    live[kept] = <int32_t> u
                    kept += 1
                    busy.push_back(pair[int64_t, int64_t](
                        self.offset[u], self.offset[u] + self.slots[u].nbytes))
            live.resize(kept)
            live.push_back(<int32_t> v)
            self.offset[v] = tightest(busy, self.slots[v].nbytes)
            peak = max(peak, self.offset[v] + self.slots[v].nbytes)
        return peak

    cdef int64_t bound(self) except -1:
        """The largest sum of bytes live at one position of the topological order."""
        cdef int64_t pinned = 0, live = 0, best = 0
        events = []
        for i in range(self.n):
            if self.slots[i].pinned:
                pinned += self.slots[i].nbytes
            else:
                events.append((self.slots[i].first, 0, self.slots[i].nbytes))
                events.append((self.slots[i].last, 1, -self.slots[i].nbytes))
        for _, _, change in sorted(events):
            live += change
            best = max(best, live)
        return best + pinned

    cdef int64_t trials(self, list candidates) except -1:
        cdef vector[int32_t] sequence
        cdef vector[int64_t] best
        cdef int64_t peak, lowest = -1, bound
        cdef Py_ssize_t top, i
        slots = [self.slots[i] for i in range(self.n)]
        by_time = sorted(candidates, key=lambda i: (
            not slots[i]["pinned"], slots[i]["first"], -slots[i]["nbytes"], i))
        if len(candidates) > MANY and self.order.total:
            sequence = by_time
            return self.sweep(sequence)
        bound = self.bound()
        if self.order.total:
            # One look at each live slot; where it reaches the bound no trial can do better.
            sequence = by_time
            lowest = self.sweep(sequence)
            if lowest <= bound:
                return lowest
            lowest = -1
        by_size = sorted(candidates, key=lambda i: (-slots[i]["nbytes"], slots[i]["first"], i))
        by_area = sorted(candidates, key=lambda i: (
            -slots[i]["nbytes"] * (slots[i]["last"] - slots[i]["first"] + 1), i))
        for trial in (by_size, by_time, by_area):
            sequence = trial
            peak = self.place(sequence)
            if lowest < 0 or peak < lowest:
                lowest, best, current, kept = peak, self.offset, trial, trial
            if lowest <= bound or len(candidates) > MANY:
                break
        for _ in range(PROMOTIONS if len(candidates) <= MANY // 4 else 0):
            if lowest <= bound:
                break
            # The slot that reaches highest goes first: it then takes the bottom.
            top = max(current, key=lambda i: (self.offset[i] + slots[i]["nbytes"], -i))
            current = [top] + [i for i in current if i != top]
            sequence = current
            peak = self.place(sequence)
            if peak < lowest:
                lowest, best, kept = peak, self.offset, current
        if lowest > bound:
            sequence = kept
            self.offset = best
            lowest = self.swap(sequence, lowest, bound)
            return lowest
        self.offset = best
        return lowest

    cdef int64_t swap(self, vector[int32_t]& sequence, int64_t lowest, int64_t bound) except -1:
        """Swap two slots of the sequence again and again, keeping what does no harm."""
        cdef vector[int64_t] best = self.offset
        cdef uint64_t n = sequence.size(), draw = 1, i, j
        cdef int64_t peak
        for _ in range(min(SWAPS, SWAP_WORK // (n * n))):
            draw = draw * 6364136223846793005u + 1442695040888963407u
            i = (draw >> 33) % n
            draw = draw * 6364136223846793005u + 1442695040888963407u
            j = (draw >> 33) % n
            sequence[i], sequence[j] = sequence[j], sequence[i]
            peak = self.place(sequence)
            if peak > lowest:
                sequence[i], sequence[j] = sequence[j], sequence[i]
            elif peak < lowest:
                lowest, best = peak, self.offset
                if lowest <= bound:
                    break
        self.offset = best
        return lowest


cdef int64_t tightest(vector[pair[int64_t, int64_t]]& busy, int64_t nbytes) noexcept nogil:
    """The offset of the smallest gap that holds `nbytes`, or the end of what is busy."""
    cdef int64_t at = 0, found = -1, best = 0, gap
    cdef size_t i
    sort(busy.begin(), busy.end())
    for i in range(busy.size()):
        gap = busy[i].first - at
        if gap >= nbytes and (found < 0 or gap < best):
            found, best = at, gap
        if busy[i].second > at:
            at = busy[i].second
    return found if found >= 0 else at


def plan(Order order not None, sizes, writers, users, pinned=(), inplace=(),
         Py_ssize_t alignment=ALIGNMENT):
    """Give every value a byte offset in one arena.

    Parameters
    ----------
    order : Order
        Which node comes before which.
    sizes : sequence of int
        Bytes of each value; a value of no bytes gets offset 0.
    writers, users : sequence of sequences of int
        For each value the nodes that write it (at least one) and those that read it.
    pinned : iterable of int
        Values that live for the whole run and share bytes with nothing.
    inplace : iterable of (int, int)
        Pairs (value, source): the value's writer may work in the bytes of the source, which it
        reads. It is done where that writer is the source's last access and the value fits.
    alignment : int, default 64
        Every offset is a multiple of it.

    Returns
    -------
    offsets : list of int
    total : int
        Bytes of the arena, a multiple of `alignment`.

    Raises
    ------
    GraphError
        A value without a writer, an index out of range, a negative size.

    Notes
    -----
    Greedy placement in several orders (largest first, by time, by size times lifetime), each value
    in the tightest gap, then retries with the peak's value first and with two values swapped (the
    same swaps every time); the best is kept. Stops at once when the largest sum of live bytes is
    reached.

    Examples
    --------
    >>> from fastgraph._core.arena import plan
    >>> from fastgraph._core.order import Order
    >>> chain = Order([[], [0], [1]])
    >>> plan(chain, [64, 64, 64], [[0], [1], [2]], [[1], [2], []])
    ([0, 64, 0], 128)
    """
    cdef Py_ssize_t n = len(sizes), i, v, u, root
    cdef _Planner planner = _Planner()
    cdef int64_t peak, nbytes
    if len(writers) != n or len(users) != n:
        raise GraphError(f"{n} sizes, {len(writers)} lists of writers, {len(users)} of users")
    if alignment < 1 or alignment & (alignment - 1):
        raise GraphError(f"alignment {alignment} is not a power of two")
    for i in range(n):
        if sizes[i] < 0 or not len(writers[i]):
            raise GraphError(f"value {i} has {sizes[i]} bytes and {len(writers[i])} writers")
        for node in (*writers[i], *users[i]):
            if not 0 <= node < order.n_nodes:
                raise GraphError(f"value {i} names node {node}; there are {order.n_nodes}")
    fixed = set(pinned)
    parent = list(range(n))
    accesses = [sorted({*writers[i], *users[i]}) for i in range(n)]
    taken = set()
    last_writer = {}
    for v, u in inplace:
        if v in fixed or u in fixed or v in taken or sizes[v] > sizes[u] or parent[v] != v:
            continue
        if len(writers[v]) != 1 or not sizes[v]:
            continue
        root = u
        while parent[root] != root:
            root = parent[root]
        writer = writers[v][0]
        if root == v or writer not in users[u]:
            continue
        if last_writer.get(root) == writer:
            continue
        if all(x == writer or order.comes_before(x, writer) for x in accesses[root]):
            parent[v] = root
            taken.add(v)
            # All that came before has come before `writer`, so it need not be asked about again.
            accesses[root] = sorted({writer, *accesses[v]})
            last_writer[root] = writer
    planner.order = order
    planner.n = n
    planner.slots.resize(n)
    planner.accesses.resize(n)
    planner.writes.resize(n)
    planner.offset.resize(n)
    candidates = []
    for i in range(n):
        nbytes = sizes[i]
        planner.slots[i].nbytes = (nbytes + alignment - 1) // alignment * alignment
        planner.slots[i].pinned = i in fixed
        planner.accesses[i] = accesses[i]
        planner.writes[i] = sorted(set(writers[i]))
        planner.slots[i].first = min([order.position[<Py_ssize_t> x] for x in writers[i]])
        planner.slots[i].last = max([order.position[<Py_ssize_t> x] for x in accesses[i]])
        planner.offset[i] = 0
        if parent[i] == i and nbytes:
            candidates.append(i)
        else:
            planner.slots[i].nbytes = 0
    peak = planner.trials(candidates) if candidates else 0
    offsets = []
    for v in range(n):
        root = v
        while parent[root] != root:
            root = parent[root]
        offsets.append(planner.offset[root] if sizes[v] else 0)
    return offsets, peak


def verify(dependencies, sizes, writers, users, offsets, total, pinned=(), inplace=(),
           Py_ssize_t alignment=ALIGNMENT, loops=()):
    """Check a plan from the edges alone; shares no code with `plan`.

    Parameters
    ----------
    dependencies : sequence of sequences of int
        For each node the nodes that it waits for.
    sizes, writers, users, pinned, inplace, alignment
        As `plan` takes them.
    offsets : sequence of int
    total : int
    loops : iterable of (int, int)
        The first and last node of each loop; those numbered between are its nodes. They are done
        again and again, so a value that is touched both inside and outside must stay throughout.

    Raises
    ------
    GraphError
        An offset is misaligned or out of the arena, or two values that the edges leave unordered
        share a byte; the message names both.
    """
    n_nodes = len(dependencies)
    waiting = [set(d) for d in dependencies]
    users_of = [[] for _ in range(n_nodes)]
    for node in range(n_nodes):
        for d in waiting[node]:
            users_of[d].append(node)
    left = [len(w) for w in waiting]
    ready = [node for node in range(n_nodes) if not left[node]]
    ancestors = [0] * n_nodes
    for node in ready:
        mine = 0
        for d in waiting[node]:
            mine |= ancestors[d] | (1 << d)
        ancestors[node] = mine
        for other in users_of[node]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    fixed = set(pinned)
    allowed = set(inplace)
    users = [list(each) for each in users]
    for first, last in loops:
        nodes = range(first, last + 1)
        for v in range(len(sizes)):
            touched = {*writers[v], *users[v]}
            if not touched.isdisjoint(nodes) and not touched.issubset(nodes):
                users[v] += nodes

    def done_before(a, b):
        """Every access of `a` is over when `b` is first written."""
        for w in writers[b]:
            for x in (*writers[a], *users[a]):
                if not ancestors[w] >> x & 1 and not (x == w and (b, a) in allowed
                                                       and offsets[a] == offsets[b]):
                    return False
        return True

    spans = []
    for v in range(len(sizes)):
        if not sizes[v]:
            continue
        if offsets[v] % alignment or offsets[v] < 0 or offsets[v] + sizes[v] > total:
            raise GraphError(f"value {v}: offset {offsets[v]} with {sizes[v]} bytes in {total}")
        spans.append((offsets[v], offsets[v] + sizes[v], v))
    spans.sort()
    live = []
    for start, stop, v in spans:
        live = [other for other in live if other[0] > start]
        for _, u in live:
            if u in fixed or v in fixed or not (done_before(u, v) or done_before(v, u)):
                raise GraphError(f"values {u} and {v} share bytes and no edge orders them")
        live.append((stop, v))
