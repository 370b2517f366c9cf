# cython: language_level=3
"""The CUDA driver as verbs that raise: all but work on streams and graphs, which are `driver`'s.

A verb looks first whether the driver may be called at all: not in the child of a fork, and not for
a context that an earlier fault has lost, because there the driver answers some calls as if nothing
had happened and kills the process on others. Verbs that destroy do nothing then, as they do nothing
while the interpreter ends: the process's end frees all.
"""

from libc.stdint cimport uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from cuda.bindings cimport cydriver as cu

from fastgraph.errors import (
    ContextPoisonedError, DriverError, GraphError, InputError, OutOfMemoryError, UnsupportedError)


cdef extern from "driver_base.hpp" namespace "fastgraph" nogil:
    bint g_started
    bint g_lost
    bint g_trouble
    const void *trouble()
    bint is_sticky(int result)
    bint is_finalizing()
    int poison_of(uintptr_t context)
    void poison(uintptr_t context, int result)
    void set_started()
    void watch_forks()

cdef enum:
    LOG_BYTES = 8192

cdef int OLDEST_DRIVER = 13000
cdef int OLDEST_DEVICE = 8                # sm_80
cdef dict _ordinals = {}                  # of the contexts that were retained

watch_forks()


class InsideError(GraphError, DriverError):
    """The driver was called by a host function: a GraphError that has the driver's code, too."""


# ---- what goes wrong

cdef tuple describe(int code):
    """The driver's name of a result and what it says of it."""
    cdef const char *name = NULL
    cdef const char *words = NULL
    cu.cuGetErrorName(<cu.CUresult> code, &name)
    cu.cuGetErrorString(<cu.CUresult> code, &words)
    return (f"CUDA_ERROR_{code}" if name == NULL else name.decode(),
            "unknown to this driver" if words == NULL else words.decode())


cdef str place(uintptr_t context):
    return f"cuda:{_ordinals[context]}" if context in _ordinals else "the device"


cdef str attempt(const char *what, uintptr_t context):
    return f"{what.decode()} on {place(context)}" if context else what.decode()


cdef int fail(int code, uintptr_t context, const char *what) except -1:
    """Raise what the driver answered to `what`, and mark the context where it is lost."""
    name, words = describe(code)
    answer = f"{name} ({code}), {words}"
    if is_sticky(code):
        poison(context, code)
        raise ContextPoisonedError(
            f"{place(context)} is lost: {what.decode()} found {answer}. Work that was handed to "
            "it before did that; nothing works on it from now on until the process ends",
            code, name)
    if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemoryError(f"{attempt(what, context)}: {answer}", code, name)
    if code == cu.CUDA_ERROR_NOT_PERMITTED:
        raise InsideError(
            "a host function of a graph or stream must not use the device: CUDA forbids it "
            f"({attempt(what, context)}: {answer}). Let it set a flag for another thread, or make "
            "what it does nodes of the graph", code, name)
    raise DriverError(f"{attempt(what, context)}: {answer}", code, name)


cdef int driver_check(uintptr_t context) except -1 nogil:
    if g_trouble and (g_lost or poison_of(context) != 0):
        with gil:
            fail_fast(context)
    return 0


cdef int fail_fast(uintptr_t context) except -1:
    """Raise because the driver may not be called."""
    if g_lost:
        raise DriverError(
            "this process was forked from one that uses CUDA, and the driver does not work in it; "
            "start processes by 'spawn', or fork before the first use of a cuda device",
            cu.CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED")
    code = poison_of(context)
    if code:
        name, words = describe(code)
        raise ContextPoisonedError(
            f"{place(context)} was lost to an earlier fault, {name} ({code}), {words}; nothing "
            "works on it until the process ends", code, name)
    return 0


cdef int refuse(int result, uintptr_t context, const char *what) except -1 nogil:
    with gil:
        return fail(result, context, what)


cdef int check_room(int result, uintptr_t context, const char *what,
                    size_t nbytes) except -1 nogil:
    """`check` of an allocation, in the context's scope."""
    cdef size_t available = 0
    cdef size_t total = 0
    if result == cu.CUDA_ERROR_OUT_OF_MEMORY:
        cu.cuMemGetInfo(&available, &total)
        with gil:
            name, _ = describe(result)
            raise OutOfMemoryError(
                f"{what.decode()}: {nbytes} bytes were asked of {place(context)}; {available} of "
                f"its {total} are free", result, name, asked=nbytes, available=available)
    return check(result, context, what)


cdef int check_gone(int result, uintptr_t context, const char *what) except -1 nogil:
    """`check` of a destruction: that the context is lost is news for the next caller."""
    if is_sticky(result):
        poison(context, result)
        return 0
    return check(result, context, what)


cdef void restore(uintptr_t context) noexcept nogil:
    cu.cuCtxSetCurrent(<cu.CUcontext> context)


cdef int enter(Scope *scope, uintptr_t context) except -1 nogil:
    """Make `context` current for as long as `scope` lives; 0 is none in particular."""
    cdef cu.CUcontext before = NULL
    driver_check(context)
    if context == 0:
        return 0
    check(cu.cuCtxGetCurrent(&before), context, "asking for the current context")
    if <uintptr_t> before != context:
        check(cu.cuCtxSetCurrent(<cu.CUcontext> context), context, "making the context current")
        scope.before = <uintptr_t> before
        scope.restore = restore
    return 0


cdef bint driver_idle(uintptr_t context) noexcept nogil:
    return (g_trouble and (g_lost or poison_of(context) != 0)) or is_finalizing()


# ---- process and devices

cdef int driver_start() except -1:
    cdef int version = 0
    cdef int count = 0
    cdef cu.CUresult result
    if g_started:
        return driver_check(0)
    try:
        result = cu.cuDriverGetVersion(&version)
    except RuntimeError as error:
        raise UnsupportedError(
            "no CUDA driver: libcuda.so.1 cannot be loaded; a cuda device needs NVIDIA's driver "
            "580 or newer") from error
    if result == cu.CUDA_ERROR_STUB_LIBRARY:
        raise UnsupportedError(
            "no CUDA driver: libcuda.so.1 is the toolkit's stub, which only linkers use; a cuda "
            "device needs NVIDIA's driver 580 or newer")
    check(result, 0, "asking the driver for its version")
    if version < OLDEST_DRIVER:
        raise UnsupportedError(
            f"the CUDA driver is too old: it is of CUDA {version // 1000}.{version % 1000 // 10}, "
            "and fastgraph needs driver 580 or newer (CUDA 13.0)")
    result = cu.cuInit(0)
    if result == cu.CUDA_SUCCESS:
        result = cu.cuDeviceGetCount(&count)
    if result == cu.CUDA_ERROR_NO_DEVICE or (result == cu.CUDA_SUCCESS and count == 0):
        raise UnsupportedError("the CUDA driver sees no device on this machine")
    if result == cu.CUDA_ERROR_NOT_INITIALIZED:
        raise DriverError(
            "the CUDA driver does not start; this process seems to be forked from one that uses "
            "CUDA: start processes by 'spawn'", result, "CUDA_ERROR_NOT_INITIALIZED")
    check(result, 0, "starting the driver")
    set_started()
    return 0


cdef bint driver_lost() noexcept nogil:
    return g_lost


cdef const void *driver_trouble() noexcept nogil:
    return trouble()


cdef bint driver_is_poisoned(uintptr_t context) noexcept nogil:
    return poison_of(context) != 0


cdef int driver_version() except -1:
    cdef int version = 0
    driver_start()
    check(cu.cuDriverGetVersion(&version), 0, "asking the driver for its version")
    return version


cdef int device_count() except -1:
    cdef int count = 0
    driver_start()
    check(cu.cuDeviceGetCount(&count), 0, "counting the devices")
    return count


cdef object device_name(int ordinal):
    cdef char[256] name
    cdef cu.CUdevice device = 0
    driver_check(0)
    check(cu.cuDeviceGet(&device, ordinal), 0, "looking for the device")
    check(cu.cuDeviceGetName(name, 256, device), 0, "asking for the device's name")
    return (<bytes> name).decode()


cdef int device_attribute(int ordinal, int attribute) except? -1 nogil:
    cdef int value = 0
    cdef cu.CUdevice device = 0
    driver_check(0)
    check(cu.cuDeviceGet(&device, ordinal), 0, "looking for the device")
    check(cu.cuDeviceGetAttribute(&value, <cu.CUdevice_attribute> attribute, device), 0,
          "asking for an attribute of the device")
    return value


cdef size_t device_bytes(int ordinal) except 0:
    cdef size_t nbytes = 0
    cdef cu.CUdevice device = 0
    driver_check(0)
    check(cu.cuDeviceGet(&device, ordinal), 0, "looking for the device")
    check(cu.cuDeviceTotalMem(&nbytes, device), 0, "asking for the device's memory")
    return nbytes


cdef uintptr_t context_retain(int ordinal) except 0:
    cdef cu.CUcontext context = NULL
    cdef cu.CUdevice device = 0
    count = device_count()
    if not 0 <= ordinal < count:
        names = ", ".join([f"cuda:{i}" for i in range(count)])
        raise InputError(f"there is no device cuda:{ordinal}; the driver sees {names}")
    major = device_attribute(ordinal, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    if major < OLDEST_DEVICE:
        minor = device_attribute(ordinal, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        raise UnsupportedError(
            f"cuda:{ordinal} ({device_name(ordinal)}) has compute capability {major}.{minor}; "
            f"fastgraph needs {OLDEST_DEVICE}.0 or newer")
    check(cu.cuDeviceGet(&device, ordinal), 0, "looking for the device")
    with nogil:                          # may take a second
        check(cu.cuDevicePrimaryCtxRetain(&context, device), 0, "opening the device")
    _ordinals[<uintptr_t> context] = ordinal
    return <uintptr_t> context


cdef int context_memory(uintptr_t context, size_t *available, size_t *total) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuMemGetInfo(available, total), context, "asking for free memory")


cdef int context_priorities(uintptr_t context, int *lowest, int *highest) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuCtxGetStreamPriorityRange(lowest, highest), context,
                 "asking for the priorities of streams")


cdef bint peer_possible(int ordinal, int other) except -1:
    cdef int can = 0
    driver_check(0)
    check(cu.cuDeviceCanAccessPeer(&can, ordinal, other), 0, "asking for access to a peer")
    return can != 0


cdef int peer_enable(uintptr_t context, uintptr_t other) except -1:
    cdef Scope scope
    enter(&scope, context)
    driver_check(other)
    result = cu.cuCtxEnablePeerAccess(<cu.CUcontext> other, 0)
    if result == cu.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        return 0
    return check(result, context, "enabling access to a peer")


# ---- memory

cdef uintptr_t memory_allocate(uintptr_t context, size_t nbytes) except 0 nogil:
    cdef cu.CUdeviceptr ptr = 0
    cdef Scope scope
    enter(&scope, context)
    check_room(cu.cuMemAlloc(&ptr, nbytes), context, "allocating device memory", nbytes)
    return <uintptr_t> ptr


cdef int memory_free(uintptr_t context, uintptr_t ptr) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuMemFree(ptr), context, "freeing device memory")


cdef uintptr_t host_allocate(uintptr_t context, size_t nbytes) except 0 nogil:
    cdef void *ptr = NULL
    cdef Scope scope
    enter(&scope, context)
    check_room(
        cu.cuMemHostAlloc(&ptr, nbytes, cu.CU_MEMHOSTALLOC_PORTABLE | cu.CU_MEMHOSTALLOC_DEVICEMAP),
        context, "allocating pinned host memory", nbytes)
    return <uintptr_t> ptr


cdef int host_free(uintptr_t context, uintptr_t ptr) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuMemFreeHost(<void *> ptr), context, "freeing pinned host memory")


cdef int pointer_kind(uintptr_t ptr, bint *is_device, bint *is_pinned, int *ordinal) except -1:
    cdef unsigned int kind = 0
    cdef int where = -1
    cdef cu.CUpointer_attribute[2] asked
    cdef void *found[2]
    asked[0] = cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    asked[1] = cu.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    found[0] = &kind
    found[1] = &where
    driver_check(0)
    check(cu.cuPointerGetAttributes(2, asked, found, ptr), 0, "asking what an address is")
    is_device[0] = kind == cu.CU_MEMORYTYPE_DEVICE
    is_pinned[0] = kind == cu.CU_MEMORYTYPE_HOST
    ordinal[0] = where
    return 0


# ---- streams and events

cdef uintptr_t stream_create(uintptr_t context, int priority) except 0 nogil:
    cdef cu.CUstream stream = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuStreamCreateWithPriority(&stream, cu.CU_STREAM_NON_BLOCKING, priority), context,
          "making a stream")
    return <uintptr_t> stream


cdef int stream_destroy(uintptr_t context, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuStreamDestroy(<cu.CUstream> stream), context, "destroying a stream")


cdef int stream_query(uintptr_t context, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    result = cu.cuStreamQuery(<cu.CUstream> stream)
    if result == cu.CUDA_ERROR_NOT_READY:
        return 0
    check(result, context, "looking whether a stream is done")
    return 1


cdef int stream_capturing(uintptr_t context, uintptr_t stream) except -1 nogil:
    cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuStreamIsCapturing(<cu.CUstream> stream, &status), context,
          "looking whether a stream is captured")
    return status != cu.CU_STREAM_CAPTURE_STATUS_NONE


cdef int stream_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuStreamWaitEvent(<cu.CUstream> stream, <cu.CUevent> event, 0), context,
                 "letting a stream wait")


cdef int stream_call(uintptr_t context, uintptr_t stream, host_call f, void *data) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuLaunchHostFunc(<cu.CUstream> stream, <cu.CUhostFn> <void *> f, data), context,
                 "enqueuing a host function")


cdef uintptr_t stream_context(uintptr_t context, uintptr_t stream) except 0 nogil:
    cdef cu.CUcontext found = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuStreamGetCtx(<cu.CUstream> stream, &found), context,
          "asking for the context of a stream")
    return <uintptr_t> found


cdef uintptr_t event_create(uintptr_t context, bint timing) except 0 nogil:
    cdef cu.CUevent event = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuEventCreate(&event, cu.CU_EVENT_DEFAULT if timing else cu.CU_EVENT_DISABLE_TIMING),
          context, "making an event")
    return <uintptr_t> event


cdef int event_destroy(uintptr_t context, uintptr_t event) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuEventDestroy(<cu.CUevent> event), context, "destroying an event")


cdef int event_record(uintptr_t context, uintptr_t event, uintptr_t stream) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuEventRecord(<cu.CUevent> event, <cu.CUstream> stream), context,
                 "recording an event")


cdef int event_query(uintptr_t context, uintptr_t event) except -1 nogil:
    cdef cu.CUresult result
    cdef Scope scope
    enter(&scope, context)
    result = cu.cuEventQuery(<cu.CUevent> event)
    if result == cu.CUDA_ERROR_NOT_READY:
        return 0
    check(result, context, "waiting for the device")
    return 1


cdef int event_elapsed(uintptr_t context, uintptr_t start, uintptr_t end,
                       float *milliseconds) except -1 nogil:
    cdef Scope scope
    enter(&scope, context)
    return check(cu.cuEventElapsedTime(milliseconds, <cu.CUevent> start, <cu.CUevent> end), context,
                 "asking for the time between events")


# ---- modules and functions

cdef uintptr_t module_load(uintptr_t context, const uint8_t *image, size_t nbytes) except 0:
    cdef cu.CUmodule module = NULL
    cdef cu.CUjit_option[2] options
    cdef void *values[2]
    cdef char[LOG_BYTES] log
    cdef int result = 0
    cdef Scope scope
    # The driver reads text up to its final zero, so there has to be one.
    cdef char *text = <char *> malloc(nbytes + 1)
    if text == NULL:
        raise OutOfMemoryError(f"the host has no {nbytes} bytes left for an image")
    try:
        with nogil:
            memcpy(text, image, nbytes)
            text[nbytes] = 0
            log[0] = 0
            options[0] = cu.CU_JIT_ERROR_LOG_BUFFER
            options[1] = cu.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
            values[0] = log
            values[1] = <void *> <uintptr_t> LOG_BYTES
            enter(&scope, context)
            result = cu.cuModuleLoadDataEx(&module, text, 2, options, values)
        if result in (
                cu.CUDA_ERROR_INVALID_VALUE, cu.CUDA_ERROR_INVALID_IMAGE,
                cu.CUDA_ERROR_NO_BINARY_FOR_GPU, cu.CUDA_ERROR_INVALID_PTX,
                cu.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cu.CUDA_ERROR_INVALID_SOURCE,
                cu.CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
                cu.CUDA_ERROR_SHARED_OBJECT_INIT_FAILED):
            log[LOG_BYTES - 1] = 0
            words = (<bytes> log).decode(errors="replace").strip()
            raise GraphError(
                f"the driver cannot load this image of {nbytes} bytes (error {result})"
                + (f":\n{words}" if words else ": it is no image, or for another architecture"))
        check(result, context, "loading a module")
    finally:
        free(text)
    return <uintptr_t> module


cdef int module_unload(uintptr_t context, uintptr_t module) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuModuleUnload(<cu.CUmodule> module), context, "unloading a module")


cdef uintptr_t module_function(uintptr_t context, uintptr_t module, const char *name) except 0:
    cdef cu.CUfunction function = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuModuleGetFunction(&function, <cu.CUmodule> module, name), context,
          "looking for a kernel in an image")
    return <uintptr_t> function


cdef int module_global(uintptr_t context, uintptr_t module, const char *name, uintptr_t *ptr,
                       size_t *nbytes) except -1:
    cdef cu.CUdeviceptr found = 0
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuModuleGetGlobal(&found, nbytes, <cu.CUmodule> module, name), context,
          "looking for a variable in an image")
    ptr[0] = <uintptr_t> found
    return 0


cdef tuple kernel_function(uintptr_t context, uintptr_t kernel):
    cdef cu.CUfunction function = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuKernelGetFunction(&function, <cu.CUkernel> kernel), context,
          "looking for the function of a kernel")
    return <uintptr_t> function, function_name(context, <uintptr_t> function)


cdef str function_name(uintptr_t context, uintptr_t function):
    cdef const char *name = NULL
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuFuncGetName(&name, <cu.CUfunction> function), context,
          "asking for the name of a kernel")
    return name.decode()


cdef int function_attribute(uintptr_t context, uintptr_t function, int attribute) except? -1:
    cdef int value = 0
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuFuncGetAttribute(&value, <cu.CUfunction_attribute> attribute,
                                <cu.CUfunction> function),
          context, "asking for an attribute of a kernel")
    return value


cdef int function_set_attribute(uintptr_t context, uintptr_t function, int attribute,
                                int value) except -1:
    cdef Scope scope
    enter(&scope, context)
    return check(
        cu.cuFuncSetAttribute(<cu.CUfunction> function, <cu.CUfunction_attribute> attribute, value),
        context, "setting an attribute of a kernel")


cdef int function_parameter(uintptr_t context, uintptr_t function, size_t index, size_t *offset,
                            size_t *nbytes) except -1:
    cdef Scope scope
    enter(&scope, context)
    result = cu.cuFuncGetParamInfo(<cu.CUfunction> function, index, offset, nbytes)
    if result == cu.CUDA_ERROR_INVALID_VALUE:
        return 0
    check(result, context, "asking for a kernel's parameters")
    return 1


cdef int function_residency(uintptr_t context, uintptr_t function, int block_threads,
                            size_t shared_bytes) except -1:
    cdef int blocks = 0
    cdef cu.CUdevice device = 0
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuCtxGetDevice(&device), context, "asking for the device")
    check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
              &blocks, <cu.CUfunction> function, block_threads, shared_bytes),
          context, "asking how many blocks fit")
    return blocks * device_attribute(device, cu.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
