# cython: language_level=3
"""Sizes that follow from named dimensions: ints that know how, and what works many out at once.

A form is a polynomial: (monomial, coefficient) pairs in order. A monomial is a tuple of atoms, an
atom a dimension, or what is no polynomial: the quotient of two forms, the lesser of one and 0.
"""

from math import gcd

from libc.stdint cimport int64_t

DIM = "dim"
QUOTIENT = "//"
LESSER = "min"


class Size(int):
    """The size of a value while all dimensions are as large as they can be, and how it follows.

    Arithmetic with ints and other sizes keeps that knowledge. It compares as the int that it is.

    Examples
    --------
    >>> from fastgraph._core.sizes import dimension, form_of
    >>> seq = dimension("seq", 64)
    >>> seq, 4 * seq + 1, seq * 12 // 4 == seq * 3
    (64, 257, True)
    >>> form_of(seq - seq), form_of(-(-seq // 16)) == form_of(seq)
    ((), False)
    """

    def __new__(cls, value, terms):
        self = int.__new__(cls, value)
        self.terms = terms
        return self

    def __getnewargs__(self):
        return int(self), self.terms

    def __add__(self, other):
        return add(self, other) if isinstance(other, int) else NotImplemented

    def __radd__(self, other):
        return add(self, other) if isinstance(other, int) else NotImplemented

    def __sub__(self, other):
        return add(self, negative(other)) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other):
        return add(negative(self), other) if isinstance(other, int) else NotImplemented

    def __neg__(self):
        return negative(self)

    def __pos__(self):
        return self

    def __mul__(self, other):
        return multiply(self, other) if isinstance(other, int) else NotImplemented

    def __rmul__(self, other):
        return multiply(self, other) if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other):
        return divide(self, other) if isinstance(other, int) else NotImplemented

    def __rfloordiv__(self, other):
        return divide(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other):
        return self - divide(self, other) * other if isinstance(other, int) else NotImplemented

    def __rmod__(self, other):
        return other - divide(other, self) * self if isinstance(other, int) else NotImplemented

    def __divmod__(self, other):
        return self // other, self % other

    def __truediv__(self, other):
        return Quotient(self, other) if isinstance(other, int) else int(self) / other

    def __rtruediv__(self, other):
        return Quotient(other, self) if isinstance(other, int) else other / int(self)

    def __ceil__(self):
        return self

    def __floor__(self):
        return self

    def __trunc__(self):
        return self


class ActiveSize(Size):
    """A size of which only the form is to be relied on: it equals what has the same one."""

    def __eq__(self, other):
        if not isinstance(other, int):
            return NotImplemented
        return isinstance(other, ActiveSize) and self.terms == other.terms

    def __ne__(self, other):
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    __hash__ = int.__hash__

    def __bool__(self):
        return True


class Quotient(float):
    """What a true division of sizes gives: a float that can be rounded to a size."""

    def __new__(cls, above, below):
        self = float.__new__(cls, int(above) / int(below))
        self.above, self.below = above, below
        return self

    def __ceil__(self):
        return -(-self.above // self.below)

    def __floor__(self):
        return self.above // self.below


def dimension(name, upper):
    """Return the size of a dimension of at most `upper`."""
    return Size(upper, {((DIM, name, int(upper)),): 1})


def form_of(size):
    """Return the form of a size or int."""
    return tuple(sorted(terms_of(size).items()))


def same_form(a, b):
    """Whether two sizes are the same whatever the dimensions are."""
    return terms_of(a) == terms_of(b)


def dims_of(size):
    """Return the dimensions that a size depends on, as a set of (name, upper)."""
    return dims_of_form(form_of(size)) if isinstance(size, Size) else set()


def activated(size, active):
    """Return `size` as one that follows the dimensions in `active` alone; maybe an int.

    Parameters
    ----------
    size : int
    active : collection of (str, int)
        Name and upper bound of each; as a mapping, with the value that stands for it in the int.
    """
    if not isinstance(size, Size):
        return size
    return activated_form(form_of(size), active)


def least(a, b):
    """Return the lesser of two sizes, whatever the dimensions are."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return min(a, b)
    low, high = bounds_of_form(form_of(b - a))
    if low is not None and low >= 0:
        return a
    if high is not None and high <= 0:
        return b
    # One of two ways to write it: by the difference that begins with a positive factor.
    rest = a - b
    if form_of(rest)[-1][1] < 0:
        rest, b = negative(rest), a
    atom = (LESSER, form_of(rest))
    return b + kind_of(a, b)(min(int(rest), 0), {(atom,): 1})


def most(a, b):
    """Return the greater of two sizes, whatever the dimensions are."""
    return a + b - least(a, b)


def divisor_of(size):
    """Return an int that divides a size whatever the dimensions are, as far as its form tells.

    Examples
    --------
    >>> from fastgraph._core.sizes import dimension, divisor_of
    >>> seq = dimension("seq", 64)
    >>> divisor_of(12 * seq + 8), divisor_of(24)
    (4, 24)
    """
    if not isinstance(size, Size):
        return int(size)
    return gcd(*size.terms.values())


def may_be_negative(size):
    """Whether some dimensions may make a size less than 0, as far as its bounds tell."""
    low, _ = bounds_of_form(form_of(size))
    return low is None or low < 0


def terms_of(size):
    if isinstance(size, Size):
        return size.terms
    return {(): int(size)} if size else {}


def kind_of(a, b):
    return ActiveSize if isinstance(a, ActiveSize) or isinstance(b, ActiveSize) else Size


def made(kind, value, terms):
    """An int where nothing depends on a dimension."""
    if not terms or (len(terms) == 1 and () in terms):
        return value
    return kind(value, terms)


def add(a, b):
    cdef dict terms = dict(terms_of(a))
    for monomial, factor in terms_of(b).items():
        total = terms.get(monomial, 0) + factor
        if total:
            terms[monomial] = total
        else:
            terms.pop(monomial, None)
    return made(kind_of(a, b), int(a) + int(b), terms)


def negative(a):
    if not isinstance(a, Size):
        return -a
    return type(a)(-int(a), {monomial: -factor for monomial, factor in a.terms.items()})


def multiply(a, b):
    cdef dict terms = {}
    for left, factor in terms_of(a).items():
        for right, other in terms_of(b).items():
            monomial = tuple(sorted((*left, *right))) if left and right else left or right
            total = terms.get(monomial, 0) + factor * other
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
    return made(kind_of(a, b), int(a) * int(b), terms)


def divide(a, b):
    """The floor of a / b; 0 for a divisor of 0 that another extent would make something else."""
    if not isinstance(b, Size) and b <= 0:
        return int(a) // b
    value = int(a) // int(b) if int(b) else 0
    exact = exact_quotient(terms_of(a), terms_of(b))
    if exact is not None:
        return made(kind_of(a, b), value, exact)
    atom = (QUOTIENT, form_of(a), form_of(b))
    return kind_of(a, b)(value, {(atom,): 1})


def exact_quotient(dict above, dict below):
    """The terms of a quotient by one term that leaves no rest, else None."""
    if len(below) != 1:
        return {(): 1} if above == below and below else None
    ((divisor, by),) = below.items()
    found = {}
    for monomial, factor in above.items():
        if factor % by:
            return None
        left = list(monomial)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        found[tuple(left)] = factor // by
    return found


def dims_of_form(tuple form):
    found = set()
    for monomial, _ in form:
        for atom in monomial:
            if atom[0] == DIM:
                found.add(atom[1:])
            else:
                for inner in atom[1:]:
                    found |= dims_of_form(inner)
    return found


def activated_form(tuple form, active):
    total = 0
    for monomial, factor in form:
        product = factor
        for atom in monomial:
            product = product * activated_atom(atom, active)
        total = total + product
    return total


def activated_atom(tuple atom, active):
    if atom[0] == DIM:
        dim = atom[1:]
        if dim not in active:
            return atom[2]
        return ActiveSize(active[dim] if isinstance(active, dict) else atom[2], {(atom,): 1})
    forms = [activated_form(form, active) for form in atom[1:]]
    return least(forms[0], 0) if atom[0] == LESSER else divide(*forms)


def bounds_of_form(tuple form):
    """The least and the largest value over all extents, None for one that is not known."""
    low = high = 0
    for monomial, factor in form:
        first, last = factor, factor
        for atom in monomial:
            bottom, top = bounds_of_atom(atom)
            if bottom is None:
                return None, None
            ends = (first * bottom, first * top, last * bottom, last * top)
            first, last = min(ends), max(ends)
        low, high = low + first, high + last
    return low, high


def bounds_of_atom(tuple atom):
    if atom[0] == DIM:
        return 0, atom[2]
    low, high = bounds_of_form(atom[1])
    if low is None:
        return None, None
    if atom[0] == LESSER:
        return min(low, 0), min(high, 0)
    first, last = bounds_of_form(atom[2])
    if first is None or first <= 0:
        return None, None
    return min(low // first, low // last), max(high // first, high // last)


cdef class SizeTable:
    """What works out many sizes at once: each form, and each part of one, is computed once.

    Parameters
    ----------
    dims : tuple of (str, int)
        Name and upper bound of the dimensions whose extents are given, in this order.

    Examples
    --------
    >>> from fastgraph._core.sizes import SizeTable, activated, dimension
    >>> seq = dimension("seq", 64)
    >>> table = SizeTable((("seq", 64),))
    >>> numbers = [table.number(activated(size, table.dims)) for size in (seq, seq * 12 // 5)]
    >>> values = table.work_out((10,))
    >>> [values[number] for number in numbers]
    [10, 24]
    """

    def __init__(self, tuple dims not None):
        self.dims = dims
        self.numbers = {}
        for i, (name, upper) in enumerate(dims):
            self.numbers[(DIM, name, upper)] = self.add(GIVEN, i, 0)

    def number(self, size):
        """Return the number of the step that computes `size`."""
        return self.add_form(form_of(size))

    def work_out(self, tuple actual not None):
        """Return what each step gives for these extents, one for each dimension."""
        cdef size_t i
        self.evaluate(actual)
        return tuple([self.values[i] for i in range(self.values.size())])

    cdef int64_t add(self, size_op op, int64_t a, int64_t b) except -1:
        cdef size_step step
        key = (<int> op, a, b)
        if key not in self.numbers:
            step.op, step.a, step.b = op, a, b
            self.steps.push_back(step)
            self.values.push_back(0)
            self.numbers[key] = <int64_t> self.steps.size() - 1
        return self.numbers[key]

    cdef int64_t add_form(self, tuple form) except -1:
        cdef int64_t total = -1, product, at
        if form in self.numbers:
            return self.numbers[form]
        for monomial, factor in form:
            product = -1 if monomial and factor == 1 else self.add(CONSTANT, factor, 0)
            for atom in monomial:
                at = self.add_atom(atom)
                product = at if product < 0 else self.add(MULTIPLY, product, at)
            total = product if total < 0 else self.add(ADD, total, product)
        if total < 0:
            total = self.add(CONSTANT, 0, 0)
        self.numbers[form] = total
        return total

    cdef int64_t add_atom(self, tuple atom) except -1:
        if atom[0] == DIM:
            if atom not in self.numbers:
                raise ValueError(f"dimension {atom[1]!r} is given no extent")
            return self.numbers[atom]
        if atom[0] == LESSER:
            return self.add(LEAST, self.add_form(atom[1]), self.add(CONSTANT, 0, 0))
        return self.add(DIVIDE, self.add_form(atom[1]), self.add_form(atom[2]))

    cdef int evaluate(self, tuple actual) except -1:
        cdef size_t i
        cdef size_step step
        cdef int64_t a, b, found
        for i in range(self.steps.size()):
            step = self.steps[i]
            if step.op == GIVEN:
                self.values[i] = actual[step.a]
                continue
            if step.op == CONSTANT:
                self.values[i] = step.a
                continue
            a, b = self.values[step.a], self.values[step.b]
            if step.op == ADD:
                found = a + b
            elif step.op == MULTIPLY:
                found = a * b
            elif step.op == LEAST:
                found = min(a, b)
            else:
                found = floor_of(a, b)
            self.values[i] = found
        return 0


cdef inline int64_t floor_of(int64_t a, int64_t b) noexcept:
    if b <= 0:
        return 0
    return a // b
