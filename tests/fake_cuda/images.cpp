// Reading images: shared objects of the host, cubins, PTX.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>

#include "images.h"

namespace {
constexpr int kMachineCuda = 190;
constexpr unsigned char kParamInfo = 0x17;  // of .nv.info.NAME: one parameter

size_t aligned(size_t offset, size_t size) {
  size_t unit = size & -size;  // the largest power of two in it
  unit = std::clamp<size_t>(unit, 1, 16);
  return (offset + unit - 1) / unit * unit;
}

void add_param(Code *code, size_t size) {
  const size_t end =
      code->params.empty() ? 0 : code->params.back().offset + code->params.back().size;
  code->params.push_back({aligned(end, size), size});
}

void name_builtin(Code *code) {
  if (code->name == "fg_set_condition") code->builtin = Builtin::set_condition;
  if (code->name == "fg_fill8") code->builtin = Builtin::fill8;
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
  std::string path = std::filesystem::temp_directory_path() / "fake-image-XXXXXX";
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
        code.static_shared = static_cast<int>(other.sh_size);
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

// ---- PTX ---------------------------------------------------------------------------------------
bool is_text(const char *text) {
  for (const char *c = text; *c; ++c)
    if (!std::isprint(static_cast<unsigned char>(*c)) &&
        !std::isspace(static_cast<unsigned char>(*c)))
      return false;
  return *text != 0;
}

size_t ptx_size(const std::string &type) {
  const size_t digits = type.find_first_of("0123456789");
  return digits == std::string::npos ? 8 : std::stoul(type.substr(digits)) / 8;
}

CUresult read_ptx(Image *image, const std::string &text, std::string *log) {
  std::istringstream lines(text);
  std::string line, code_text, host;
  bool has_version = false;
  while (std::getline(lines, line)) {
    const std::string mark = "// host: ";
    if (line.compare(0, mark.size(), mark) == 0) host = line.substr(mark.size());
    line = line.substr(0, line.find("//"));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!has_version && line.compare(0, 8, ".version") != 0) {
      *log =
          "ptxas application ptx input, line 1; fatal   : Missing .version directive at start of "
          "file";
      return CUDA_ERROR_INVALID_PTX;
    }
    has_version = true;
    code_text += line + "\n";
  }
  if (!has_version) return CUDA_ERROR_INVALID_PTX;
  static const std::regex entry(R"(\.entry\s+([\w$]+)\s*\(([^)]*)\))");
  static const std::regex param(
      R"(\.param\s+((?:\.ptr|\.align\s+\d+|\.global|\.const|\.[usbf]\d+|\.pred|\s)+)\s*[\w$]+(?:\[(\d+)\])?)");
  static const std::regex type(R"(\.[usbf]\d+)");
  for (std::sregex_iterator it(code_text.begin(), code_text.end(), entry), end; it != end; ++it) {
    Code code;
    code.name = (*it)[1];
    const std::string list = (*it)[2];
    for (std::sregex_iterator p(list.begin(), list.end(), param); p != end; ++p) {
      std::smatch found;
      const std::string words = (*p)[1];
      const size_t unit = std::regex_search(words, found, type) ? ptx_size(found[0]) : 8;
      add_param(&code, (*p)[2].length() ? unit * std::stoul((*p)[2]) : unit);
    }
    name_builtin(&code);
    image->codes.push_back(std::move(code));
  }
  if (host.empty()) return CUDA_SUCCESS;
  image->library = dlopen(host.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!image->library) {
    *log = dlerror();
    return CUDA_ERROR_INVALID_PTX;
  }
  for (Code &code : image->codes)
    code.host = reinterpret_cast<HostKernel>(dlsym(image->library, code.name.c_str()));
  return CUDA_SUCCESS;
}
}  // namespace

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
