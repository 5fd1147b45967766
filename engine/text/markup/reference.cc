// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/reference.h"

#include <algorithm>
#include <string>

#include "qtts/utf8.h"
#include "text/prepare/html_names.h"
#include "text/prepare/mapped_text.h"

namespace qtts {
namespace {

bool IsEntityCharacter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::optional<char32_t> DecodeNumber(std::u32string_view number) {
  const bool hexadecimal = !number.empty() && (number[0] == 'x' || number[0] == 'X');
  if (hexadecimal) number.remove_prefix(1);
  constexpr size_t kMaxDigits = 8;
  if (number.empty() || number.size() > kMaxDigits) return std::nullopt;
  char32_t code = 0;
  for (const char32_t c : number) {
    const char32_t lower = c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c;
    if (lower >= '0' && lower <= '9') {
      code = code * (hexadecimal ? 16 : 10) + (lower - '0');
    } else if (hexadecimal && lower >= 'a' && lower <= 'f') {
      code = code * 16 + (lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  const bool blank = code < ' ' && code != '\t' && code != '\n' && code != '\r';
  if (blank || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return kReplacementCharacter;
  return code;
}

}  // namespace

bool MayBeReference(std::u32string_view name) {
  if (name.size() > kLongestReference) return false;
  if (!name.empty() && name[0] == '#') name.remove_prefix(1);
  return std::ranges::all_of(name, IsEntityCharacter);
}

std::optional<char32_t> DecodeReference(std::u32string_view name) {
  if (!name.empty() && name[0] == '#') return DecodeNumber(name.substr(1));
  const std::string written = ToUtf8(name) + ";";
  const auto* const found =
      std::ranges::find(kHtmlNames, written, &std::pair<std::string_view, std::u32string_view>::first);
  if (found == std::end(kHtmlNames)) return std::nullopt;
  return found->second[0];
}

}  // namespace qtts
