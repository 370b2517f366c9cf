# cython: language_level=3
"""Work put on a stream one piece at a time: copies, memsets and launches outside of graphs."""

import numpy as np

cimport numpy as cnp
from libc.stdint cimport uint32_t, uintptr_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from fastgraph._core.buffer cimport Buffer
from fastgraph._core.device_memory cimport Slot, Staging, Staging_sent, Staging_take, memory_context
from fastgraph._core.driver cimport (
    copy_async, copy_batch, copy_spec, launch_async, launch_spec, set_async, set_spec)
from fastgraph._core.record cimport Operand, RecordNode
from fastgraph._core.stream cimport Stream, Stream_follow, Stream_mark, Stream_precede

from fastgraph._core.record import Foreign
from fastgraph.errors import InputError

cnp.import_array()

# Larger pieces fill the next slot while the last one is on its way.
cdef size_t PIECE_BYTES = 1 << 22
# What may lie between two twins: the gap that aligns the second, which nothing reads.
cdef size_t GAP_BYTES = 256


cdef int check_size(Py_ssize_t wanted, Py_ssize_t given) except -1:
    """What was checked when it was given may have been changed by code that ran since."""
    if wanted != given:
        raise InputError(f"{given} bytes are given where {wanted} are copied: the array was "
                         "changed while it was given")
    return 0


cdef copy_spec spec_of(Buffer dst, Buffer src) except *:
    cdef copy_spec spec
    check_size(dst.nbytes, src.nbytes)
    spec.dst = dst.block.ptr + <uintptr_t> dst.offset
    spec.src = src.block.ptr + <uintptr_t> src.offset
    spec.nbytes = dst.nbytes
    spec.dst_is_host = dst.block.memory is None or dst.block.memory.host_visible
    spec.src_is_host = src.block.memory is None or src.block.memory.host_visible
    spec.dst_context = memory_context(dst.block.memory)
    spec.src_context = memory_context(src.block.memory)
    return spec


cdef copy_spec spec_from(Buffer dst, uintptr_t src, uintptr_t context) except *:
    cdef copy_spec spec = spec_of(dst, dst)
    spec.src = src
    spec.src_is_host = False
    spec.src_context = context
    return spec


def copy(Stream stream not None, list pairs not None, tuple producers not None=()):
    """Enqueue copies between buffers of equal size: (destination, source) each.

    A source that is a number is an address on the stream's device. The copies come behind what is
    on the CUstreams `producers`, and before what other libraries put there later: they may write
    to these sources, or to freed ones' memory. All in one call, which no signal divides.
    """
    cdef vector[copy_spec] specs
    cdef uintptr_t producer
    for dst, src in pairs:
        if (<Buffer?> dst).nbytes:
            if isinstance(src, Buffer):
                specs.push_back(spec_of(dst, src))
            else:
                specs.push_back(spec_from(dst, src, stream.device.context))
    for producer in producers:
        Stream_follow(stream, producer)
    if specs.size() == 1:
        copy_async(stream.device.context, specs.data(), stream.handle)
    elif specs.size():
        copy_batch(stream.device.context, specs.data(), specs.size(), stream.handle)
    Stream_mark(stream)
    for producer in producers:
        Stream_precede(stream, producer)


def fill(Stream stream not None, Buffer dst not None, uint32_t value, uint32_t element):
    """Enqueue a memset of elements of 1, 2 or 4 bytes."""
    cdef set_spec spec
    if not dst.nbytes:
        return
    spec.dst = dst.block.ptr + <uintptr_t> dst.offset
    spec.value = value
    spec.element = element
    spec.count = <size_t> dst.nbytes // element
    set_async(stream.device.context, &spec, stream.handle)
    Stream_mark(stream)


def launch(Stream stream not None, call not None, list addresses not None):
    """Enqueue what a `Launch` says, its pointers in the order of its operands."""
    cdef launch_spec spec
    cdef vector[void *] args
    cdef bytes value
    values = []
    for argument in call.arguments:
        if argument[0] == "pointer":
            values.append((<object> addresses[argument[1]]).to_bytes(8, "little"))
        else:
            values.append(argument[1])
    for value in values:
        args.push_back(<void *> <char *> value)
    spec.function = call.function.handle
    for i in range(3):
        spec.grid[i] = call.grid[i]
        spec.block[i] = call.block[i]
        spec.cluster[i] = 0 if call.cluster is None else call.cluster[i]
    spec.shared_bytes = call.shared_bytes
    spec.has_priority = call.priority is not None
    spec.priority = 0 if call.priority is None else call.priority
    spec.cooperative = call.cooperative
    spec.programmatic = call.programmatic
    spec.args = args.data()
    launch_async(stream.device.context, &spec, stream.handle)
    Stream_mark(stream)


def perform(Stream stream not None, RecordNode node not None, list addresses not None,
            dict values not None):
    """Enqueue the work of a node by itself, behind all that is on the stream.

    Parameters
    ----------
    stream : Stream
    node : RecordNode
        With a `Launch`, or a `Foreign` that says how.
    addresses : list of int
        Of its operands.
    values : dict of (int, int) to bytes
        Of scalars, by memory and offset.
    """
    cdef Operand operand
    call = node.call
    if isinstance(call, Foreign):
        call.enqueue(stream, tuple(addresses))
        Stream_mark(stream)
        return
    arguments = []
    for argument in call.arguments:
        if argument[0] == "scalar":
            operand = node.operands[argument[1]]
            argument = ("value", values[operand.memory, operand.offset])
        arguments.append(argument)
    launch(stream, call._replace(arguments=tuple(arguments), programmatic=False), addresses)


def upload(Stream stream not None, Staging staging not None, list pieces not None):
    """Enqueue copies of host arrays to buffers; the arrays have been read on return.

    Parameters
    ----------
    stream : Stream
    staging : Staging
    pieces : list of (Buffer, ndarray)
        Of equal shape and dtype. Neighbours in memory go in one copy.
    """
    cdef size_t start = 0, count = <size_t> len(pieces)
    cdef size_t end, total
    cdef Buffer dst
    cdef uintptr_t base
    while start < count:
        dst = pieces[start][0]
        base = dst.block.ptr + <uintptr_t> dst.offset
        total = dst.nbytes
        end = start + 1
        while end < count:
            dst = pieces[end][0]
            at = dst.block.ptr + <uintptr_t> dst.offset
            if (dst.block is not (<Buffer> pieces[start][0]).block or at < base + total
                    or at - base + dst.nbytes > PIECE_BYTES or at - (base + total) >= GAP_BYTES):
                break
            total = at - base + dst.nbytes
            end += 1
        if total:
            send(stream, staging, base, total, pieces[start:end])
        start = end


cdef int send(Stream stream, Staging staging, uintptr_t base, size_t total, list pieces) except -1:
    """Stage neighbours and enqueue their copy; one large array goes by pieces."""
    cdef size_t at = 0, size
    cdef uintptr_t source
    cdef cnp.ndarray dense
    cdef Buffer dst
    if total <= PIECE_BYTES:
        slot = Staging_take(staging, total)
        for dst, array in pieces:
            stage(slot.ptr + dst.block.ptr + <uintptr_t> dst.offset - base, array, dst.nbytes)
        return send_slot(stream, staging, slot, base, total)
    dense = dense_of(pieces[0][1], total)
    source = <uintptr_t> cnp.PyArray_DATA(dense)
    while at < total:
        size = min(PIECE_BYTES, total - at)
        slot = Staging_take(staging, size)
        memcpy(<void *> slot.ptr, <void *> (source + at), size)
        send_slot(stream, staging, slot, base + at, size)
        at += size
    return 0


cdef int stage(uintptr_t at, array, size_t nbytes) except -1:
    memcpy(<void *> at, cnp.PyArray_DATA(dense_of(array, nbytes)), nbytes)
    return 0


cdef cnp.ndarray dense_of(array, size_t nbytes):
    """The elements in one piece of so many bytes; a subclass may say anything of itself."""
    cdef cnp.ndarray dense = array
    if not cnp.PyArray_IS_C_CONTIGUOUS(dense):
        dense = np.array(dense, order="C", subok=False)
    check_size(nbytes, cnp.PyArray_NBYTES(dense))
    return dense


cdef int send_slot(Stream stream, Staging staging, Slot slot, uintptr_t dst,
                   size_t nbytes) except -1:
    cdef copy_spec spec
    spec.dst = dst
    spec.src = slot.ptr
    spec.nbytes = nbytes
    spec.dst_is_host = False
    spec.src_is_host = True
    spec.dst_context = spec.src_context = stream.device.context
    copy_async(stream.device.context, &spec, stream.handle)
    Stream_mark(stream)
    return Staging_sent(staging, slot, stream)
