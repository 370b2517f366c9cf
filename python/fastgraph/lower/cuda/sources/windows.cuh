// Windows that slide over images: always three spatial axes, of which the first have one element
// where images have fewer. Element k of window o is element o * stride + k * dilation - before.
struct Windows {
  i32 size[3], kernel[3], stride[3], dilation[3], before[3], after[3], count[3];
};

FG_DEVICE i64 elements_of(const Windows &w) { return (i64)w.size[0] * w.size[1] * w.size[2]; }
FG_DEVICE i64 count_of(const Windows &w) { return (i64)w.count[0] * w.count[1] * w.count[2]; }
FG_DEVICE int taps_of(const Windows &w) { return w.kernel[0] * w.kernel[1] * w.kernel[2]; }

// Where window `o` begins along each axis.
struct Start {
  i32 at[3];
};
FG_DEVICE Start start_of(const Windows &w, i64 o) {
  Start found;
#pragma unroll
  for (int a = 2; a >= 0; a--) {
    found.at[a] = (i32)(o % w.count[a]) * w.stride[a] - w.before[a];
    o /= w.count[a];
  }
  return found;
}

// The element of an image that is element (k0, k1, k2) of the window; -1 where that is padding.
FG_DEVICE i64 element_of(const Windows &w, const Start &start, int k0, int k1, int k2) {
  const int p0 = start.at[0] + k0 * w.dilation[0], p1 = start.at[1] + k1 * w.dilation[1];
  const int p2 = start.at[2] + k2 * w.dilation[2];
  const bool in =
      p0 >= 0 && p0 < w.size[0] && p1 >= 0 && p1 < w.size[1] && p2 >= 0 && p2 < w.size[2];
  return in ? ((i64)p0 * w.size[1] + p1) * w.size[2] + p2 : -1;
}
