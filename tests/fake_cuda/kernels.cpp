// Kernels: what a launch must look like, and running one.
#include <algorithm>
#include <cstring>

#include "images.h"

namespace {
unsigned long long volume(const unsigned dims[3]) {
  return static_cast<unsigned long long>(dims[0]) * dims[1] * dims[2];
}

const CUlaunchAttributeValue *attribute(const KernelWork &kernel, CUlaunchAttributeID name) {
  auto found = kernel.attributes.find(name);
  return found == kernel.attributes.end() ? nullptr : &found->second;
}

CUresult check_cluster(const KernelWork &kernel) {
  const CUlaunchAttributeValue *value = attribute(kernel, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  if (!value) return CUDA_SUCCESS;
  const unsigned dims[3] = {value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
  const unsigned long long size = volume(dims);
  if (size == 0) return CUDA_SUCCESS;
  if (size > (kernel.function->non_portable_cluster ? 16u : 8u))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i)
    if (kernel.grid[i] % dims[i]) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult check_cooperative(const KernelWork &kernel) {
  const CUlaunchAttributeValue *value = attribute(kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  if (!value || !value->cooperative) return CUDA_SUCCESS;
  const unsigned long long resident = std::min(32ull, 2048 / volume(kernel.block));
  return volume(kernel.grid) > resident * kMultiprocessors ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                           : CUDA_SUCCESS;
}

// A pointer into memory that is gone, or that this context cannot reach.
bool is_bad_pointer(uintptr_t address, CUcontext context) {
  const Block *block = block_at(address);
  if (!block) return was_freed(address);
  return !is_host_kind(block->kind) && block->context && context &&
         block->context->device != context->device && !context->peers.count(block->context);
}

struct Call {
  HostKernel host;
  void *const *args;
  int32_t dims[8];
};

void call_host(void *data) {
  const Call &call = *static_cast<Call *>(data);
  call.host(call.args, call.dims);
}

struct Fill8 {
  uint64_t *to, value, count;
};

void do_fill8(void *data) {
  const Fill8 &f = *static_cast<Fill8 *>(data);
  std::fill_n(f.to, f.count, f.value);
}

template <class T>
T argument(const KernelWork &kernel, size_t index) {
  T value = {};
  const std::vector<char> &bytes = kernel.arguments[index];
  std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
  return value;
}

CUresult run_builtin(Builtin which, const KernelWork &kernel) {
  if (which == Builtin::fill8) {
    if (kernel.arguments.size() < 3) return CUDA_ERROR_ILLEGAL_ADDRESS;
    Fill8 fill = {argument<uint64_t *>(kernel, 0), argument<uint64_t>(kernel, 1),
                  argument<uint64_t>(kernel, 2)};
    {
      Lock lock(state().mutex);
      if (fill.count && !touchable(reinterpret_cast<uintptr_t>(fill.to), fill.count * 8))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return guarded(do_fill8, &fill) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (kernel.arguments.size() < 2) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const uintptr_t place = argument<uintptr_t>(kernel, 1);
  Lock lock(state().mutex);
  if (!block_at(place) || !touchable(place, sizeof(unsigned))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return set_condition(argument<uint64_t>(kernel, 0), *reinterpret_cast<unsigned *>(place))
             ? CUDA_SUCCESS
             : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult launch(CUstream handle, KernelWork kernel, void **params, void **extra,
                CUfunction function) {
  CUstream stream;
  TRY(find_stream(handle, &stream));
  kernel.function = find_function(function);
  if (!kernel.function) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel.function->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  TRY(pack_arguments(kernel.function, params, extra, &kernel));
  TRY(check_kernel(kernel));
  if (!runs_here(kernel.function)) return CUDA_ERROR_NOT_SUPPORTED;
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_KERNEL;
  work.kernel = std::move(kernel);
  return submit(stream, std::move(work));
}
}  // namespace

bool runs_here(CUfunction function) {
  return function && function->alive &&
         (function->code->host || function->code->builtin != Builtin::none);
}

CUresult check_kernel(const KernelWork &kernel) {
  static const unsigned grid_limit[3] = {2147483647, 65535, 65535},
                        block_limit[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; ++i)
    if (!kernel.grid[i] || !kernel.block[i] || kernel.grid[i] > grid_limit[i] ||
        kernel.block[i] > block_limit[i])
      return CUDA_ERROR_INVALID_VALUE;
  if (volume(kernel.block) > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.shared > static_cast<unsigned>(kernel.function->max_dynamic_shared))
    return CUDA_ERROR_INVALID_VALUE;
  TRY(check_cluster(kernel));
  return check_cooperative(kernel);
}

CUresult pack_arguments(CUfunction function, void **params, void **extra, KernelWork *out) {
  const std::vector<ParamInfo> &infos = function->code->params;
  out->arguments.clear();
  out->pointers.clear();
  const char *packed = nullptr;
  if (!params && extra) {
    for (void **item = extra; *item != CU_LAUNCH_PARAM_END; item += 2)
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<const char *>(item[1]);
  }
  if (!params && !packed && !infos.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < infos.size(); ++i) {
    const char *from = packed ? packed + infos[i].offset : static_cast<const char *>(params[i]);
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    out->arguments.emplace_back(from, from + infos[i].size);
  }
  return CUDA_SUCCESS;
}

CUresult run_kernel(const KernelWork &kernel, CUcontext context) {
  std::shared_ptr<void> keep;
  const Code *code = nullptr;
  {
    Lock lock(state().mutex);
    State &s = state();
    ++s.kernels_run;
    if (s.poison_next) {
      s.poison_next = false;
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (!kernel.function->alive) return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    keep = kernel.function->image;
    code = kernel.function->code;
    // Any parameter of eight bytes may be a pointer; no number looks like one of our addresses.
    for (const std::vector<char> &bytes : kernel.arguments) {
      uintptr_t address = 0;
      if (bytes.size() != sizeof address) continue;
      std::memcpy(&address, bytes.data(), sizeof address);
      if (is_bad_pointer(address, context)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }
  if (!code->host) {
    return code->builtin == Builtin::none ? CUDA_ERROR_NOT_SUPPORTED
                                          : run_builtin(code->builtin, kernel);
  }
  std::vector<void *> args;
  for (const std::vector<char> &bytes : kernel.arguments)
    args.push_back(const_cast<char *>(bytes.data()));
  Call call = {code->host, args.data(), {}};
  for (int i = 0; i < 3; ++i) {
    call.dims[i] = static_cast<int32_t>(kernel.grid[i]);
    call.dims[i + 3] = static_cast<int32_t>(kernel.block[i]);
  }
  call.dims[6] = static_cast<int32_t>(kernel.shared);
  const CUlaunchAttributeValue *cluster = attribute(kernel, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  call.dims[7] = cluster ? std::max(1, static_cast<int32_t>(cluster->clusterDim.x)) : 1;
  return guarded(call_host, &call) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// ---- launches ----------------------------------------------------------------------------------
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream stream,
                               void **params, void **extra) {
  ENTER(PLAIN);
  KernelWork kernel;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  std::copy_n(grid, 3, kernel.grid);
  std::copy_n(block, 3, kernel.block);
  kernel.shared = shared;
  return launch(stream, std::move(kernel), params, extra, f);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                          CUstream stream, void **params) {
  ENTER(PLAIN);
  KernelWork kernel;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  std::copy_n(grid, 3, kernel.grid);
  std::copy_n(block, 3, kernel.block);
  kernel.shared = shared;
  kernel.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative = 1;
  return launch(stream, std::move(kernel), params, nullptr, f);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                                 void **extra) {
  ENTER(PLAIN);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  KernelWork kernel;
  const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::copy_n(grid, 3, kernel.grid);
  std::copy_n(block, 3, kernel.block);
  kernel.shared = config->sharedMemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    kernel.attributes[config->attrs[i].id] = config->attrs[i].value;
  return launch(config->hStream, std::move(kernel), params, extra, f);
}

// ---- occupancy ---------------------------------------------------------------------------------
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction f, int threads,
                                                            size_t shared) {
  ENTER(CONTEXT | HEALTHY);
  if (!find_function(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (threads <= 0 || threads > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  *count = std::min(32, 2048 / threads);
  if (shared) *count = std::min(*count, static_cast<int>(233472 / (shared + 1024)));
  return CUDA_SUCCESS;
}
