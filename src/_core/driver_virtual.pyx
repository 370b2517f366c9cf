# cython: language_level=3
"""Virtual memory of a GPU: addresses, and granules of memory behind them. See `driver_base`."""

from libc.stdint cimport uintptr_t
from libc.string cimport memset
from cuda.bindings cimport cydriver as cu

from fastgraph._core.driver_base cimport (
    Scope, check, check_gone, check_room, driver_idle, enter)


cdef cu.CUmemAllocationProp on_device(int ordinal) noexcept nogil:
    cdef cu.CUmemAllocationProp prop
    memset(&prop, 0, sizeof(prop))
    prop.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = ordinal
    return prop


cdef size_t granule_bytes(uintptr_t context, int ordinal) except 0 nogil:
    cdef cu.CUmemAllocationProp prop = on_device(ordinal)
    cdef size_t nbytes = 0
    cdef Scope scope
    enter(&scope, context)
    check(cu.cuMemGetAllocationGranularity(
        &nbytes, &prop, cu.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), context, "asking for granules")
    return nbytes


cdef uintptr_t address_reserve(uintptr_t context, size_t nbytes) except 0 nogil:
    cdef cu.CUdeviceptr ptr = 0
    cdef Scope scope
    enter(&scope, context)
    check_room(
        cu.cuMemAddressReserve(&ptr, nbytes, 0, 0, 0), context, "reserving addresses", nbytes)
    return <uintptr_t> ptr


cdef int address_free(uintptr_t context, uintptr_t ptr, size_t nbytes) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuMemAddressFree(ptr, nbytes), context, "freeing addresses")


cdef int granules_map(uintptr_t context, int ordinal, uintptr_t ptr,
                      size_t nbytes) except -1 nogil:
    cdef cu.CUmemAllocationProp prop = on_device(ordinal)
    cdef cu.CUmemAccessDesc access
    cdef cu.CUmemGenericAllocationHandle handle = 0
    cdef cu.CUresult result
    cdef Scope scope
    enter(&scope, context)
    check_room(cu.cuMemCreate(&handle, nbytes, &prop, 0), context, "allocating granules", nbytes)
    result = cu.cuMemMap(ptr, nbytes, 0, handle, 0)
    # From now on the memory lives as long as it is mapped.
    cu.cuMemRelease(handle)
    check(result, context, "mapping granules")
    memset(&access, 0, sizeof(access))
    access.location = prop.location
    access.flags = cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    result = cu.cuMemSetAccess(ptr, nbytes, &access, 1)
    if result != cu.CUDA_SUCCESS:
        cu.cuMemUnmap(ptr, nbytes)
    return check(result, context, "opening granules")


cdef int granules_unmap(uintptr_t context, uintptr_t ptr, size_t nbytes) except -1 nogil:
    cdef Scope scope
    if driver_idle(context):
        return 0
    enter(&scope, context)
    return check_gone(cu.cuMemUnmap(ptr, nbytes), context, "unmapping granules")
