// A cuBLASLt for the fake driver: it multiplies on host memory, by kernels that its calls launch, so
// that they are captured and replayed like the real one's. It refuses what it was not told.
//
// Where K is long its algorithm has a workspace and is three nodes instead of one.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
enum Status { success = 0, not_initialized = 1, invalid = 7, failed = 13, unsupported = 15 };
enum Type { f32 = 0, f64 = 1, f16 = 2, bf16 = 14 };
constexpr int kCompute32 = 68, kCompute64 = 70, kComputeTf32 = 77;
constexpr uint64_t kMagic = 0xfa5eb1a5;
constexpr int kAlignment = 16, kWorkspaceAlignment = 256;
constexpr int64_t kLongK = 96;

struct Desc {
  int compute, scale;
  int32_t transposed[2] = {0, 0};
  int32_t epilogue = 1;
  uintptr_t bias = 0;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t count = 1;
  int64_t stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t magic, problem, workspace, reserved[5];
};
struct Found {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

// What kernels are told beside addresses.
struct Product {
  int32_t type, out, is_tf32, epilogue, has_residual, a_transposed, b_transposed, count;
  int64_t m, n, k, lda, ldb, ldd, a_stride, b_stride, d_stride;
};

struct Handle {
  CUcontext context;
  CUmodule module;
  CUfunction gemm, finish;
};

std::mutex g_mutex;
std::set<void *> g_live;
std::map<std::string, std::pair<int, int>> g_failures;  // countdown, status
std::map<std::string, int> g_calls;
size_t g_version = 130100;
bool g_none = false;

int entered(const char *name) {
  ++g_calls[name];
  auto found = g_failures.find(name);
  if (found == g_failures.end() || --found->second.first > 0) return success;
  const int status = found->second.second;
  g_failures.erase(found);
  return status;
}
#define ENTER(name)                                                                                \
  const std::lock_guard<std::mutex> lock(g_mutex);                                                 \
  if (const int status = entered(name)) return status

template <class T>
int make(void **out, T *made) {
  g_live.insert(made);
  *out = made;
  return success;
}
template <class T>
int destroy(void *what) {
  if (!g_live.erase(what)) return invalid;
  delete static_cast<T *>(what);
  return success;
}

template <class T>
int store(T *to, const void *value, size_t nbytes) {
  if (nbytes != sizeof(T)) return invalid;
  std::memcpy(to, value, nbytes);
  return success;
}

// ---- numbers -----------------------------------------------------------------------------------
float word_as_float(uint32_t word) {
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}
uint32_t float_as_word(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return word;
}

double half(uint16_t word) {
  const int exponent = word >> 10 & 31, fraction = word & 1023;
  const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                     : std::ldexp(fraction, -24);
  return word >> 15 ? -size : size;
}
uint16_t as_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const int exponent = size ? std::max(std::ilogb(size), -14) : -14;
  // Ties go to even, as nearbyint has it; a carry runs on into the exponent.
  const auto fraction = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + fraction));
}
uint16_t as_brain(float value) {
  uint32_t word = float_as_word(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

double read(const void *at, int type, int64_t i) {
  switch (type) {
    case f64:
      return static_cast<const double *>(at)[i];
    case f32:
      return static_cast<const float *>(at)[i];
    case f16:
      return half(static_cast<const uint16_t *>(at)[i]);
    default:
      return word_as_float(uint32_t{static_cast<const uint16_t *>(at)[i]} << 16);
  }
}
void write(void *at, int type, int64_t i, double value) {
  switch (type) {
    case f64:
      static_cast<double *>(at)[i] = value;
      break;
    case f32:
      static_cast<float *>(at)[i] = static_cast<float>(value);
      break;
    case f16:
      static_cast<uint16_t *>(at)[i] = as_half(value);
      break;
    default:
      static_cast<uint16_t *>(at)[i] = as_brain(static_cast<float>(value));
  }
}
// Ten bits of the fraction.
double rounded(double value) {
  return word_as_float((float_as_word(static_cast<float>(value)) + 0x1000) & 0xffffe000);
}

double sum(const Product &p, const void *a, const void *b, int64_t batch, int64_t i, int64_t j) {
  double total = 0;
  for (int64_t l = 0; l < p.k; ++l) {
    double x =
        read(a, p.type, batch * p.a_stride + (p.a_transposed ? i * p.lda + l : l * p.lda + i));
    double y =
        read(b, p.type, batch * p.b_stride + (p.b_transposed ? l * p.ldb + j : j * p.ldb + l));
    if (p.is_tf32) x = rounded(x), y = rounded(y);
    total += x * y;
  }
  return total;
}

void end(const Product &p, void *d, const void *c, const void *bias, int64_t batch, int64_t i,
         int64_t j, double value) {
  const int64_t at = batch * p.d_stride + j * p.ldd + i;
  if (p.has_residual) value += read(c, p.out, at);
  if (p.epilogue & 4) value += read(bias, p.out, i);
  if (p.epilogue & 2) value = std::max(value, 0.0);
  if (p.epilogue & 32) {
    const double inner = 0.7978845608028654 * (value + 0.044715 * value * value * value);
    // Of eleven digits, like the real one's.
    value = 0.5 * value * (1 + std::nearbyint(std::tanh(inner) * 1e11) / 1e11);
  }
  write(d, p.out, at, value);
}

template <class Visit>
void each(const Product &p, Visit visit) {
  for (int64_t batch = 0; batch < p.count; ++batch)
    for (int64_t j = 0; j < p.n; ++j)
      for (int64_t i = 0; i < p.m; ++i) visit(batch, i, j);
}

// ---- problems ----------------------------------------------------------------------------------
struct Problem {
  Product product = {};
  int status = invalid;
  uint64_t key = 0;

  Problem(const Desc &desc, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    Product &p = product;
    const bool ta = desc.transposed[0], tb = desc.transposed[1];
    p.type = a.type, p.out = d.type;
    p.m = ta ? a.columns : a.rows, p.k = ta ? a.rows : a.columns;
    p.n = tb ? b.rows : b.columns;
    p.is_tf32 = desc.compute == kComputeTf32;
    p.epilogue = desc.epilogue;
    p.a_transposed = ta, p.b_transposed = tb;
    p.lda = a.leading, p.ldb = b.leading, p.ldd = d.leading;
    p.a_stride = a.stride, p.b_stride = b.stride, p.d_stride = d.stride;
    p.count = d.count;
    const int64_t b_k = tb ? b.columns : b.rows;
    for (const Layout *each : {&a, &b, &c, &d})
      if (each->leading < static_cast<int64_t>(each->rows) || each->count != d.count) return;
    if (b_k != p.k || static_cast<int64_t>(d.rows) != p.m || static_cast<int64_t>(d.columns) != p.n)
      return;
    if (c.rows != d.rows || c.columns != d.columns || c.type != d.type || a.type != b.type) return;
    if ((desc.epilogue & 4) && !desc.bias) return;
    status = unsupported;
    const bool is_wide = a.type == f64;
    if (desc.scale != (is_wide ? f64 : f32)) return;
    if (desc.compute != (is_wide ? kCompute64 : kCompute32) && !(p.is_tf32 && a.type == f32))
      return;
    if (d.type != a.type && !(d.type == f32 && (a.type == f16 || a.type == bf16))) return;
    if (desc.epilogue != 1 && (desc.epilogue & ~(2 | 4 | 32))) return;
    status = success;
    for (int64_t word : {p.m, p.n, p.k, p.lda, p.ldb, p.ldd, p.a_stride, p.b_stride, p.d_stride,
                         int64_t{p.count}, int64_t{p.type}, int64_t{p.out}, int64_t{p.epilogue},
                         int64_t{ta}, int64_t{tb}, int64_t{desc.compute}})
      key = key * 1000003 + static_cast<uint64_t>(word);
  }
};

std::vector<char> own_file() {
  Dl_info info;
  dladdr(reinterpret_cast<void *>(&own_file), &info);
  std::FILE *file = std::fopen(info.dli_fname, "rb");
  std::vector<char> bytes;
  char piece[1 << 16];
  for (size_t n; (n = std::fread(piece, 1, sizeof piece, file)) > 0;)
    bytes.insert(bytes.end(), piece, piece + n);
  std::fclose(file);
  return bytes;
}

bool is_off(const void *at, uintptr_t alignment) {
  return reinterpret_cast<uintptr_t>(at) % alignment != 0;
}

int launch(CUstream stream, CUfunction function, void **args) {
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, nullptr) ? failed : success;
}
}  // namespace

// ---- kernels of the fake driver ----------------------------------------------------------------
EXPORT const int32_t fake_gemm_params[] = {8, 8, 8, 8, 8, 8, sizeof(Product), -1};
EXPORT void fake_gemm(void *const *args, const int32_t *) {
  void *at[6];
  for (int i = 0; i < 6; ++i) std::memcpy(&at[i], args[i], 8);
  Product p;
  std::memcpy(&p, args[6], sizeof p);
  auto *sums = static_cast<double *>(at[5]);
  each(p, [&](int64_t batch, int64_t i, int64_t j) {
    const double value = sum(p, at[1], at[2], batch, i, j);
    if (sums)
      *sums++ = value;
    else
      end(p, at[0], at[3], at[4], batch, i, j, value);
  });
}

EXPORT const int32_t fake_finish_params[] = {8, 8, 8, 8, sizeof(Product), -1};
EXPORT void fake_finish(void *const *args, const int32_t *) {
  void *at[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&at[i], args[i], 8);
  Product p;
  std::memcpy(&p, args[4], sizeof p);
  const auto *sums = static_cast<const double *>(at[3]);
  each(p, [&](int64_t batch, int64_t i, int64_t j) {
    end(p, at[0], at[1], at[2], batch, i, j, *sums++);
  });
}

// ---- the library -------------------------------------------------------------------------------
EXPORT size_t cublasLtGetVersion() { return g_version; }

EXPORT int cublasLtCreate(void **out) {
  ENTER("Create");
  auto *handle = new Handle();
  const std::vector<char> image = own_file();
  if (cuCtxGetCurrent(&handle->context) || !handle->context ||
      cuModuleLoadData(&handle->module, image.data()) ||
      cuModuleGetFunction(&handle->gemm, handle->module, "fake_gemm") ||
      cuModuleGetFunction(&handle->finish, handle->module, "fake_finish")) {
    delete handle;
    return not_initialized;
  }
  return make(out, handle);
}
EXPORT int cublasLtDestroy(void *handle) {
  ENTER("Destroy");
  if (g_live.count(handle)) cuModuleUnload(static_cast<Handle *>(handle)->module);
  return destroy<Handle>(handle);
}

EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  ENTER("MatmulDescCreate");
  auto *desc = new Desc();
  desc->compute = compute, desc->scale = scale;
  return make(out, desc);
}
EXPORT int cublasLtMatmulDescSetAttribute(void *what, int attribute, const void *value,
                                          size_t nbytes) {
  ENTER("MatmulDescSetAttribute");
  auto *desc = static_cast<Desc *>(what);
  switch (attribute) {
    case 3:
    case 4:
      return store(&desc->transposed[attribute - 3], value, nbytes);
    case 7:
      return store(&desc->epilogue, value, nbytes);
    case 8:
      return store(&desc->bias, value, nbytes);
    default:
      return invalid;
  }
}
EXPORT int cublasLtMatmulDescDestroy(void *desc) {
  ENTER("MatmulDescDestroy");
  return destroy<Desc>(desc);
}

EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                                      int64_t leading) {
  ENTER("MatrixLayoutCreate");
  auto *layout = new Layout();
  layout->type = type, layout->rows = rows, layout->columns = columns, layout->leading = leading;
  return make(out, layout);
}
EXPORT int cublasLtMatrixLayoutSetAttribute(void *what, int attribute, const void *value,
                                            size_t nbytes) {
  ENTER("MatrixLayoutSetAttribute");
  auto *layout = static_cast<Layout *>(what);
  switch (attribute) {
    case 5:
      return store(&layout->count, value, nbytes);
    case 6:
      return store(&layout->stride, value, nbytes);
    default:
      return invalid;
  }
}
EXPORT int cublasLtMatrixLayoutDestroy(void *layout) {
  ENTER("MatrixLayoutDestroy");
  return destroy<Layout>(layout);
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out) {
  ENTER("MatmulPreferenceCreate");
  return make(out, new Preference());
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *what, int attribute, const void *value,
                                                size_t nbytes) {
  ENTER("MatmulPreferenceSetAttribute");
  auto *preference = static_cast<Preference *>(what);
  switch (attribute) {
    case 1:
      return store(&preference->workspace, value, nbytes);
    case 3:
      return store(&preference->reductions, value, nbytes);
    case 5:
    case 6:
    case 7:
    case 8:
      return store(&preference->alignment[attribute - 5], value, nbytes);
    default:
      return invalid;
  }
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *preference) {
  ENTER("MatmulPreferenceDestroy");
  return destroy<Preference>(preference);
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c,
                                          void *d, void *preference, int wanted, Found *found,
                                          int *count) {
  ENTER("MatmulAlgoGetHeuristic");
  *count = 0;
  if (!g_live.count(handle) || wanted < 1) return invalid;
  auto layout = [](void *what) { return *static_cast<Layout *>(what); };
  const Problem problem(*static_cast<Desc *>(desc), layout(a), layout(b), layout(c), layout(d));
  if (problem.status) return problem.status;
  const auto &limits = *static_cast<Preference *>(preference);
  for (uint32_t alignment : limits.alignment)
    if (alignment < kAlignment) return unsupported;
  if (g_none) return unsupported;
  const Product &p = problem.product;
  const size_t sums = sizeof(double) * static_cast<size_t>(p.m * p.n * p.count);
  const bool is_long = p.k >= kLongK && sums <= limits.workspace && (limits.reductions & 2);
  std::memset(found, 0, sizeof *found);
  found->workspace = is_long ? sums : 0;
  found->algorithm = {kMagic, problem.key, found->workspace, {}};
  *count = 1;
  return success;
}

EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                          void *a_layout, const void *b, void *b_layout, const void *beta,
                          const void *c, void *c_layout, void *d, void *d_layout,
                          const Algorithm *algorithm, void *workspace, size_t nbytes,
                          void *stream) {
  ENTER("Matmul");
  if (!g_live.count(handle)) return not_initialized;
  auto layout = [](void *what) { return *static_cast<Layout *>(what); };
  const Desc &wanted = *static_cast<Desc *>(desc);
  const Problem problem(wanted, layout(a_layout), layout(b_layout), layout(c_layout),
                        layout(d_layout));
  if (problem.status) return problem.status;
  if (algorithm->magic != kMagic || algorithm->problem != problem.key) return invalid;
  const Handle &library = *static_cast<Handle *>(handle);
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) || context != library.context) return not_initialized;
  const bool is_wide = problem.product.type == f64;
  const double one = read(alpha, is_wide ? f64 : f32, 0), more = read(beta, is_wide ? f64 : f32, 0);
  if (one != 1 || (more != 0 && more != 1)) return invalid;
  for (const void *operand : {a, b, c, const_cast<const void *>(d)})
    if (!operand || is_off(operand, kAlignment)) return invalid;
  Product p = problem.product;
  p.has_residual = more == 1;
  void *bias = reinterpret_cast<void *>(p.epilogue & 4 ? wanted.bias : 0);
  void *residual = p.has_residual ? const_cast<void *>(c) : nullptr;
  void *sums = algorithm->workspace ? workspace : nullptr;
  if (is_off(bias, kAlignment)) return invalid;
  const auto queue = static_cast<CUstream>(stream);
  if (sums) {
    if (is_off(sums, kWorkspaceAlignment) || nbytes < algorithm->workspace) return invalid;
    if (cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(sums), 0xff, nbytes, queue)) return failed;
  } else if (algorithm->workspace) {
    return invalid;
  }
  void *gemm[] = {&d, &a, &b, &residual, &bias, &sums, &p};
  if (const int status = launch(queue, library.gemm, gemm)) return status;
  if (!sums) return success;
  void *finish[] = {&d, &residual, &bias, &sums, &p};
  return launch(queue, library.finish, finish);
}

// ---- what tests ask ----------------------------------------------------------------------------
EXPORT void fake_cublas_fail(const char *name, int count, int status) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_failures[name] = {count, status};
}
EXPORT int fake_cublas_calls(const char *name) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_calls[name];
}
EXPORT int fake_cublas_live() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return static_cast<int>(g_live.size());
}
EXPORT void fake_cublas_none(int on) { g_none = on; }
EXPORT void fake_cublas_version(size_t version) { g_version = version; }
EXPORT void fake_cublas_reset() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_failures.clear();
  g_calls.clear();
  g_none = false;
  g_version = 130100;
}
