// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/numbers.h"

#include <unicode/uchar.h>

#include <optional>
#include <span>

#include "text/prepare/footnote.h"
#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

// The first rule that knows the text wins.
constexpr NumberRule kDigitRules[] = {SayIsoDate, SayNumericDate, SayTime,           SayPhone,   SayCodeGroups,
                                      SayVersion, SayFraction,    SayMoneyBehind,    SayPercent, SayUnit,
                                      SayDecade,  SayOrdinal,     SayDayBesideMonth, SayCode,    SayNumber};
constexpr NumberRule kWordRules[] = {SayAddress,   SayAbbreviation, SayInitials, SayBankAccount,
                                     SayMoneyCode, SayRomanNumeral, SayMonthName};
constexpr NumberRule kSignRules[] = {SayMoneyBefore, SayPhone, SaySign};

// Returns true for characters that no rule begins with.
bool IsPlain(char32_t c) { return c == ' ' || c == ',' || c == ';' || c == '!' || c == '?' || c == '"'; }

}  // namespace

Edit NumbersStep::Next(const Reader& text) const {
  const char32_t c = text[0];
  if (IsPlain(c) && c != ' ') return Copy();
  const bool letter = IsLetter(c);
  if (letter && IsLetter(text[-1])) return Copy();  // inside of a word
  if (c == ' ' && !IsJoined(text[-1])) return Copy();
  if (const ptrdiff_t footnote = FootnoteLength(text, 0); footnote > 0) return Copy(footnote);
  const TongueChoice choice = TongueAt(text, choice_);
  if (choice.tongue == nullptr) return Copy();
  const NumberContext context = {text, choice, *choice.tongue, Spellout::For(choice.tongue->id, choice.tag)};
  const bool vulgar = c >= 0x80 && c <= UCHAR_MAX_VALUE && u_charType(static_cast<UChar32>(c)) == U_OTHER_NUMBER;
  const bool number = IsDigit(c) || (c == '.' && IsDigit(text[1]) && !IsJoined(text[-1]) && text[-1] != '.');
  std::span<const NumberRule> rules = kSignRules;
  if (number) rules = kDigitRules;
  if (!number && letter) rules = kWordRules;
  if (c == 'x' && IsDigit(text[-1])) rules = kSignRules;  // 2x3
  for (const NumberRule rule : rules) {
    if (auto edit = rule(context)) return *std::move(edit);
  }
  if (vulgar) {
    if (auto edit = SayFraction(context)) return *std::move(edit);
  }
  return Copy();
}

}  // namespace qtts
