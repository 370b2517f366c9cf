// The k first of lines in order: the largest or the smallest, of equal ones those of lower index.

template <class T>
struct Bits {
  typedef u32 type;
};
template <>
struct Bits<f64> {
  typedef u64 type;
};
template <>
struct Bits<i64> {
  typedef u64 type;
};
template <>
struct Bits<u64> {
  typedef u64 type;
};

// An unsigned number that orders like x: NaN above all, both zeros alike.
template <class T>
FG_DEVICE typename Bits<T>::type rank(T x) {
  typedef typename Bits<T>::type U;
  constexpr U SIGN = (U)1 << (sizeof(U) * 8 - 1);
  if constexpr (Integer<T>::value) {
    if constexpr (Integer<T>::is_signed) {
      if constexpr (sizeof(T) == 8)
        return (U)x ^ SIGN;
      else
        return (U)(i32)x ^ SIGN;
    } else {
      return (U)x;
    }
  } else {
    if (x != x) return ~(U)0;
    if (x == (T)0) return SIGN;
    U bits;
    memcpy(&bits, &x, sizeof(U));
    return bits & SIGN ? ~bits : bits | SIGN;
  }
}

// Where an element comes: the greater `key`, or with equal ones the lower index, comes first. What
// fills a line up comes last.
template <class U>
struct Seat {
  U key;
  u32 index;
};
template <class U>
FG_DEVICE bool first_of(const Seat<U> &x, const Seat<U> &y) {
  return x.key > y.key || (x.key == y.key && x.index < y.index);
}
template <bool LARGEST, class T>
FG_DEVICE auto seat_of(T x, u32 index) {
  typedef compute_t<T> C;
  typedef typename Bits<C>::type U;
  const U key = rank<C>(widen(x));
  return Seat<U>{LARGEST ? key : (U)~key, index};
}

// SIZE seats, a power of two, come into order; SIZE / 2 threads, of which this is number t.
template <int SIZE, class U>
FG_DEVICE void sort(Seat<U> *seats, int t) {
  for (int run = 2; run <= SIZE; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      const int low = t / step * 2 * step + t % step;
      const bool ascending = (low & run) != 0;
      const Seat<U> x = seats[low], y = seats[low + step];
      if (first_of(y, x) != ascending) {
        seats[low] = y;
        seats[low + step] = x;
      }
      __syncthreads();
    }
  }
}

// Each of LINES lines of COUNT elements, or seats that an earlier launch left, is cut into pieces of
// SIZE; of each the K first are left, as seats or, by the LAST launch, as values and indices. `tap`,
// if there is one, gets the indices in 32 bits behind its second word, which counts how often.
template <class T, bool LARGEST, bool FIRST, bool LAST, int SIZE, int TOGETHER, i64 LINES,
          i64 COUNT, i64 INNER, i64 LENGTH, int K>
__global__ __launch_bounds__(SIZE / 2 * TOGETHER) void top_k(
    T *values, i64 *indices, Seat<typename Bits<compute_t<T>>::type> *left, const T *in,
    const Seat<typename Bits<compute_t<T>>::type> *given, u64 *tap, i64 given_lines,
    i64 given_count, i64 given_inner, i64 given_length) {
  typedef typename Bits<compute_t<T>>::type U;
  const i64 lines = known<LINES>(given_lines), count = known<COUNT>(given_count);
  const i64 inner = known<INNER>(given_inner), length = known<LENGTH>(given_length);
  const i64 pieces = (count + SIZE - 1) / SIZE;
  __shared__ Seat<U> all[TOGETHER][SIZE];
  fg_trigger();
  const int t = threadIdx.x % (SIZE / 2);
  Seat<U> *seats = all[threadIdx.x / (SIZE / 2)];
  const i64 unit = (i64)blockIdx.x * TOGETHER + threadIdx.x / (SIZE / 2);
  const i64 line = unit / pieces, start = unit % pieces * SIZE;
  const T *from = in + line / inner * length * inner + line % inner;
  fg_wait();
  for (int i = t; i < SIZE; i += SIZE / 2) {
    Seat<U> seat = {0, 0xffffffffu};
    if (line < lines && start + i < count) {
      if constexpr (FIRST)
        seat = seat_of<LARGEST>(from[(start + i) * inner], (u32)(start + i));
      else
        seat = given[line * count + start + i];
    }
    seats[i] = seat;
  }
  __syncthreads();
  sort<SIZE>(seats, t);
  if (tap != nullptr && blockIdx.x == 0 && threadIdx.x == 0) tap[1]++;
  if (line >= lines) return;
  for (int i = t; i < K; i += SIZE / 2) {
    if constexpr (LAST) {
      const i64 to = (line / inner * K + i) * inner + line % inner;
      values[to] = from[(i64)seats[i].index * inner];
      indices[to] = seats[i].index;
      if (tap != nullptr) ((u32 *)(tap + 2))[to] = seats[i].index;
    } else {
      left[unit * K + i] = seats[i];
    }
  }
}

// The same where k is not small beside what a block sorts: each thread counts what comes before an
// element of its own.
template <class T, bool LARGEST, int THREADS, i64 LINES, i64 LENGTH, i64 INNER, i64 K>
__global__ __launch_bounds__(THREADS) void top_k_counted(T *values, i64 *indices, const T *in,
                                                         u64 *tap, i64 given_lines,
                                                         i64 given_length, i64 given_inner) {
  typedef typename Bits<compute_t<T>>::type U;
  const i64 length = known<LENGTH>(given_length), inner = known<INNER>(given_inner);
  const i64 pieces = (length + THREADS - 1) / THREADS;
  (void)given_lines;
  __shared__ Seat<U> seats[THREADS];
  fg_trigger();
  const i64 line = blockIdx.x / pieces, own = blockIdx.x % pieces * THREADS + threadIdx.x;
  const T *from = in + line / inner * length * inner + line % inner;
  fg_wait();
  const bool some = own < length;
  Seat<U> seat = {0, 0xffffffffu};
  if (some) seat = seat_of<LARGEST>(from[own * inner], (u32)own);
  i64 before = 0;
  for (i64 base = 0; base < length; base += THREADS) {
    const i64 i = base + threadIdx.x;
    Seat<U> other = {0, 0xffffffffu};
    if (i < length) other = seat_of<LARGEST>(from[i * inner], (u32)i);
    seats[threadIdx.x] = other;
    __syncthreads();
    for (int j = 0; j < THREADS; j++) before += first_of(seats[j], seat);
    __syncthreads();
  }
  if (some && before < K) {
    const i64 to = (line / inner * K + before) * inner + line % inner;
    values[to] = from[own * inner];
    indices[to] = own;
    if (tap != nullptr) ((u32 *)(tap + 2))[to] = (u32)own;
  }
  if (tap != nullptr && blockIdx.x == 0 && threadIdx.x == 0) tap[1]++;
}
