// Modules, libraries and the functions in them.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "images.h"

struct CUmod_st {
  CUcontext context;
  std::shared_ptr<Image> image;
  std::map<std::string, CUfunction> functions;
  std::map<std::string, CUdeviceptr> globals;
};

struct CUlib_st {
  std::shared_ptr<Image> image;
  std::map<CUcontext, CUmodule> modules;
  std::map<std::string, CUkernel> kernels;
};

struct CUkern_st {
  CUlibrary library;
  std::string name;
};

namespace {
CUresult load(const void *data, unsigned n, CUjit_option *options, void **values,
              std::shared_ptr<Image> *out) {
  std::string log;
  const CUresult code = read_image(data, out, &log);
  char *buffer = nullptr;
  for (unsigned i = 0; i < n; ++i)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char *>(values[i]);
  for (unsigned i = 0; i < n; ++i)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      const size_t room = reinterpret_cast<uintptr_t>(values[i]);
      if (!buffer || !room) continue;
      log.resize(std::min(log.size(), room - 1));
      std::memcpy(buffer, log.c_str(), log.size() + 1);
      values[i] = reinterpret_cast<void *>(log.size());
    }
  return code;
}

CUresult make_module(CUcontext context, std::shared_ptr<Image> image, CUmodule *out) {
  CUmodule made = new CUmod_st{context, std::move(image), {}, {}};
  for (const auto &[name, global] : made->image->globals) {
    if (global.host) {
      made->globals[name] = global.host;
      adopt(global.host, global.size, Kind::global, context, 0);
      continue;
    }
    uintptr_t place;
    TRY(allocate(context, global.size, Kind::global, 0, &place));
    std::memset(reinterpret_cast<void *>(place), 0, global.size);
    std::memcpy(reinterpret_cast<void *>(place), global.content.data(), global.content.size());
    made->globals[name] = place;
  }
  state().modules.insert(made);
  *out = made;
  return CUDA_SUCCESS;
}

void drop_module(CUmodule module) {
  for (auto &[name, function] : module->functions) {
    // The structure stays: nodes may name it still, and must find that it is gone.
    function->alive = false;
    function->image = nullptr;
    state().functions.erase(function);
  }
  for (const auto &[name, place] : module->globals) {
    if (module->image->globals[name].host) {
      disown(place);
    } else {
      release(place, Kind::global);
    }
  }
  state().modules.erase(module);
  delete module;
}

CUresult function_of(CUmodule module, const std::string &name, CUfunction *out) {
  CUfunction &known = module->functions[name];
  if (!known) {
    const Code *found = nullptr;
    for (const Code &code : module->image->codes)
      if (code.name == name) found = &code;
    if (!found) {
      module->functions.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    known = new CUfunc_st;
    known->module = module;
    known->context = module->context;
    known->code = found;
    known->image = module->image;
    state().functions.insert(known);
  }
  *out = known;
  return CUDA_SUCCESS;
}

CUresult module_of(CUlibrary library, CUcontext context, CUmodule *out) {
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  auto found = library->modules.find(context);
  if (found == library->modules.end() || !state().modules.count(found->second)) {
    TRY(make_module(context, library->image, out));
    library->modules[context] = *out;
    return CUDA_SUCCESS;
  }
  *out = found->second;
  return CUDA_SUCCESS;
}

CUresult function_of(CUkernel kernel, CUfunction *out) {
  if (!state().kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module;
  TRY(module_of(kernel->library, current(), &module));
  return function_of(module, kernel->name, out);
}

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
}
}  // namespace

// A kernel of a library may stand where a function is asked for.
CUfunction find_function(CUfunction handle) {
  if (state().functions.count(handle)) return handle;
  CUfunction found = nullptr;
  return function_of(reinterpret_cast<CUkernel>(handle), &found) ? nullptr : found;
}

// ---- modules -----------------------------------------------------------------------------------
EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n,
                                   CUjit_option *options, void **values) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  std::shared_ptr<Image> read;
  TRY(load(image, n, options, values, &read));
  return make_module(entry.context, std::move(read), out);
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  std::shared_ptr<Image> read;
  TRY(load(image, 0, nullptr, nullptr, &read));
  return make_module(entry.context, std::move(read), out);
}

EXPORT CUresult cuModuleLoad(CUmodule *out, const char *path) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::shared_ptr<Image> read;
  TRY(load(bytes.c_str(), 0, nullptr, nullptr, &read));
  return make_module(entry.context, std::move(read), out);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!state().modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  drop_module(module);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  ENTER(CONTEXT | HEALTHY);
  if (!state().modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  return function_of(module, name, out);
}

EXPORT CUresult cuModuleGetGlobal(CUdeviceptr *out, size_t *size, CUmodule module,
                                  const char *name) {
  ENTER(CONTEXT | HEALTHY);
  if (!state().modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  auto found = module->globals.find(name);
  if (found == module->globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (out) *out = found->second;
  if (size) *size = module->image->globals[name].size;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  ENTER(PLAIN);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

// ---- libraries ---------------------------------------------------------------------------------
EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *options,
                                  void **values, unsigned int n, CUlibraryOption *, void **,
                                  unsigned int) {
  ENTER(PLAIN);
  std::shared_ptr<Image> read;
  TRY(load(image, n, options, values, &read));
  *out = new CUlib_st{std::move(read), {}, {}};
  state().libraries.insert(*out);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  ENTER(PLAIN);
  State &s = state();
  if (!s.libraries.erase(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (auto &[context, module] : library->modules)
    if (s.modules.count(module)) drop_module(module);
  for (auto &[name, kernel] : library->kernels) {
    s.kernels.erase(kernel);
    delete kernel;
  }
  delete library;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
  ENTER(PLAIN);
  if (!state().libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (const Code &code : library->image->codes) {
    if (code.name != name) continue;
    CUkernel &known = library->kernels[name];
    if (!known) known = new CUkern_st{library, name};
    state().kernels.insert(known);
    *out = known;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
  ENTER(PLAIN);
  if (!state().libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->image->codes.size());
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library) {
  ENTER(CONTEXT | HEALTHY);
  if (!state().libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  return module_of(library, entry.context, out);
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *out, size_t *size, CUlibrary library,
                                   const char *name) {
  ENTER(CONTEXT | HEALTHY);
  if (!state().libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module;
  TRY(module_of(library, entry.context, &module));
  auto found = module->globals.find(name);
  if (found == module->globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (out) *out = found->second;
  if (size) *size = module->image->globals[name].size;
  return CUDA_SUCCESS;
}

// ---- functions and kernels ---------------------------------------------------------------------
EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
  ENTER(CONTEXT | HEALTHY);
  return function_of(kernel, out);
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel) {
  ENTER(PLAIN);
  if (!state().kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
  ENTER(PLAIN);
  if (!state().kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  for (const Code &code : kernel->library->image->codes)
    if (code.name == kernel->name) return param_info(code, index, offset, size);
  return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute name, CUkernel kernel,
                                     CUdevice) {
  ENTER(CONTEXT);
  CUfunction f;
  TRY(function_of(kernel, &f));
  return get_attribute(value, name, f);
}

EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute name, int value, CUkernel kernel,
                                     CUdevice) {
  ENTER(CONTEXT);
  CUfunction f;
  TRY(function_of(kernel, &f));
  return set_attribute(f, name, value);
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
