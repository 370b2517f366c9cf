// What windows on images need beside products: patches, folds and pools. A thread does an element.
// Stands after windows.cuh.

// A row for each window, [taps][channels], of images whose channels come last.
template <class T>
__global__ __launch_bounds__(256) void patches(T *y, const T *x, i64 total, i32 channels,
                                               Windows w) {
  fg_trigger();
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  fg_wait();
  if (i >= total) return;
  const i64 channel = i % channels, rest = i / channels;
  const int taps = taps_of(w), tap = (int)(rest % taps);
  const i64 window = rest / taps, windows = count_of(w);
  const Start start = start_of(w, window % windows);
  const int k2 = tap % w.kernel[2], k1 = tap / w.kernel[2] % w.kernel[1];
  const i64 at = element_of(w, start, tap / w.kernel[2] / w.kernel[1], k1, k2);
  T found = {};
  if (at >= 0) found = x[(window / windows * elements_of(w) + at) * channels + channel];
  y[i] = found;
}

// x is [images][channels][taps][windows]; what lies on one element of an image is added up, in the
// order of the taps.
template <class T, bool BIAS>
__global__ __launch_bounds__(256) void fold(T *y, const T *x, const T *bias, i64 total,
                                            i32 channels, Windows w) {
  typedef compute_t<T> C;
  fg_trigger();
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  fg_wait();
  if (i >= total) return;
  const i64 elements = elements_of(w), plane = i / elements, windows = count_of(w);
  int p[3];
  i64 rest = i % elements;
#pragma unroll
  for (int a = 2; a >= 0; a--) {
    p[a] = (int)(rest % w.size[a]) + w.before[a];
    rest /= w.size[a];
  }
  C sum = BIAS ? widen(bias[plane % channels]) : C(0);
  const T *from = x + plane * taps_of(w) * windows;
  for (int k0 = 0; k0 < w.kernel[0]; k0++)
    for (int k1 = 0; k1 < w.kernel[1]; k1++)
      for (int k2 = 0; k2 < w.kernel[2]; k2++, from += windows) {
        const int s0 = p[0] - k0 * w.dilation[0], s1 = p[1] - k1 * w.dilation[1];
        const int s2 = p[2] - k2 * w.dilation[2];
        if (s0 < 0 || s1 < 0 || s2 < 0) continue;
        if (s0 % w.stride[0] || s1 % w.stride[1] || s2 % w.stride[2]) continue;
        const int o0 = s0 / w.stride[0], o1 = s1 / w.stride[1], o2 = s2 / w.stride[2];
        if (o0 >= w.count[0] || o1 >= w.count[1] || o2 >= w.count[2]) continue;
        sum += widen(from[((i64)o0 * w.count[1] + o1) * w.count[2] + o2]);
      }
  y[i] = narrow<T>(sum);
}

template <class T>
FG_DEVICE T lowest() {
  if constexpr ((T)0.5 != 0)
    return (T)-FG_INFINITY;
  else
    return (T)-1 > (T)0 ? (T)0 : (T)((u64)1 << (8 * sizeof(T) - 1));
}

// The elements of the window that lie on the image or, with PADS, on the padding around it.
template <bool PADS>
FG_DEVICE int counted(const Windows &w, const Start &start) {
  int found = 1;
#pragma unroll
  for (int a = 0; a < 3; a++) {
    const int low = PADS ? -w.before[a] : 0, high = w.size[a] + (PADS ? w.after[a] : 0);
    int inside = 0;
    for (int k = 0; k < w.kernel[a]; k++) {
      const int at = start.at[a] + k * w.dilation[a];
      inside += at >= low && at < high;
    }
    found *= inside;
  }
  return found;
}

template <class T, bool MAXIMUM, bool PADS>
__global__ __launch_bounds__(256) void pool(T *y, const T *x, i64 total, Windows w) {
  typedef compute_t<T> C;
  fg_trigger();
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  fg_wait();
  if (i >= total) return;
  const i64 windows = count_of(w);
  const Start start = start_of(w, i % windows);
  const T *from = x + i / windows * elements_of(w);
  C found = MAXIMUM ? lowest<C>() : C(0);
  for (int k0 = 0; k0 < w.kernel[0]; k0++)
    for (int k1 = 0; k1 < w.kernel[1]; k1++)
      for (int k2 = 0; k2 < w.kernel[2]; k2++) {
        const i64 at = element_of(w, start, k0, k1, k2);
        if (at < 0) continue;
        const C one = widen(from[at]);
        if constexpr (MAXIMUM)
          found = Maximum()(found, one);
        else
          found += one;
      }
  if constexpr (!MAXIMUM) found = found / (C)counted<PADS>(w, start);
  y[i] = narrow<T>(found);
}
