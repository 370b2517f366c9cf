// How bytes get from the host to the device: staging by threads, batched copies, a copy kernel.
#include <atomic>
#include <functional>
#include <thread>

#include "probe.h"

namespace {

// Threads that spin between jobs, so that waking them is not what is measured.
class Crew {
 public:
  explicit Crew(int n) : n_(n) {
    for (int i = 1; i < n; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Crew() {
    stop_ = true;
    for (std::thread &t : threads_) t.join();
  }
  void copy(char *to, const char *from, size_t bytes) {
    to_ = to, from_ = from, bytes_ = bytes;
    left_.store(n_ - 1, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    part(0);
    while (left_.load(std::memory_order_acquire)) {
    }
  }

 private:
  void part(int i) {
    const size_t step = (bytes_ / n_ + 63) / 64 * 64, begin = std::min(bytes_, step * i),
                 end = i + 1 == n_ ? bytes_ : std::min(bytes_, begin + step);
    if (end > begin) std::memcpy(to_ + begin, from_ + begin, end - begin);
  }
  void serve(int i) {
    unsigned seen = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (turn_.load(std::memory_order_acquire) == seen) continue;
      ++seen;
      part(i);
      left_.fetch_sub(1, std::memory_order_release);
    }
  }
  const int n_;
  std::vector<std::thread> threads_;
  char *to_ = nullptr;
  const char *from_ = nullptr;
  size_t bytes_ = 0;
  std::atomic<unsigned> turn_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> stop_{false};
};

CUdeviceptr device_address(void *host) {
  CUdeviceptr p;
  MUST(cuMemHostGetDevicePointer(&p, host, 0));
  return p;
}

struct Piece {
  CUdeviceptr to, from;
  unsigned long long n16;
};
struct Pieces {
  Piece at[8];
};

}  // namespace

// Ordinary host memory into pinned memory.
extern "C" int probe_staging() {
  return guarded([] {
    const size_t most = 64u << 20, sources = 256u << 20;
    void *pinned;
    MUST(cuMemHostAlloc(&pinned, most, CU_MEMHOSTALLOC_DEVICEMAP));
    std::vector<char> from(sources);
    for (size_t i = 0; i < sources; i += 8) from[i] = static_cast<char>(i >> 3);
    char *to = static_cast<char *>(pinned);
    std::memset(to, 1, most);
    say("processors", std::thread::hardware_concurrency(), "threads");
    for (int threads : {1, 2, 4}) {
      if (threads > static_cast<int>(std::thread::hardware_concurrency())) continue;
      Crew crew(threads);
      for (size_t bytes : {size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, size_t(16) << 20, most})
        for (int cold = 0; cold < 2; ++cold) {
          // Cold: each round reads bytes that no cache has held for 256 MiB.
          const size_t places = cold ? sources / bytes : 1;
          const int rounds = bytes <= (1u << 20) ? 400 : bytes == most ? 8 : 24;
          Samples s;
          size_t at = 0;
          for (int i = 0; i < rounds; ++i) {
            at = (at + (cold ? std::max<size_t>(1, places / 13) : 0)) % places;
            const double t = now_us();
            crew.copy(to, from.data() + at * bytes, bytes);
            s.add(now_us() - t);
          }
          expect(!std::memcmp(to, from.data() + at * bytes, bytes), "the staged bytes");
          const std::string name = std::to_string(bytes >> 10) + " KiB, " +
                                   std::to_string(threads) + (threads > 1 ? " threads, " : " thread, ") +
                                   (cold ? "cold" : "hot");
          say(name, bytes / s.at(0.5) * 1e-3, "GB/s", 0, std::to_string(s.at(0.5)) + " us");
        }
    }
    // What the bus takes, for comparison.
    CUdeviceptr device;
    MUST(cuMemAlloc(&device, most));
    Samples bus;
    for (int i = 0; i < 10; ++i) {
      const double t = now_us();
      MUST(cuMemcpyHtoDAsync(device, pinned, most, rig().stream));
      rig().wait();
      bus.add(now_us() - t);
    }
    say("pinned to device, 64 MiB", most / bus.at(0.5) * 1e-3, "GB/s");
  });
}

// Eight small copies: one call each, one batched call, one kernel.
extern "C" int probe_batched_copies() {
  return guarded([] {
    Rig &r = rig();
    const int n = 8;
    const CUfunction gather = r.function("gather");
    std::vector<unsigned> pageable(n * 16384);
    CUstream before = r.stream;
    for (size_t bytes : {64u, 4096u, 65536u}) {
      CUdeviceptr to[n], from[n], page[n];
      size_t sizes[n], first = 0;
      const CUdeviceptr base = device_address(r.pinned);
      for (int i = 0; i < n; ++i) {
        to[i] = r.data + i * bytes;
        from[i] = base + i * bytes;
        page[i] = reinterpret_cast<CUdeviceptr>(pageable.data()) + i * bytes;
        sizes[i] = bytes;
      }
      CUmemcpyAttributes in_order, at_once;
      std::memset(&in_order, 0, sizeof in_order);
      in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
      at_once = in_order;
      at_once.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
      Pieces pieces;
      for (int i = 0; i < n; ++i) pieces.at[i] = {to[i], from[i], bytes / 16};
      const unsigned blocks = static_cast<unsigned>((bytes / 16 + 255) / 256);
      kernel(gather, 1, 256, pieces);  // fills the argument place once

      struct Way {
        const char *name;
        std::function<CUresult()> call;
        bool from_pageable;
        Samples issued, done;
      };
      std::vector<Way> ways;
      ways.push_back({"8 MemcpyHtoDAsync", [&] {
                        CUresult code = CUDA_SUCCESS;
                        for (int i = 0; i < n && !code; ++i)
                          code = cuMemcpyHtoDAsync(to[i], reinterpret_cast<void *>(from[i]), bytes,
                                                   before);
                        return code;
                      }, false, {}, {}});
      ways.push_back({"MemcpyBatchAsync", [&] {
                        return cuMemcpyBatchAsync(to, from, sizes, n, &in_order, &first, 1, before);
                      }, false, {}, {}});
      ways.push_back({"MemcpyBatchAsync, pageable, in stream order", [&] {
                        return cuMemcpyBatchAsync(to, page, sizes, n, &in_order, &first, 1, before);
                      }, true, {}, {}});
      ways.push_back({"MemcpyBatchAsync, pageable, during the call", [&] {
                        return cuMemcpyBatchAsync(to, page, sizes, n, &at_once, &first, 1, before);
                      }, true, {}, {}});
      ways.push_back({"8 MemcpyHtoDAsync, pageable", [&] {
                        CUresult code = CUDA_SUCCESS;
                        for (int i = 0; i < n && !code; ++i)
                          code = cuMemcpyHtoDAsync(to[i], reinterpret_cast<void *>(page[i]), bytes,
                                                   before);
                        return code;
                      }, true, {}, {}});
      ways.push_back({"one kernel over pinned memory", [&] {
                        return cuLaunchKernel(gather, blocks, n, 1, 256, 1, 1, 0, before,
                                              argument_pointers, nullptr);
                      }, false, {}, {}});
      ways.push_back({"one MemcpyHtoDAsync of all bytes", [&] {
                        return cuMemcpyHtoDAsync(to[0], r.pinned, bytes * n, before);
                      }, false, {}, {}});
      const std::string size = "8 x " + std::to_string(bytes) + " B: ";
      auto *pinned_words = reinterpret_cast<unsigned *>(r.pinned);
      const size_t words = bytes * n / 4;
      std::vector<unsigned> got(words);
      for (auto at = ways.begin(); at != ways.end();) {  // once each, for correctness
        Way &way = *at;
        const unsigned salt = static_cast<unsigned>(now_us());
        unsigned *source = way.from_pageable ? pageable.data() : pinned_words;
        for (size_t i = 0; i < words; ++i) source[i] = salt + static_cast<unsigned>(i);
        r.zero(r.data, words);
        if (verdict(size + way.name, way.call())) {
          at = ways.erase(at);
          continue;
        }
        r.wait();
        MUST(cuMemcpyDtoH(got.data(), r.data, words * 4));
        expect(!std::memcmp(got.data(), source, words * 4), size + way.name + " moved the bytes");
        ++at;
      }
      for (int i = 0; i < 300; ++i)
        for (Way &way : ways) {
          const double t = now_us();
          MUST(way.call());
          way.issued.add(now_us() - t);
          r.wait();
          way.done.add(now_us() - t);
        }
      for (Way &way : ways) {
        way.issued.median(size + way.name + ": call");
        way.done.median(size + way.name + ": done");
      }
    }

    CUdeviceptr to = r.data, from = device_address(r.pinned), page =
        reinterpret_cast<CUdeviceptr>(pageable.data());
    size_t bytes = 4096, first = 0;
    CUmemcpyAttributes how;
    std::memset(&how, 0, sizeof how);
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    auto batch = [&](CUdeviceptr source, CUstream stream, size_t count) {
      return cuMemcpyBatchAsync(&to, &source, &bytes, count, &how, &first, 1, stream);
    };
    verdict("MemcpyBatchAsync on stream 0", batch(from, nullptr, 1));
    verdict("MemcpyBatchAsync on the legacy stream", batch(from, CU_STREAM_LEGACY, 1));
    verdict("MemcpyBatchAsync on the per-thread stream", batch(from, CU_STREAM_PER_THREAD, 1));
    verdict("MemcpyBatchAsync of 0 copies", batch(from, before, 0));
    bytes = 0;
    verdict("MemcpyBatchAsync of 0 bytes", batch(from, before, 1));
    bytes = 4096;

    // Behind a busy stream: when is ordinary memory read, and does the call wait for the stream?
    for (int during = 0; during < 2; ++during) {
      how.srcAccessOrder = during ? CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
                                  : CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
      const CUfunction linger = r.function("linger");
      pageable[0] = 1;
      kernel(linger, 1, 1, 3000000ull);
      MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, before, argument_pointers, nullptr));
      const double t = now_us();
      MUST(batch(page, before, 1));
      const double call = now_us() - t;
      pageable[0] = 2;
      r.wait();
      unsigned word;
      MUST(cuMemcpyDtoH(&word, to, 4));
      const std::string name = during ? "during the call" : "in stream order";
      say("pageable batch behind 3 ms, " + name + ": call", call, "us");
      say("pageable batch behind 3 ms, " + name + ": value read", word, "", 0,
          "1 means read before the call returned");
    }
  });
}
