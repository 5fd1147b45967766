// SPDX-License-Identifier: LGPL-2.1-or-later
// Shared by all rules: reading and speaking a number.
#include "text/prepare/number_rules.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace qtts {
namespace {

constexpr ptrdiff_t kMaxNumberDigits = 60;

bool IsGroupSign(const NumberContext& context, char32_t c) {
  if (c == 0xA0) return true;
  if (c == ',') return context.choice.decimal == '.';
  if (c == '.') return context.choice.decimal == ',';
  if (c == ' ') return context.Is(TongueId::kFrench) || context.Is(TongueId::kRussian);
  if (c == '\'' || c == 0x2019) return context.choice.tag.ends_with("-CH");
  return false;
}

// Reads groups of three digits, each behind `sign`, from `at` on. Returns their end.
ptrdiff_t ReadGroups(const Reader& text, ptrdiff_t at, char32_t sign, std::string* digits) {
  while (text[at] == sign && text.Digits(at + 1, 4) == 3) {
    digits->append(text.Utf8(at + 1, 3));
    at += 4;
  }
  return at;
}

// Reads 12,34,567 as it is written in India.
ptrdiff_t ReadIndianGroups(const Reader& text, ptrdiff_t at, std::string* digits) {
  std::string pairs;
  ptrdiff_t end = at;
  while (text[end] == ',' && text.Digits(end + 1, 3) == 2) {
    pairs += text.Utf8(end + 1, 2);
    end += 3;
  }
  if (pairs.empty() || text[end] != ',' || text.Digits(end + 1, 4) != 3) return at;
  digits->append(pairs).append(text.Utf8(end + 1, 3));
  return end + 4;
}

}  // namespace

WrittenNumber ReadNumber(const NumberContext& context, ptrdiff_t position) {
  const Reader& text = context.text;
  WrittenNumber number;
  const ptrdiff_t first = text.Digits(position, kMaxNumberDigits);
  const char32_t decimal = context.choice.decimal;
  if (first == 0 && !(text[position] == decimal && IsDigit(text[position + 1]))) return number;
  number.whole = text.Utf8(position, first);
  ptrdiff_t at = position + first;
  const char32_t sign = text[at];
  if (first >= 1 && first <= 3 && number.whole[0] != '0') {
    const char32_t other = decimal == '.' ? U'.' : U',';
    if (IsGroupSign(context, sign)) {
      at = ReadGroups(text, at, sign, &number.whole);
      if (sign == ',' && at == position + first && first < 3) at = ReadIndianGroups(text, at, &number.whole);
    } else if (sign == other) {
      // The other languages' signs, where nothing else can be meant: 1.234.567 or 1.234,50.
      std::string digits = number.whole;
      const ptrdiff_t end = ReadGroups(text, at, sign, &digits);
      const char32_t point = other == '.' ? U',' : U'.';
      const ptrdiff_t decimals = text[end] == point ? text.Digits(end + 1, 4) : 0;
      if (end > at && (decimals == 1 || decimals == 2)) {
        number.fraction = text.Utf8(end + 1, decimals);
        number.whole = digits;
        number.grouped = true;
        number.length = end + 1 + decimals - position;
        return number;
      }
    }
    number.grouped = at > position + first;
  }
  const bool point = text[at] == decimal || (decimal == ',' && text[at] == '.' && !number.grouped);
  if (point && IsDigit(text[at + 1])) {
    const ptrdiff_t decimals = text.Digits(at + 1, kMaxNumberDigits);
    number.fraction = text.Utf8(at + 1, decimals);
    at += 1 + decimals;
  }
  number.length = at - position;
  return number;
}

bool IsBoundary(const Reader& text, ptrdiff_t at) { return !IsJoined(text[at]); }

ptrdiff_t MatchWord(const Reader& text, ptrdiff_t position, std::span<const std::string_view> words) {
  ptrdiff_t longest = 0;
  for (const std::string_view word : words) {
    const auto length = static_cast<ptrdiff_t>(CountUtf8(word));
    if (length > longest && text.HasLower(position, word) && IsBoundary(text, position + length)) longest = length;
  }
  return longest;
}

Edit Say(const NumberContext& context, ptrdiff_t length, std::string_view words) {
  std::u32string text = ToUtf32(words);
  if (context.tongue.spaces) {
    if (IsJoined(context.text.last_spoken())) text.insert(text.begin(), U' ');
    if (IsJoined(context.text[length])) text += U' ';
  }
  return Replace(length, std::move(text));
}

std::string NumberWords(const NumberContext& context, const WrittenNumber& number, Gender gender) {
  if (!number.fraction.empty()) return context.words.Decimal(number.whole, number.fraction);
  if (number.whole.size() > 1 && number.whole[0] == '0') return CodeWords(context, number.whole);
  return context.words.Cardinal(number.whole, gender);
}

std::string CodeWords(const NumberContext& context, std::string_view digits) {
  constexpr size_t kGroup = 3;
  constexpr size_t kWithoutGroups = 5;
  std::string words;
  size_t at = 0;
  while (at < digits.size()) {
    const size_t left = digits.size() - at;
    size_t group = left <= kWithoutGroups && at == 0 ? left : kGroup;
    if (digits.size() % 4 == 0 && digits.size() > 4) group = 4;
    if (left == 4 || (left > kGroup && left < kGroup + 2)) group = 4;
    if (left == kWithoutGroups && at > 0) group = kGroup;
    group = std::min(group, left);
    if (at > 0) words.append(context.tongue.comma).append(context.tongue.gap());
    words += context.words.Digits(digits.substr(at, group));
    at += group;
  }
  return words;
}

std::string GroupWords(const NumberContext& context, std::u32string_view digits) {
  std::string words;
  std::string group;
  const auto say_group = [&] {
    if (group.empty()) return;
    if (!words.empty()) words.append(context.tongue.comma).append(context.tongue.gap());
    // French numbers are spoken in pairs.
    const bool pair = context.Is(TongueId::kFrench) && group.size() == 2 && group[0] != '0';
    words += pair ? context.words.Cardinal(group) : context.words.Digits(group);
    group.clear();
  };
  for (const char32_t c : digits) {
    if (IsDigit(c)) {
      group += static_cast<char>(c);
    } else {
      say_group();
    }
  }
  say_group();
  return words;
}

std::string RussianYear(const NumberContext& context, int64_t year, std::string_view rules) {
  std::string words = context.words.ByRules(year, rules);
  constexpr std::string_view kOne = "одна ";
  if (words.starts_with(kOne)) words.erase(0, kOne.size());
  return words;
}

int64_t NumberOf(std::string_view digits) {
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace qtts
