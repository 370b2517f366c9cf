"""Kernels as images that the fake driver takes for cubins, so that whole graphs run there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastgraph.device.cuda.disk import Compiled
from tests.cuda_host import STATICS
from tests.cuda_host.build import build_kernels

__all__ = ["SYMBOL", "compile_all", "image"]

SYMBOL = "fg_kernel"

# What the fake calls. It looks at the parameters' sizes once the library is loaded: by then they
# have been copied. They are no zeros, or they would count as shared memory of the kernels.
ENTRY = """
#include <stdio.h>
CUDA_HOST_ENTRY(0, @ENTRY@)
#define SEEN extern "C" __attribute__((visibility("default")))
SEEN int32_t fg_kernel_params[1024];
int32_t fg_kernel_params[1024] = {-1};
__attribute__((constructor)) static void fill_params() {
  const int *sizes = cuda_host_sizes_0();
  int32_t *to = fg_kernel_params;
  do *to++ = *sizes; while (*sizes++ >= 0);
}
SEEN unsigned char *cuda_host_statics();
SEEN size_t cuda_host_statics_bytes();
SEEN void fg_kernel(void *const *args, const int32_t dims[8]) {
  using namespace cuda_host;
  const Dim grid = {(unsigned)dims[0], (unsigned)dims[1], (unsigned)dims[2]};
  const Dim block = {(unsigned)dims[3], (unsigned)dims[4], (unsigned)dims[5]};
  const Launch launch = {grid, block, (size_t)dims[6], (unsigned)dims[7], 0, 0, nullptr, 0,
                         cuda_host_statics(), cuda_host_statics_bytes()};
  char complaint[512];
  if (cuda_host_launch(&launch, cuda_host_entry_0, args, complaint, sizeof complaint)) {
    fprintf(stderr, "kernel @ENTRY@: %s\\n", complaint);
    *(volatile int *)nullptr = 0;  // what poisons the device
  }
}
"""


def image(source: str, entry: str) -> bytes:
    """A shared object of the host with one kernel, under the name `SYMBOL`."""
    text = ['#include "words.h"', source, ENTRY.replace("@ENTRY@", entry), STATICS]
    return build_kernels(["\n".join(text)]).read_bytes()


def compile_all(sources: Any, arch: str) -> dict[Any, Any]:
    """`fastgraph.device.cuda.batch.compile_all` for the fake."""
    with ThreadPoolExecutor() as workers:
        images = workers.map(lambda each: image(each.source, each.entry), sources)
        return {
            each: Compiled(built, SYMBOL, None) for each, built in zip(sources, images, strict=True)
        }
