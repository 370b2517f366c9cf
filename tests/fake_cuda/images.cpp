// Reading images: shared objects of the host, cubins, PTX.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "images.h"

namespace {
constexpr int kMachineCuda = 190;
// What the system takes of a block's shared memory stands in each kernel's section.
constexpr int kReservedShared = 1024;
constexpr unsigned char kParamInfo = 0x17;  // of .nv.info.NAME: one parameter

size_t aligned(size_t offset, size_t size) {
  size_t unit = size & -size;  // the largest power of two in it
  unit = std::clamp<size_t>(unit, 1, 16);
  return (offset + unit - 1) / unit * unit;
}

// ---- ELF ---------------------------------------------------------------------------------------
struct Elf {
  const char *data;
  const Elf64_Ehdr *head;
  const Elf64_Shdr *sections;
  const char *names;

  explicit Elf(const void *image)
      : data(static_cast<const char *>(image)),
        head(static_cast<const Elf64_Ehdr *>(image)),
        sections(reinterpret_cast<const Elf64_Shdr *>(data + head->e_shoff)),
        names(data + sections[head->e_shstrndx].sh_offset) {}

  std::string name(const Elf64_Shdr &section) const { return names + section.sh_name; }

  size_t size() const {
    size_t end = head->e_shoff + size_t{head->e_shnum} * sizeof(Elf64_Shdr);
    for (int i = 0; i < head->e_shnum; ++i)
      if (sections[i].sh_type != SHT_NOBITS)
        end = std::max<size_t>(end, sections[i].sh_offset + sections[i].sh_size);
    return end;
  }

  template <class Visit>
  void symbols(Visit visit) const {
    for (int i = 0; i < head->e_shnum; ++i) {
      if (sections[i].sh_type != SHT_SYMTAB && sections[i].sh_type != SHT_DYNSYM) continue;
      const auto *symbol = reinterpret_cast<const Elf64_Sym *>(data + sections[i].sh_offset);
      const char *strings = data + sections[sections[i].sh_link].sh_offset;
      for (size_t n = sections[i].sh_size / sizeof(Elf64_Sym); n > 0; --n, ++symbol)
        if (symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < head->e_shnum)
          visit(std::string(strings + symbol->st_name), *symbol);
    }
  }
};

// A file of the image's own, since dlopen takes a name that it knows for the library it knows.
void *open_library(const Elf &elf) {
  std::string path = P_tmpdir "/fake-image-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  size_t left = elf.size();
  const char *from = elf.data;
  while (left > 0) {
    const ssize_t n = write(file, from, left);
    if (n <= 0) break;
    from += n, left -= n;
  }
  close(file);
  void *library = left ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  return library;
}

void read_library(Image *image, const Elf &elf) {
  const std::string ending = "_params";
  elf.symbols([&](const std::string &name, const Elf64_Sym &symbol) {
    void *place = dlsym(image->library, name.c_str());
    if (!place || ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL) return;
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size)
      image->globals[name] = {reinterpret_cast<uintptr_t>(place), symbol.st_size, {}};
    if (name.size() <= ending.size() || name.substr(name.size() - ending.size()) != ending) return;
    Code code;
    code.name = name.substr(0, name.size() - ending.size());
    code.host = reinterpret_cast<HostKernel>(dlsym(image->library, code.name.c_str()));
    if (!code.host) return;
    for (const Code &known : image->codes)
      if (known.name == code.name) return;
    for (const int32_t *size = static_cast<int32_t *>(place); *size >= 0; ++size)
      add_param(&code, *size);
    image->codes.push_back(std::move(code));
  });
}

// Parameters of a kernel, as the compiler left them in the section .nv.info.NAME.
void read_params(Code *code, const char *at, const char *end) {
  std::map<unsigned, ParamInfo> found;
  while (at + 4 <= end) {
    const unsigned char format = at[0], attribute = at[1];
    uint16_t size;
    std::memcpy(&size, at + 2, 2);
    const char *value = at + 4;
    if (format == 4 && attribute == kParamInfo && size >= 12 && value + 12 <= end) {
      uint16_t ordinal, offset;
      uint32_t flags;
      std::memcpy(&ordinal, value + 4, 2);
      std::memcpy(&offset, value + 6, 2);
      std::memcpy(&flags, value + 8, 4);
      found[ordinal] = {offset, flags >> 18};
    }
    at = value + (format == 4 ? size : 0);
  }
  for (const auto &[ordinal, param] : found) code->params.push_back(param);
}

void read_cubin(Image *image, const Elf &elf) {
  const std::string text = ".text.", info = ".nv.info.", shared = ".nv.shared.";
  for (int i = 0; i < elf.head->e_shnum; ++i) {
    const std::string name = elf.name(elf.sections[i]);
    if (name.compare(0, text.size(), text) != 0) continue;
    Code code;
    code.name = name.substr(text.size());
    for (int j = 0; j < elf.head->e_shnum; ++j) {
      const Elf64_Shdr &other = elf.sections[j];
      if (elf.name(other) == info + code.name)
        read_params(&code, elf.data + other.sh_offset, elf.data + other.sh_offset + other.sh_size);
      if (elf.name(other) == shared + code.name)
        code.static_shared = std::max(0, static_cast<int>(other.sh_size) - kReservedShared);
    }
    name_builtin(&code);
    image->codes.push_back(std::move(code));
  }
  elf.symbols([&](const std::string &name, const Elf64_Sym &symbol) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !symbol.st_size) return;
    const Elf64_Shdr &section = elf.sections[symbol.st_shndx];
    Global global;
    global.size = symbol.st_size;
    if (section.sh_type == SHT_PROGBITS) {
      const char *start = elf.data + section.sh_offset + symbol.st_value;
      global.content.assign(start, start + symbol.st_size);
    }
    image->globals[name] = std::move(global);
  });
}
}  // namespace

void add_param(Code *code, size_t size) {
  const size_t end =
      code->params.empty() ? 0 : code->params.back().offset + code->params.back().size;
  code->params.push_back({aligned(end, size), size});
}

void name_builtin(Code *code) {
  if (code->name == "fg_set_condition") code->builtin = Builtin::set_condition;
  if (code->name == "fg_fill8") code->builtin = Builtin::fill8;
}

Image::~Image() {
  if (library) dlclose(library);
}

CUresult read_image(const void *data, std::shared_ptr<Image> *out, std::string *log) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  auto image = std::make_shared<Image>();
  const char *bytes = static_cast<const char *>(data);
  if (std::strncmp(bytes, ELFMAG, SELFMAG) == 0) {
    const Elf elf(data);
    if (elf.head->e_machine == kMachineCuda) {
      read_cubin(image.get(), elf);
    } else {
      image->library = open_library(elf);
      if (!image->library) return CUDA_ERROR_INVALID_IMAGE;
      read_library(image.get(), elf);
    }
  } else if (is_text(bytes)) {
    TRY(read_ptx(image.get(), bytes, log));
  } else {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *out = std::move(image);
  return CUDA_SUCCESS;
}
