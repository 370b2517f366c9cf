// Words of `params` that say where windows lie on images. python/fastgraph/lower/cpu/windows.py
// writes them in this order; change both together.
#ifndef FG_WINDOWS_H
#define FG_WINDOWS_H

#include <stdint.h>

namespace FG_NS {
namespace {

// Always three spatial axes; the first ones have one element where images have fewer. Element k of
// window o is element o * stride + k * dilation - before of the image.
struct Windows {
  int64_t images, channels;
  int64_t size[3], kernel[3], stride[3], dilation[3], before[3], count[3];

  int64_t elements() const { return size[0] * size[1] * size[2]; }
  int64_t windows() const { return count[0] * count[1] * count[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

constexpr int64_t WINDOW_WORDS = sizeof(Windows) / sizeof(int64_t);

struct Range {
  int64_t begin, end;
};

// Of `n` numbers those i for which i * step + start lies in [0, size).
static inline __attribute__((unused)) Range inside(int64_t start, int64_t step, int64_t size,
                                                   int64_t n) {
  int64_t begin = start < 0 ? (-start + step - 1) / step : 0;
  int64_t end = size > start ? (size - start + step - 1) / step : 0;
  if (end > n) end = n;
  if (begin > end) begin = end;
  return {begin, end};
}

}  // namespace
}  // namespace FG_NS

#endif
