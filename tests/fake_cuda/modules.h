// Modules and libraries: images that were loaded.
#pragma once

#include "images.h"

struct CUmod_st {
  CUcontext context;
  std::shared_ptr<Image> image;
  std::map<std::string, CUfunction> functions;
  std::map<std::string, CUdeviceptr> globals;
};

struct CUlib_st {
  std::shared_ptr<Image> image;
  std::map<CUcontext, CUmodule> modules;
  std::map<std::string, CUkernel> kernels;
};

struct CUkern_st {
  CUlibrary library;
  std::string name;
};

// Reads an image and leaves what there is to say about it in the options' log.
CUresult load(const void *data, unsigned n, CUjit_option *options, void **values,
              std::shared_ptr<Image> *out);
CUresult make_module(CUcontext context, std::shared_ptr<Image> image, CUmodule *out);
void drop_module(CUmodule module);
CUresult function_of(CUmodule module, const std::string &name, CUfunction *out);
CUresult get_global(CUmodule module, const char *name, CUdeviceptr *out, size_t *size);
// The same for a kernel of a library, in the current context.
CUresult function_of(CUkernel kernel, CUfunction *out);

CUresult param_info(const Code &code, size_t index, size_t *offset, size_t *size);
CUresult get_attribute(int *value, CUfunction_attribute name, CUfunction f);
CUresult set_attribute(CUfunction f, CUfunction_attribute name, int value);
