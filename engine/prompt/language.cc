// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/language.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace qtts {
namespace {

struct Language {
  std::string_view tag;
  std::string_view name;
};

// Spec 12. The shortest tag of a name first.
constexpr Language kLanguages[] = {
    {"zh", "chinese"}, {"cmn", "chinese"},   {"en", "english"}, {"ja", "japanese"}, {"ko", "korean"},  {"de", "german"},
    {"fr", "french"},  {"pt", "portuguese"}, {"ru", "russian"}, {"es", "spanish"},  {"it", "italian"}, {"und", "auto"},
};

// Extended language subtags: what follows the language and has three letters.
constexpr size_t kExtendedLength = 3;

bool IsSubtag(std::string_view part) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !part.empty() && part.size() <= 8 && std::all_of(part.begin(), part.end(), plain);
}

}  // namespace

std::string_view LanguageOfTag(std::string_view tag) {
  std::string lower(tag);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::string_view all = lower;
  const size_t first_end = std::min(all.find('-'), all.size());
  const auto* const found = std::find_if(std::begin(kLanguages), std::end(kLanguages), [&](const Language& language) {
    return language.tag == all.substr(0, first_end);
  });
  if (found == std::end(kLanguages)) return {};
  bool second = true;
  for (size_t begin = first_end; begin < all.size();) {
    const size_t end = std::min(all.find('-', begin + 1), all.size());
    const std::string_view part = all.substr(begin + 1, end - begin - 1);
    if (!IsSubtag(part)) return {};
    const bool letters = std::none_of(part.begin(), part.end(), [](char c) { return c <= '9'; });
    if (second && letters && part.size() == kExtendedLength && part != "cmn") return {};
    second = false;
    begin = end;
  }
  return found->name;
}

std::string_view TagOfLanguage(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kLanguages), std::end(kLanguages),
                                         [&](const Language& language) { return language.name == name; });
  return found == std::end(kLanguages) ? std::string_view() : found->tag;
}

}  // namespace qtts
