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
    const Seat<typename Bits<compute_t<T>>::type> *given, u64 *tap) {
  typedef typename Bits<compute_t<T>>::type U;
  constexpr i64 PIECES = (COUNT + SIZE - 1) / SIZE;
  __shared__ Seat<U> all[TOGETHER][SIZE];
  fg_trigger();
  const int t = threadIdx.x % (SIZE / 2);
  Seat<U> *seats = all[threadIdx.x / (SIZE / 2)];
  const i64 unit = (i64)blockIdx.x * TOGETHER + threadIdx.x / (SIZE / 2);
  const i64 line = unit / PIECES, start = unit % PIECES * SIZE;
  const T *from = in + line / INNER * LENGTH * INNER + line % INNER;
  fg_wait();
  for (int i = t; i < SIZE; i += SIZE / 2) {
    Seat<U> seat = {0, 0xffffffffu};
    if (line < LINES && start + i < COUNT) {
      if constexpr (FIRST)
        seat = seat_of<LARGEST>(from[(start + i) * INNER], (u32)(start + i));
      else
        seat = given[line * COUNT + start + i];
    }
    seats[i] = seat;
  }
  __syncthreads();
  sort<SIZE>(seats, t);
  if (tap != nullptr && blockIdx.x == 0 && threadIdx.x == 0) tap[1]++;
  if (line >= LINES) return;
  for (int i = t; i < K; i += SIZE / 2) {
    if constexpr (LAST) {
      const i64 to = (line / INNER * K + i) * INNER + line % INNER;
      values[to] = from[(i64)seats[i].index * INNER];
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
                                                         u64 *tap) {
  typedef typename Bits<compute_t<T>>::type U;
  constexpr i64 PIECES = (LENGTH + THREADS - 1) / THREADS;
  __shared__ Seat<U> seats[THREADS];
  fg_trigger();
  const i64 line = blockIdx.x / PIECES, own = blockIdx.x % PIECES * THREADS + threadIdx.x;
  const T *from = in + line / INNER * LENGTH * INNER + line % INNER;
  fg_wait();
  const bool some = own < LENGTH;
  Seat<U> seat = {0, 0xffffffffu};
  if (some) seat = seat_of<LARGEST>(from[own * INNER], (u32)own);
  i64 before = 0;
  for (i64 base = 0; base < LENGTH; base += THREADS) {
    const i64 i = base + threadIdx.x;
    Seat<U> other = {0, 0xffffffffu};
    if (i < LENGTH) other = seat_of<LARGEST>(from[i * INNER], (u32)i);
    seats[threadIdx.x] = other;
    __syncthreads();
    for (int j = 0; j < THREADS; j++) before += first_of(seats[j], seat);
    __syncthreads();
  }
  if (some && before < K) {
    const i64 to = (line / INNER * K + before) * INNER + line % INNER;
    values[to] = from[own * INNER];
    indices[to] = own;
    if (tap != nullptr) ((u32 *)(tap + 2))[to] = (u32)own;
  }
  if (tap != nullptr && blockIdx.x == 0 && threadIdx.x == 0) tap[1]++;
}
