// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/tongue.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>

#include "qtts/language.h"
#include "text/prepare/tongue_tables.h"

namespace qtts {
namespace {

std::string RegionOf(std::string_view tag) {
  while (!tag.empty()) {
    const size_t dash = std::min(tag.find('-'), tag.size());
    tag.remove_prefix(std::min(dash + 1, tag.size()));
    const std::string_view part = tag.substr(0, tag.find('-'));
    if (part.size() != 2 ||
        std::ranges::any_of(part, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) == 0; }))
      continue;
    std::string region(part);
    for (char& c : region) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return region;
  }
  return "";
}

TongueChoice ChoiceOf(const Tongue& tongue, const std::string& region) {
  static constexpr std::string_view kMonthFirst[] = {"", "US", "PH", "PR", "GU", "LR"};
  // Spanish with a decimal point.
  static constexpr std::string_view kPoint[] = {"MX", "US", "PR", "GT", "HN", "NI", "SV", "PA", "DO", "PE"};
  TongueChoice choice;
  choice.tongue = &tongue;
  choice.tag = std::string(tongue.tag) + (region.empty() ? "" : "-" + region);
  choice.month_first =
      tongue.id == TongueId::kEnglish && std::ranges::find(kMonthFirst, region) != std::end(kMonthFirst);
  choice.decimal = tongue.decimal;
  if (tongue.id == TongueId::kSpanish && std::ranges::find(kPoint, region) != std::end(kPoint)) choice.decimal = '.';
  if (region == "CH" && tongue.decimal == ',') choice.decimal = '.';
  return choice;
}

// Returns the language that a letter's script tells.
std::optional<TongueId> TongueOfLetter(char32_t c) {
  if (c < 0x80) return TongueId::kEnglish;
  UErrorCode error = U_ZERO_ERROR;
  switch (uscript_getScript(static_cast<UChar32>(c), &error)) {
    case USCRIPT_LATIN:
      return TongueId::kEnglish;
    case USCRIPT_CYRILLIC:
      return TongueId::kRussian;
    case USCRIPT_HAN:
      return TongueId::kChinese;
    case USCRIPT_HIRAGANA:
    case USCRIPT_KATAKANA:
      return TongueId::kJapanese;
    case USCRIPT_HANGUL:
      return TongueId::kKorean;
    default:
      return std::nullopt;
  }
}

// Returns the language of the letters beside position 0, the nearest first. Kana nearby make ideographs Japanese.
TongueId GuessTongue(const Reader& text) {
  std::optional<TongueId> found;
  for (ptrdiff_t i = -1; i >= -Reader::kBehind && text[i] != Reader::kNone; --i) {
    if (!IsLetter(text[i])) continue;
    const auto tongue = TongueOfLetter(text[i]);
    if (tongue == TongueId::kJapanese && (!found || found == TongueId::kChinese)) return TongueId::kJapanese;
    if (!found) found = tongue;
    if (found && found != TongueId::kChinese) break;
  }
  constexpr ptrdiff_t kLookAhead = 40;
  for (ptrdiff_t i = 0; !found && i < kLookAhead && text[i] != Reader::kNone; ++i) {
    if (IsLetter(text[i])) found = TongueOfLetter(text[i]);
  }
  return found.value_or(TongueId::kEnglish);
}

}  // namespace

const Tongue& TongueOf(TongueId id) {
  static const Tongue* const tongues[] = {&kChineseTongue, &kEnglishTongue, &kJapaneseTongue,   &kKoreanTongue,
                                          &kGermanTongue,  &kFrenchTongue,  &kPortugueseTongue, &kRussianTongue,
                                          &kSpanishTongue, &kItalianTongue};
  return *tongues[static_cast<size_t>(id)];
}

TongueChoice ChooseTongue(std::string_view language) {
  const Language resolved = ResolveLanguage(language);
  for (int id = 0; id <= static_cast<int>(TongueId::kItalian); ++id) {
    const Tongue& tongue = TongueOf(static_cast<TongueId>(id));
    // A name has no region.
    if (tongue.tag == resolved.tag) return ChoiceOf(tongue, language == resolved.name ? "" : RegionOf(language));
  }
  TongueChoice choice;
  choice.known = resolved.name == "auto";
  return choice;
}

TongueChoice TongueAt(const Reader& text, const TongueChoice& choice) {
  if (choice.tongue != nullptr || !choice.known) return choice;
  static const auto* const choices = [] {
    static TongueChoice all[10];
    for (int id = 0; id < 10; ++id) all[id] = ChoiceOf(TongueOf(static_cast<TongueId>(id)), "");
    return all;
  }();
  return choices[static_cast<size_t>(GuessTongue(text))];
}

}  // namespace qtts
