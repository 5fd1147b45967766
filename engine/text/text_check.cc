// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/text_check.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/ucsdet.h>
#include <unicode/ulocdata.h>
#include <unicode/unistr.h>
#include <unicode/uscript.h>
#include <unicode/uset.h>
#include <unicode/utf.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "qtts/language.h"

namespace qtts {
namespace {

constexpr uint32_t kSaid = U_GC_L_MASK | U_GC_N_MASK | U_GC_SC_MASK | U_GC_CN_MASK;
constexpr UChar32 kLastLatin1 = 0xFF;
constexpr UChar32 kTypographicApostrophe = 0x2019;

// Minimum number of letters for language detection, and minimum confidence of ICU in percent.
constexpr int64_t kFewestLetters = 40;
constexpr int32_t kMinConfidence = 40;

template <typename Function>
void ForEachCharacter(std::string_view text, const Function& function) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t i = 0; i < size;) {
    UChar32 c = 0;
    U8_NEXT_OR_FFFD(text.data(), i, size, c);
    function(c);
  }
}

// Returns the tags of the languages; none if CLDR does not know one of them.
std::optional<std::vector<std::string>> TagsOf(const std::vector<std::string>& languages) {
  std::vector<std::string> tags;
  for (const std::string& name : languages) {
    const std::string_view tag = ResolveLanguage(name).tag;
    if (tag.empty()) return std::nullopt;
    tags.emplace_back(tag);
  }
  if (tags.empty()) return std::nullopt;
  return tags;
}

// Returns the scripts. A language may have several scripts: Japanese has three.
std::vector<UScriptCode> ScriptsOf(const std::vector<std::string>& tags) {
  std::vector<UScriptCode> scripts;
  for (const std::string& tag : tags) {
    std::array<UScriptCode, 8> codes{};
    UErrorCode error = U_ZERO_ERROR;
    const int32_t count = uscript_getCode(tag.c_str(), codes.data(), static_cast<int32_t>(codes.size()), &error);
    if (U_SUCCESS(error)) scripts.insert(scripts.end(), codes.begin(), codes.begin() + count);
  }
  return scripts;
}

std::string EnglishName(const std::string& tag) {
  std::string name;
  icu::UnicodeString display;
  icu::Locale(tag.c_str()).getDisplayLanguage(icu::Locale::getEnglish(), display).toUTF8String(name);
  return name;
}

// Returns "English, French or German".
std::string Names(const std::vector<std::string>& tags) {
  std::string names;
  for (size_t i = 0; i < tags.size(); ++i) {
    if (i > 0) names += i + 1 == tags.size() ? " or " : ", ";
    names += EnglishName(tags[i]);
  }
  return names;
}

std::string LanguageAdvice(const std::vector<std::string>& tags) {
  return "This model speaks " + Names(tags) + ", so the speech will most likely be unintelligible. Choose a model of " +
         "the text's language. Setting \"language\" silences this warning.";
}

struct Letters {
  int64_t all = 0;
  int64_t foreign = 0;                        // in scripts of none of the languages
  std::map<UScriptCode, int64_t> of_foreign;  // by script
  bool beyond_ascii = false;                  // a Latin letter outside ASCII was seen
};

Letters CountLetters(std::string_view text, const std::vector<UScriptCode>& scripts) {
  Letters letters;
  ForEachCharacter(text, [&](UChar32 c) {
    if ((U_GET_GC_MASK(c) & U_GC_L_MASK) == 0) return;
    UErrorCode error = U_ZERO_ERROR;
    const UScriptCode script = uscript_getScript(c, &error);
    if (U_FAILURE(error) || script <= USCRIPT_INHERITED || script == USCRIPT_UNKNOWN) return;
    ++letters.all;
    if (script == USCRIPT_LATIN && c > 0x7F) letters.beyond_ascii = true;
    if (std::ranges::none_of(scripts, [c](UScriptCode known) { return uscript_hasScript(c, known) != 0; })) {
      ++letters.foreign;
      ++letters.of_foreign[script];
    }
  });
  return letters;
}

// Returns true if a letter is in none of the languages' alphabets. CLDR's auxiliary letters, which occur in loan words,
// do not count as part of an alphabet: é is one in English.
bool HasForeignLetter(std::string_view text, const std::vector<std::string>& tags) {
  const std::unique_ptr<USet, decltype(&uset_close)> alphabet(uset_openEmpty(), uset_close);
  for (const std::string& tag : tags) {
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<ULocaleData, decltype(&ulocdata_close)> data(ulocdata_open(tag.c_str(), &error),
                                                                       ulocdata_close);
    const std::unique_ptr<USet, decltype(&uset_close)> letters(
        ulocdata_getExemplarSet(data.get(), nullptr, USET_ADD_CASE_MAPPINGS, ULOCDATA_ES_STANDARD, &error), uset_close);
    if (U_FAILURE(error)) return false;
    uset_addAll(alphabet.get(), letters.get());
  }
  bool foreign = false;
  ForEachCharacter(text, [&](UChar32 c) {
    foreign = foreign || (c > 0x7F && u_isalpha(c) && uset_contains(alphabet.get(), c) == 0);
  });
  return foreign;
}

// Returns the tag of the Latin-1 language that ICU detects; empty if none.
std::string GuessLanguage(std::string_view text) {
  std::string bytes;
  ForEachCharacter(text, [&](UChar32 c) {
    if (c <= kLastLatin1) bytes += static_cast<char>(c);
    if (c == kTypographicApostrophe) bytes += '\'';
  });
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UCharsetDetector, decltype(&ucsdet_close)> detector(ucsdet_open(&error), ucsdet_close);
  ucsdet_setText(detector.get(), bytes.data(), static_cast<int32_t>(bytes.size()), &error);
  int32_t count = 0;
  const UCharsetMatch** const matches = ucsdet_detectAll(detector.get(), &count, &error);
  if (U_FAILURE(error)) return "";
  for (int32_t i = 0; i < count; ++i) {
    const std::string_view charset = ucsdet_getName(matches[i], &error);
    if (charset != "ISO-8859-1" && charset != "windows-1252") continue;
    if (ucsdet_getConfidence(matches[i], &error) < kMinConfidence) return "";
    return ucsdet_getLanguage(matches[i], &error);
  }
  return "";
}

}  // namespace

bool IsSayable(std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t i = 0; i < size;) {
    UChar32 c = 0;
    U8_NEXT_OR_FFFD(text.data(), i, size, c);
    if ((U_GET_GC_MASK(c) & kSaid) != 0 && !U_IS_UNICODE_NONCHAR(c)) return true;
  }
  return false;
}

std::string LanguageWarning(std::string_view text, const std::vector<std::string>& languages,
                            std::string_view language) {
  if (ResolveLanguage(language).name != "auto") return "";
  const std::optional<std::vector<std::string>> tags = TagsOf(languages);
  if (!tags) return "";
  const Letters letters = CountLetters(text, ScriptsOf(*tags));
  if (letters.foreign > 0 && letters.foreign * 2 >= letters.all) {
    const auto most = std::ranges::max_element(letters.of_foreign, {}, [](const auto& entry) { return entry.second; });
    return "The text is in " + std::string(uscript_getName(most->first)) + " script. " + LanguageAdvice(*tags);
  }
  if (letters.all >= kFewestLetters && letters.beyond_ascii && HasForeignLetter(text, *tags)) {
    const std::string guess = GuessLanguage(text);
    if (!guess.empty() && std::ranges::find(*tags, guess) == tags->end()) {
      return "The text looks like another language. " + LanguageAdvice(*tags);
    }
  }
  return "";
}

}  // namespace qtts
