// Modules: loading images into a context.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "modules.h"

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

CUresult get_global(CUmodule module, const char *name, CUdeviceptr *out, size_t *size) {
  auto found = module->globals.find(name);
  if (found == module->globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (out) *out = found->second;
  if (size) *size = module->image->globals[name].size;
  return CUDA_SUCCESS;
}

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
  return get_global(module, name, out, size);
}

EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  ENTER(PLAIN);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
