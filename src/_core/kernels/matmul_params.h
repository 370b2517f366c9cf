// Words of `params` for the matmul family. python/fastgraph/lower/cpu/matmul.py writes them in this
// order; change both together.
#ifndef FG_MATMUL_PARAMS_H
#define FG_MATMUL_PARAMS_H

#include <stdint.h>

namespace FG_NS {
namespace {

// Columns of one packed panel, on every instruction set: a packed weight is [N/16][K][16].
constexpr int64_t PANEL = 16;

// Most of K that one pass over a run-time operand takes, so that its packed panels fit the stack.
constexpr int64_t MAX_K_BLOCK = 512;

// Operands of both matmul kernels: y, x, w, then bias and residual where FLAG_BIAS and
// RESIDUAL say so.
enum MatmulParam {
  P_M,           // rows of one matrix of y
  P_N,           // columns of one matrix of y
  P_K,           // length of the contraction
  P_X_ROW,       // elements between rows of x
  P_X_K,         // elements between neighbours along K in x
  P_ACTIVATION,  // enum Activation
  P_BIAS,        // 1: a bias of N elements follows w
  P_RESIDUAL,    // enum Residual
  P_K_BLOCK,     // K is taken in blocks of at most so many; partial sums lie in y between them
  P_M_STEP,      // y is cut into units of so many rows
  P_N_STEP,      // and so many columns, a multiple of 64; parts are runs of whole units
  // From here on for run-time operands alone.
  P_W_K,          // elements between neighbours along K in w
  P_W_COLUMN,     // elements between columns of w; one of these two strides is 1
  P_BATCH_DIMS,   // number of batch dimensions, at most MAX_BATCH_DIMS
  P_BATCH_FIRST,  // then, for each of them, outermost first: size, stride in x, stride in w
};

constexpr int64_t MAX_BATCH_DIMS = 8;

enum Activation {
  ACT_NONE,
  ACT_RELU,
  ACT_GELU,
  ACT_GELU_TANH,
  ACT_SILU,
  ACT_SIGMOID,
  ACT_TANH,
};

// Where the residual is added.
enum Residual { RESIDUAL_NONE, RESIDUAL_BEFORE, RESIDUAL_AFTER };

// pack_weight: y, w.
enum PackParam {
  PACK_K,       // rows of the packed matrix
  PACK_N,       // its columns
  PACK_W_K,     // elements between neighbours along K in w
  PACK_COLUMN,  // elements between columns of w; one of these two strides is 1
};

// transpose_x: y, x.
enum TransposeParam { TRANSPOSE_MATRICES, TRANSPOSE_M, TRANSPOSE_K };

static inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace
}  // namespace FG_NS

#endif
