// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_SPELLOUT_H_
#define QTTS_TEXT_PREPARE_SPELLOUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/prepare/tongue.h"

namespace qtts {

// Grammatical gender of what is counted. kNone: the number stands by itself.
enum class Gender { kNone, kMasculine, kFeminine, kNeuter };

// Plural categories of CLDR, as far as a tongue's tables tell them apart.
enum class Plural { kOne, kFew, kOther };

// Numbers, names of months and names of units in words of one language: ICU's rule-based number formats and CLDR's
// names. One object for a language and spelling is made when it is first needed and kept for ever. Thread-safe.
class Spellout {
 public:
  // Returns the spelling of a language. `tag`: TongueChoice::tag. Two languages have a second spelling: en-GB (and
  // other Commonwealth regions) and pt-PT.
  static const Spellout& For(TongueId tongue, std::string_view tag);

  // Returns "twenty-one". Numbers of more than 18 digits are spoken digit by digit.
  std::string Cardinal(std::string_view digits, Gender gender = Gender::kNone) const;
  std::string Cardinal(int64_t number, Gender gender = Gender::kNone) const;
  // Spells a number by the name of one of ICU's rule sets of this language, without "%spellout-".
  std::string ByRules(int64_t number, std::string_view rules) const;
  // Returns "twenty-first", of masculine gender where there are several.
  std::string Ordinal(int64_t number) const;
  // Returns "nineteen oh-five".
  std::string Year(int64_t number) const;
  // Returns "one two zero".
  std::string Digits(std::string_view digits) const;
  // Returns "three point one four"; `digits` are those behind the point.
  std::string Decimal(std::string_view whole, std::string_view digits) const;

  Plural PluralOf(std::string_view whole, std::string_view fraction) const;

  // Returns the name of a month in the form that stands beside a day; 1 to 12.
  const std::string& Month(int month) const;
  // Returns the month whose name or abbreviation (without full stop) is `word` in lower case; 0 for none.
  int MonthOf(std::u32string_view word) const;

  // Returns the name of a unit (CLDR identifier) behind or before a number, "{0} kilometers"; empty if CLDR has none.
  // `gender` is that of the name.
  std::string UnitPattern(const std::string& identifier, Plural plural, Gender* gender) const;
  // Returns the plural name of a currency (ISO 4217), "Swiss francs"; empty if it is unknown.
  std::string CurrencyName(const std::string& code, Plural plural) const;

  ~Spellout();

 private:
  Spellout(TongueId tongue, const char* locale);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_SPELLOUT_H_
