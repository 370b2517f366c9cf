// Functions: what is known of a kernel.
#include "modules.h"

CUresult param_info(const Code &code, size_t index, size_t *offset, size_t *size) {
  if (index >= code.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = code.params[index].offset;
  if (size) *size = code.params[index].size;
  return CUDA_SUCCESS;
}

CUresult get_attribute(int *value, CUfunction_attribute name, CUfunction f) {
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kMaxThreads;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = f->code->static_shared;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = state().major * 10 + state().minor;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = f->max_dynamic_shared;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = f->preferred_carveout;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = f->non_portable_cluster;
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(CUfunction f, CUfunction_attribute name, int value) {
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value + f->code->static_shared > kSharedOptin)
        return CUDA_ERROR_INVALID_VALUE;
      f->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      f->preferred_carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      f->non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}  // A kernel of a library may stand where a function is asked for.
CUfunction find_function(CUfunction handle) {
  if (state().functions.count(handle)) return handle;
  CUfunction found = nullptr;
  return function_of(reinterpret_cast<CUkernel>(handle), &found) ? nullptr : found;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction handle) {
  ENTER(PLAIN);
  CUfunction f = find_function(handle);
  return f ? get_attribute(value, name, f) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute name, int value) {
  ENTER(PLAIN);
  CUfunction f = find_function(handle);
  return f ? set_attribute(f, name, value) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size) {
  ENTER(PLAIN);
  CUfunction f = find_function(handle);
  return f ? param_info(*f->code, index, offset, size) : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction handle) {
  ENTER(PLAIN);
  CUfunction f = find_function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  *name = f->code->name.c_str();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetModule(CUmodule *out, CUfunction handle) {
  ENTER(PLAIN);
  CUfunction f = find_function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  *out = f->module;
  return CUDA_SUCCESS;
}
