// Libraries: images that are loaded into contexts when their kernels are asked for.
#include "modules.h"

namespace {
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

CUkernel kernel_of(CUlibrary library, const std::string &name) {
  CUkernel &known = library->kernels[name];
  if (!known) known = new CUkern_st{library, name};
  state().kernels.insert(known);
  return known;
}
}  // namespace

CUresult function_of(CUkernel kernel, CUfunction *out) {
  if (!state().kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module;
  TRY(module_of(kernel->library, current(), &module));
  return function_of(module, kernel->name, out);
}

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
    *out = kernel_of(library, name);
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

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int count, CUlibrary library) {
  ENTER(PLAIN);
  if (!state().libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  const std::vector<Code> &codes = library->image->codes;
  for (unsigned i = 0; i < count && i < codes.size(); ++i)
    out[i] = kernel_of(library, codes[i].name);
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
  return get_global(module, name, out, size);
}

// ---- kernels -----------------------------------------------------------------------------------
EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
  ENTER(CONTEXT | HEALTHY);
  return function_of(kernel, out);
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel) {
  ENTER(PLAIN);
  if (!state().kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *out = kernel->library;
  return CUDA_SUCCESS;
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
