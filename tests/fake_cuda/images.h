// Images: what is in the code that a module was loaded from.
#pragma once

#include "fake.h"

// A host function that stands for a kernel; dims: grid x, y, z, block x, y, z, dynamic shared bytes,
// blocks of a cluster.
using HostKernel = void (*)(void *const *args, const int32_t dims[8]);

enum class Builtin { none, set_condition, fill8 };

struct Code {
  std::string name;
  HostKernel host = nullptr;
  Builtin builtin = Builtin::none;
  std::vector<ParamInfo> params;
  int static_shared = 0;
};

struct Global {
  uintptr_t host = 0;  // where it lies, if the image is of the host
  size_t size = 0;
  std::vector<char> content;  // what it starts with; zeros behind
};

struct Image {
  void *library = nullptr;  // of dlopen
  std::vector<Code> codes;
  std::map<std::string, Global> globals;
  ~Image();
};

// Reads an image; `log` gets a sentence when it is text that is not PTX.
CUresult read_image(const void *data, std::shared_ptr<Image> *out, std::string *log);
CUresult read_ptx(Image *image, const std::string &text, std::string *log);
bool is_text(const char *data);

// Appends a parameter where the one before ends, aligned by its size.
void add_param(Code *code, size_t size);
// Marks the kernels that the fake itself has a body for.
void name_builtin(Code *code);
