// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/language.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

namespace qtts {
namespace {

constexpr Language kAutomatic = {"auto", ""};

// Spec 12.
constexpr Language kLanguages[] = {
    {"chinese", "zh"}, {"english", "en"},    {"japanese", "ja"}, {"korean", "ko"},  {"german", "de"},
    {"french", "fr"},  {"portuguese", "pt"}, {"russian", "ru"},  {"spanish", "es"}, {"italian", "it"},
};

// Extended language subtags: the three-letter subtags after the language.
constexpr size_t kExtendedLength = 3;
// The subtag of Mandarin.
constexpr std::string_view kMandarin = "cmn";

bool IsSubtag(std::string_view part) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !part.empty() && part.size() <= 8 && std::all_of(part.begin(), part.end(), plain);
}

// Returns true if `rest`, the part after a tag's first subtag, is well-formed and does not change the language.
bool IsRestOfTag(std::string_view rest) {
  bool second = true;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('-', 1), rest.size());
    const std::string_view part = rest.substr(1, end - 1);
    if (!IsSubtag(part)) return false;
    const bool letters = std::none_of(part.begin(), part.end(), [](char c) { return c <= '9'; });
    if (second && letters && part.size() == kExtendedLength && part != kMandarin) return false;
    second = false;
    rest.remove_prefix(end);
  }
  return true;
}

}  // namespace

Language ResolveLanguage(std::string_view name_or_tag) {
  std::string lower(name_or_tag);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::string_view all = lower;
  if (all.empty() || all == kAutomatic.name) return kAutomatic;
  const auto* const named = std::ranges::find(kLanguages, all, &Language::name);
  if (named != std::end(kLanguages)) return *named;
  const size_t end = std::min(all.find('-'), all.size());
  if (!IsRestOfTag(all.substr(end))) return {};
  const std::string_view first = all.substr(0, end);
  if (first == "und") return kAutomatic;
  const auto* const tagged = std::ranges::find(kLanguages, first == kMandarin ? "zh" : first, &Language::tag);
  return tagged == std::end(kLanguages) ? Language() : *tagged;
}

}  // namespace qtts
