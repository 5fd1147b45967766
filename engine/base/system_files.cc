// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/system_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <system_error>

namespace qtts {
namespace {

// Maximum number of bytes read of a file. The files read here have a few hundred.
constexpr std::streamsize kMaxFileBytes = 65536;

}  // namespace

std::string ReadSystemFile(const std::filesystem::path& file) {
  std::string text(kMaxFileBytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), kMaxFileBytes);
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

std::string_view SplitOff(std::string_view* text, char separator) {
  const std::string_view next = text->substr(0, text->find(separator));
  text->remove_prefix(std::min(text->size(), next.size() + 1));
  return next;
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace qtts
