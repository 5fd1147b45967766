// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_TONGUE_H_
#define QTTS_TEXT_PREPARE_TONGUE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/prepare/reader.h"

namespace qtts {

// The official languages (qtts/language.h).
enum class TongueId {
  kChinese,
  kEnglish,
  kJapanese,
  kKorean,
  kGerman,
  kFrench,
  kPortuguese,
  kRussian,
  kSpanish,
  kItalian
};

// Names of a currency. Forms of words follow CLDR's plural categories: one, few, and all others.
struct CurrencyNames {
  std::string_view sign;
  std::string_view code;  // ISO 4217
  std::string_view one, few, other;
  std::string_view sub_one, sub_few, sub_other;  // hundredths; empty: decimals are spoken
  bool feminine;
};

// A written abbreviation, without its last full stop, and its words.
struct Abbreviation {
  enum class When : uint8_t {
    kAlways,
    kMayEnd,  // always; its full stop also ends a sentence if a capital letter follows
    kBeforeNumber,
    kBeforeName,  // a capital letter follows
    kAfterName,   // a word with a capital letter, or a number, stands before it
  };
  std::string_view written;
  std::string_view spoken;
  When when = When::kAlways;
  bool needs_stop = true;  // only with its full stop
};

// Words of the symbols in a language. Empty: silent.
struct SymbolWords {
  std::string_view plus, minus, equals, times, divided, less, greater, less_equal, greater_equal, not_equal, about;
  std::string_view plus_minus;
  std::string_view percent, permille, degrees, and_, at, number, section, copyright;
  std::string_view dot, slash, dash, underscore, hashtag;  // in addresses
  std::string_view point, to, by, per;                     // between numbers
  std::string_view squared, cubed, power;
};

// All that a language decides in the preparation of its texts. Its tables are in tongue_*.cc.
struct Tongue {
  TongueId id;
  std::string_view tag;    // as Language::tag
  char32_t decimal;        // "." or ","
  std::string_view comma;  // the pause: "," or its Chinese or Japanese form
  std::string_view stop;   // a longer pause: "." or "。"
  bool spaces;             // between words
  SymbolWords words;
  std::span<const CurrencyNames> currencies;
  std::string_view money_and;  // between a sum and its hundredths
  std::span<const Abbreviation> abbreviations;
  std::span<const std::string_view> chapter_words;  // in lower case: a Roman numeral behind one is a cardinal
  std::span<const std::string_view> fractions_one;  // of 2 to 10
  std::span<const std::string_view> fractions;      // of 2 to 10, plural

  // Returns the text between words.
  std::string_view gap() const { return spaces ? " " : ""; }
};

const Tongue& TongueOf(TongueId id);

// A tongue as it is spoken in a region.
struct TongueChoice {
  const Tongue* tongue = nullptr;  // null: the letters of the text decide
  bool known = true;               // false: the language has no rules
  std::string tag;                 // with the region, for ICU
  bool month_first = false;        // 03/15/2024
  char32_t decimal = '.';
};

// Returns the choice for a language. `language`: a name or tag, or empty.
TongueChoice ChooseTongue(std::string_view language);

// Returns the tongue of the text around position 0, where `choice` leaves it to the letters.
TongueChoice TongueAt(const Reader& text, const TongueChoice& choice);

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_TONGUE_H_
