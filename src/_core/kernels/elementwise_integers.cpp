// Elementwise loops of the integers beside int32 and int64.
#include "elementwise_loops.h"

namespace FG_NS {
namespace {

FG_EW_INTEGER(i8, uint32_t)
FG_EW_INTEGER(i16, uint32_t)
FG_EW_UNSIGNED(u8, uint32_t)
FG_EW_UNSIGNED(u16, uint32_t)
FG_EW_UNSIGNED(u32, uint32_t)
FG_EW_UNSIGNED(u64, uint64_t)

}  // namespace

// The order is that of the lists in lower/cpu/instructions.py.
#define FG_SIGNED_LOOPS(T)                                                                         \
  add_##T, subtract_##T, multiply_##T, maximum_##T, minimum_##T, remainder_##T, floor_divide_##T,  \
      power_##T, equal_##T, not_equal_##T, less_##T, less_equal_##T, negative_##T, abs_##T,        \
      square_##T, sign_##T, fmod_##T, bitwise_and_##T, bitwise_or_##T, bitwise_xor_##T,            \
      invert_##T, left_shift_##T, right_shift_##T
#define FG_UNSIGNED_LOOPS(T)                                                                       \
  maximum_##T, minimum_##T, remainder_##T, floor_divide_##T, power_##T, less_##T, less_equal_##T,  \
      sign_##T, right_shift_##T
extern const ew_loop integer_loops[] = {
    FG_SIGNED_LOOPS(i8),    FG_SIGNED_LOOPS(i16),   FG_UNSIGNED_LOOPS(u8),
    FG_UNSIGNED_LOOPS(u16), FG_UNSIGNED_LOOPS(u32), FG_UNSIGNED_LOOPS(u64),
};

}  // namespace FG_NS
