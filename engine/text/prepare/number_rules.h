// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_NUMBER_RULES_H_
#define QTTS_TEXT_PREPARE_NUMBER_RULES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/spellout.h"
#include "text/prepare/step.h"
#include "text/prepare/tongue.h"

// Rules of the step `numbers`. Each looks at the text from position 0 on, and says what is spoken for its beginning, or
// nothing if it is not what the rule is about.
namespace qtts {

struct NumberContext {
  const Reader& text;
  const TongueChoice& choice;
  const Tongue& tongue;
  const Spellout& words;

  bool Is(TongueId id) const { return tongue.id == id; }
};

using NumberRule = std::optional<Edit> (*)(const NumberContext&);

// A number as it is written: "1,299.99".
struct WrittenNumber {
  ptrdiff_t length = 0;  // 0: there is none
  std::string whole;     // digits without separators
  std::string fraction;  // digits behind the decimal sign
  bool grouped = false;
};

// Reads the number at `position` with the language's signs.
WrittenNumber ReadNumber(const NumberContext& context, ptrdiff_t position);

// Replaces `length` characters by words, with spaces where a letter or digit adjoins them.
Edit Say(const NumberContext& context, ptrdiff_t length, std::string_view words);

// Returns "one hundred", "three point one four": a number that stands by itself, of a gender.
std::string NumberWords(const NumberContext& context, const WrittenNumber& number, Gender gender = Gender::kNone);

// Spells digits one by one, with a pause after each group: "four eight two, nine one three".
std::string CodeWords(const NumberContext& context, std::string_view digits);
// Returns the same for groups as they are written; `digits` has anything between them.
std::string GroupWords(const NumberContext& context, std::u32string_view digits);

// Returns a Russian year as an ordinal; "тысяча", not "одна тысяча".
std::string RussianYear(const NumberContext& context, int64_t year, std::string_view rules);

// Returns the value of up to 18 digits.
int64_t NumberOf(std::string_view digits);

// Returns true if position `at` is behind a whole number or word: no letter or digit follows.
bool IsBoundary(const Reader& text, ptrdiff_t at);

// Returns the length of a word of a list at `position`, where it ends; 0 if there is none. `words` are in lower case.
ptrdiff_t MatchWord(const Reader& text, ptrdiff_t position, std::span<const std::string_view> words);

// Rules for text that begins with a digit (or a decimal point before one):
std::optional<Edit> SayIsoDate(const NumberContext& context);      // 2024-03-15
std::optional<Edit> SayNumericDate(const NumberContext& context);  // 03/15/2024, 15.3.2024
std::optional<Edit> SayDayBesideMonth(const NumberContext& context);
std::optional<Edit> SayTime(const NumberContext& context);
std::optional<Edit> SayPhone(const NumberContext& context);  // also from "+" and "("
std::optional<Edit> SayCodeGroups(const NumberContext& context);
std::optional<Edit> SayVersion(const NumberContext& context);
std::optional<Edit> SayFraction(const NumberContext& context);
std::optional<Edit> SayMoneyBehind(const NumberContext& context);  // 5 €
std::optional<Edit> SayPercent(const NumberContext& context);
std::optional<Edit> SayUnit(const NumberContext& context);
std::optional<Edit> SayOrdinal(const NumberContext& context);
std::optional<Edit> SayDecade(const NumberContext& context);
std::optional<Edit> SayCode(const NumberContext& context);
std::optional<Edit> SayNumber(const NumberContext& context);  // all others

// Rules for text that begins with a letter that begins a word:
std::optional<Edit> SayAddress(const NumberContext& context);
std::optional<Edit> SayAbbreviation(const NumberContext& context);
std::optional<Edit> SayInitials(const NumberContext& context);
std::optional<Edit> SayBankAccount(const NumberContext& context);
std::optional<Edit> SayMoneyCode(const NumberContext& context);  // EUR 5, US$5, R$5
std::optional<Edit> SayRomanNumeral(const NumberContext& context);
std::optional<Edit> SayMonthName(const NumberContext& context);

// Rules for text that begins with anything else:
std::optional<Edit> SayMoneyBefore(const NumberContext& context);  // $5
std::optional<Edit> SaySign(const NumberContext& context);         // minus, to, times, powers, dots of addresses

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_NUMBER_RULES_H_
