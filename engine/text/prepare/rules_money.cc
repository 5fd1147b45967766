// SPDX-License-Identifier: LGPL-2.1-or-later
// Sums of money.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

// CurrencyWords of a currency in the language, for a sum.
struct CurrencyWords {
  std::string one, few, other;
  const CurrencyNames* known = nullptr;

  const std::string& For(Plural plural) const {
    return plural == Plural::kOne ? one : plural == Plural::kFew ? few : other;
  }
};

CurrencyWords NamesOf(const CurrencyNames& currency) {
  return {std::string(currency.one), std::string(currency.few), std::string(currency.other), &currency};
}

// Returns true for ISO 4217 codes that are no English words.
bool IsCode(std::string_view code) {
  static constexpr std::string_view kCurrencyCodes =
      "USD EUR GBP JPY CNY INR RUB KRW BRL CHF CAD AUD NZD SEK NOK DKK PLN CZK HUF MXN ZAR SGD HKD THB ILS AED SAR EGP "
      "NGN "
      "IDR MYR VND UAH ARS CLP";
  return code.size() == 3 && kCurrencyCodes.find(code) != std::string_view::npos;
}

std::optional<CurrencyWords> NamesOfCode(const NumberContext& context, const std::string& code) {
  if (!IsCode(code)) return std::nullopt;
  const auto known = std::ranges::find(context.tongue.currencies, code, &CurrencyNames::code);
  if (known != context.tongue.currencies.end()) return NamesOf(*known);
  CurrencyWords names = {context.words.CurrencyName(code, Plural::kOne), context.words.CurrencyName(code, Plural::kFew),
                         context.words.CurrencyName(code, Plural::kOther), nullptr};
  if (names.other.empty()) return std::nullopt;
  return names;
}

// A sign of a currency at `position`, such as "$", "R$" or "US$".
struct Sign {
  ptrdiff_t length = 0;
  CurrencyWords names;
};

Sign ReadSign(const NumberContext& context, ptrdiff_t position) {
  const Reader& text = context.text;
  static constexpr std::pair<std::string_view, std::string_view> kDollars[] = {
      {"US$", "USD"}, {"A$", "AUD"},  {"AU$", "AUD"}, {"C$", "CAD"}, {"CA$", "CAD"},
      {"HK$", "HKD"}, {"NZ$", "NZD"}, {"S$", "SGD"},  {"MX$", "MXN"}};
  for (const auto& [sign, code] : kDollars) {
    if (!text.Has(position, sign)) continue;
    CurrencyWords names = {context.words.CurrencyName(std::string(code), Plural::kOne),
                           context.words.CurrencyName(std::string(code), Plural::kFew),
                           context.words.CurrencyName(std::string(code), Plural::kOther), nullptr};
    // "US dollars" would be read as the pronoun.
    for (std::string* name : {&names.one, &names.few, &names.other}) {
      if (name->starts_with("US ")) name->replace(0, 2, "U S");
    }
    return {static_cast<ptrdiff_t>(sign.size()), std::move(names)};
  }
  for (const CurrencyNames& currency : context.tongue.currencies) {
    if (!currency.sign.empty() && text.Has(position, currency.sign)) {
      return {static_cast<ptrdiff_t>(CountUtf8(currency.sign)), NamesOf(currency)};
    }
  }
  return {};
}

// A power of ten behind a number: " million", "M".
struct Scale {
  ptrdiff_t length = 0;
  std::string words;
};

Scale ReadScale(const NumberContext& context, ptrdiff_t at) {
  const Reader& text = context.text;
  if (!context.tongue.spaces || context.Is(TongueId::kKorean)) {
    static constexpr std::string_view kScales[] = {"百万", "千万", "万", "亿", "億", "兆",
                                                   "만",   "억",   "조", "천", "千"};
    for (const std::string_view scale : kScales) {
      if (text.Has(at, scale)) return {static_cast<ptrdiff_t>(CountUtf8(scale)), std::string(scale)};
    }
    return {};
  }
  const ptrdiff_t spaces = text.Spaces(at);
  const ptrdiff_t word = at + spaces;
  static constexpr std::string_view kEnglishScales[] = {"thousand", "million", "billion", "trillion"};
  if (context.Is(TongueId::kEnglish)) {
    for (const std::string_view scale : kEnglishScales) {
      const auto length = static_cast<ptrdiff_t>(scale.size());
      if (spaces > 0 && text.HasLower(word, scale) && IsBoundary(text, word + length))
        return {spaces + length, std::string(scale)};
    }
    static constexpr std::pair<std::string_view, std::string_view> kShortScales[] = {
        {"k", "thousand"}, {"K", "thousand"}, {"M", "million"}, {"m", "million"},
        {"bn", "billion"}, {"B", "billion"},  {"T", "trillion"}};
    for (const auto& [letters, scale] : kShortScales) {
      const auto length = static_cast<ptrdiff_t>(letters.size());
      if (spaces == 0 && text.Has(at, letters) && IsBoundary(text, at + length)) return {length, std::string(scale)};
    }
  }
  if (context.Is(TongueId::kGerman)) {
    static constexpr std::pair<std::string_view, std::string_view> kGermanScales[] = {{"Mio.", "Millionen"},
                                                                                      {"Mrd.", "Milliarden"},
                                                                                      {"Tsd.", "Tausend"},
                                                                                      {"Millionen", "Millionen"},
                                                                                      {"Milliarden", "Milliarden"}};
    for (const auto& [letters, scale] : kGermanScales) {
      if (text.Has(word, letters)) return {spaces + static_cast<ptrdiff_t>(letters.size()), std::string(scale)};
    }
  }
  return {};
}

// Returns the decimals of a written sum as hundredths; none for others than one or two digits.
std::optional<std::string> HundredthsOf(const WrittenNumber& number) {
  if (number.fraction.size() == 2) return number.fraction;
  if (number.fraction.size() == 1) return number.fraction + "0";
  return std::nullopt;
}

std::string SumWords(const NumberContext& context, const WrittenNumber& number, const Scale& scale,
                     const CurrencyWords& names) {
  const std::string gap(context.tongue.gap());
  if (scale.length > 0) return NumberWords(context, number) + gap + scale.words + gap + names.other;
  const Gender gender = names.known != nullptr && names.known->feminine ? Gender::kFeminine : Gender::kMasculine;
  const bool has_hundredths = names.known != nullptr && !names.known->sub_one.empty();
  const std::optional<std::string> hundredths = HundredthsOf(number);
  if (!number.fraction.empty() && (!has_hundredths || !hundredths)) {
    return NumberWords(context, number) + gap + names.For(context.words.PluralOf(number.whole, number.fraction));
  }
  const int64_t cents = hundredths ? NumberOf(*hundredths) : 0;
  const std::string whole = number.whole.empty() ? "0" : number.whole;
  std::string words;
  if (cents == 0 || NumberOf(whole) > 0) {
    words = context.words.Cardinal(whole, gender) + gap + names.For(context.words.PluralOf(whole, ""));
  }
  if (cents > 0) {
    const CurrencyNames& known = *names.known;
    const Plural plural = context.words.PluralOf(std::to_string(cents), "");
    const std::string_view name = plural == Plural::kOne   ? known.sub_one
                                  : plural == Plural::kFew ? known.sub_few
                                                           : known.sub_other;
    if (!words.empty()) words += context.tongue.money_and;
    const bool feminine = context.Is(TongueId::kRussian) && known.code == "RUB";
    words += context.words.Cardinal(cents, feminine ? Gender::kFeminine : Gender::kMasculine) + gap + std::string(name);
  }
  return words;
}

// Says "/month" behind a sum.
std::optional<Edit> AddRate(const NumberContext& context, ptrdiff_t end, const std::string& words) {
  if (context.tongue.spaces && context.text[end] == '/' && IsLetter(context.text[end + 1])) {
    return Replace(end + 1, words + " " + std::string(context.tongue.words.per) + " ");
  }
  return Say(context, end, words);
}

}  // namespace

std::optional<Edit> SayMoneyBefore(const NumberContext& context) {
  const Reader& text = context.text;
  const Sign sign = ReadSign(context, 0);
  if (sign.length == 0) return std::nullopt;
  const bool minus = text[sign.length] == '-' || text[sign.length] == 0x2212;
  const ptrdiff_t at = sign.length + (minus ? 1 : 0) + text.Spaces(sign.length + (minus ? 1 : 0));
  const WrittenNumber number = ReadNumber(context, at);
  if (number.length == 0) return std::nullopt;
  const Scale scale = ReadScale(context, at + number.length);
  const std::string words = SumWords(context, number, scale, sign.names);
  return AddRate(context, at + number.length + scale.length,
                 minus ? std::string(context.tongue.words.minus) + std::string(context.tongue.gap()) + words : words);
}

std::optional<Edit> SayMoneyBehind(const NumberContext& context) {
  const Reader& text = context.text;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.length == 0) return std::nullopt;
  if (text[number.length] == U'¢' && context.Is(TongueId::kEnglish)) {
    return Say(context, number.length + 1, NumberWords(context, number) + (number.whole == "1" ? " cent" : " cents"));
  }
  const Scale scale = context.Is(TongueId::kEnglish) ? Scale() : ReadScale(context, number.length);
  const ptrdiff_t at = number.length + scale.length + text.Spaces(number.length + scale.length);
  const Sign sign = ReadSign(context, at);
  // "5 $10": the sign belongs to the next number.
  if (sign.length > 0 && !(at > number.length && IsDigit(text[at + sign.length]))) {
    return AddRate(context, at + sign.length, SumWords(context, number, scale, sign.names));
  }
  if (text.Letters(at, 4) != 3 || !IsUpper(text[at]) || !IsBoundary(text, at + 3)) return std::nullopt;
  const auto names = NamesOfCode(context, text.Utf8(at, 3));
  if (!names) return std::nullopt;
  return AddRate(context, at + 3, SumWords(context, number, scale, *names));
}

std::optional<Edit> SayMoneyCode(const NumberContext& context) {
  const Reader& text = context.text;
  if (!IsUpper(text[0])) return std::nullopt;
  if (auto edit = SayMoneyBefore(context)) return edit;
  if (text.Letters(0, 4) != 3) return std::nullopt;
  const ptrdiff_t at = 3 + text.Spaces(3);
  if (!IsDigit(text[at])) return std::nullopt;
  const auto names = NamesOfCode(context, text.Utf8(0, 3));
  const WrittenNumber number = ReadNumber(context, at);
  if (!names || number.length == 0) return std::nullopt;
  const Scale scale = ReadScale(context, at + number.length);
  return AddRate(context, at + number.length + scale.length, SumWords(context, number, scale, *names));
}

}  // namespace qtts
