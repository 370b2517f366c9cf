// Reading PTX, as far as names and parameters of kernels go.
#include <dlfcn.h>

#include <cctype>
#include <sstream>

#include "images.h"

namespace {
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }

// Words, and each of ( ) [ ] , ; { } by itself.
std::vector<std::string> words_of(const std::string &text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    const bool is_alone = std::string("()[],;{}").find(c) != std::string::npos;
    if ((is_alone || is_space(c)) && !words.back().empty()) words.emplace_back();
    if (is_alone) {
      words.back() = c;
      words.emplace_back();
    } else if (!is_space(c)) {
      words.back() += c;
    }
  }
  return words;
}

// The bytes of a type like `.u64`; 0 where the word is no type.
size_t size_of(const std::string &word) {
  if (word.size() < 3 || word[0] != '.' || std::string("usbf").find(word[1]) == std::string::npos)
    return 0;
  for (size_t i = 2; i < word.size(); ++i)
    if (!std::isdigit(static_cast<unsigned char>(word[i]))) return 0;
  return std::stoul(word.substr(2)) / 8;
}

// The parameters between an entry's parentheses; `at` is behind the first one.
void read_params(Code *code, const std::vector<std::string> &words, size_t at) {
  size_t size = 0;
  for (; at < words.size() && words[at] != ")"; ++at) {
    if (words[at] == ".param") size = 0;
    if (words[at] == "[") size *= std::stoul(words[at + 1]);
    if (size_t found = size_of(words[at])) size = found;
    if (words[at + 1] == "," || words[at + 1] == ")") add_param(code, size);
  }
}

// A variable of the module: zeros, whatever it starts with.
void read_variable(Image *image, const std::vector<std::string> &words, size_t at) {
  Global global;
  std::string name;
  for (; at < words.size() && words[at] != ";" && words[at] != "="; ++at) {
    if (size_t found = size_of(words[at])) global.size = found;
    if (words[at] == "[")
      global.size *= std::stoul(words[at + 1]), at += 2;
    else
      name = words[at];
  }
  if (global.size) image->globals[name] = std::move(global);
}
}  // namespace

bool is_text(const char *data) {
  for (const char *c = data; *c; ++c)
    if (!std::isprint(static_cast<unsigned char>(*c)) && !is_space(*c)) return false;
  return *data != 0;
}

CUresult read_ptx(Image *image, const std::string &text, std::string *log) {
  const std::string mark = "// host: ";
  std::istringstream lines(text);
  std::string line, code_text, host;
  while (std::getline(lines, line)) {
    if (line.compare(0, mark.size(), mark) == 0) host = line.substr(mark.size());
    line = line.substr(0, line.find("//"));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (code_text.empty() && line.compare(0, 8, ".version") != 0) break;
    code_text += line + "\n";
  }
  if (code_text.empty()) {
    *log = "ptxas fatal   : Missing .version directive at start of file";
    return CUDA_ERROR_INVALID_PTX;
  }
  const std::vector<std::string> words = words_of(code_text);
  int depth = 0;
  for (size_t i = 0; i + 2 < words.size(); ++i) {
    depth += (words[i] == "{" || words[i] == "(") - (words[i] == "}" || words[i] == ")");
    if (depth == 0 && (words[i] == ".global" || words[i] == ".const"))
      read_variable(image, words, i + 1);
    if (words[i] != ".entry") continue;
    Code code;
    code.name = words[i + 1];
    if (words[i + 2] == "(" && words[i + 3] != ")") read_params(&code, words, i + 3);
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
