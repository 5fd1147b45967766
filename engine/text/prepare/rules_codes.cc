// SPDX-License-Identifier: LGPL-2.1-or-later
// Digits that are no amount: phone numbers, cards, accounts, versions, codes.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

// Groups of digits separated by `signs`.
struct Groups {
  std::vector<ptrdiff_t> sizes;
  ptrdiff_t end = 0;
  size_t digits = 0;
};

Groups ReadDigitGroups(const Reader& text, ptrdiff_t at, std::u32string_view signs) {
  constexpr ptrdiff_t kLongestGroup = 12;
  constexpr size_t kGroupLimit = 10;
  Groups groups;
  groups.end = at;
  while (groups.sizes.size() < kGroupLimit) {
    const ptrdiff_t next = groups.sizes.empty() ? at : groups.end + 1;
    if (!groups.sizes.empty() && signs.find(text[groups.end]) == std::u32string_view::npos) break;
    const ptrdiff_t digits = text.Digits(next, kLongestGroup + 1);
    if (digits == 0 || digits > kLongestGroup) break;
    groups.sizes.push_back(digits);
    groups.digits += static_cast<size_t>(digits);
    groups.end = next + digits;
  }
  return groups;
}

// Says "+44 20 1234 5678".
std::optional<Edit> SayInternationalPhone(const NumberContext& context) {
  const Reader& text = context.text;
  if (text[0] != '+' || !IsDigit(text[1])) return std::nullopt;
  ptrdiff_t end = 1;
  size_t digits = 0;
  for (ptrdiff_t i = 1; i < 32; ++i) {
    const char32_t c = text[i];
    if (IsDigit(c)) {
      ++digits;
      end = i + 1;
    } else if (!(c == ' ' || c == 0xA0 || c == '-' || c == '.' || c == '(' || c == ')' || c == '/') ||
               !(IsDigit(text[i + 1]) || text[i + 1] == ' ' || text[i + 1] == '(' || text[i + 1] == ')')) {
      break;
    }
  }
  constexpr size_t kFewest = 8;
  constexpr size_t kMost = 15;
  if (digits < kFewest || digits > kMost || !IsBoundary(text, end)) return std::nullopt;
  return Say(context, end,
             std::string(context.tongue.words.plus) + std::string(context.tongue.gap()) +
                 GroupWords(context, text.Text(0, end)));
}

// Words before a code, in lower case.
constexpr std::string_view kCodeWords[] = {
    "code",      "pin",      "zip",      "passcode", "password",     "id",       "account",  "reference", "ref",
    "extension", "ext",      "serial",   "otp",      "tracking",     "postcode", "kennwort", "plz",       "konto",
    "código",    "codice",   "код",      "пин",      "mot de passe", "clave",    "codigo",   "密码",      "验证码",
    "番号",      "暗証番号", "비밀번호", "번호",     "코드",         "コード"};

// Returns true if a word for codes stands before position 0 in the same sentence, at most a few words ago.
bool IsAnnounced(const Reader& text) {
  constexpr ptrdiff_t kLookBack = 32;
  for (ptrdiff_t i = -1; i > -kLookBack && text[i] != Reader::kNone; --i) {
    const char32_t c = text[i];
    if (c == '.' || c == '!' || c == '?' || IsDigit(c)) return false;
    if (!IsLetter(c) || (IsLetter(text[i - 1]) && !IsCjk(c))) continue;
    for (const std::string_view word : kCodeWords) {
      const auto length = static_cast<ptrdiff_t>(CountUtf8(word));
      if (i + length > 0 || !text.HasLower(i, word)) continue;
      if (i + length == 0 || IsCjk(c) || !IsLetter(text[i + length])) return true;
    }
  }
  return false;
}

bool StartsWithYear(const Reader& text, ptrdiff_t at) {
  const char32_t first = text[at];
  const char32_t second = text[at + 1];
  return (first == '1' && second >= '0') || (first == '2' && second == '0');
}

}  // namespace

std::optional<Edit> SayPhone(const NumberContext& context) {
  const Reader& text = context.text;
  if (auto edit = SayInternationalPhone(context)) return edit;
  // (555) 123-4567, (030) 123456
  if (text[0] == '(') {
    const ptrdiff_t area = text.Digits(1, 6);
    if (area < 2 || area > 5 || text[1 + area] != ')') return std::nullopt;
    const ptrdiff_t at = 2 + area + text.Spaces(2 + area);
    const Groups groups = ReadDigitGroups(text, at, U"-. \u00A0/");
    if (groups.digits < 5 || groups.digits > 10 || !IsBoundary(text, groups.end)) return std::nullopt;
    return Say(context, groups.end, GroupWords(context, text.Text(1, groups.end - 1)));
  }
  if (!IsDigit(text[0])) return std::nullopt;
  using Sizes = std::vector<ptrdiff_t>;
  for (const char32_t sign : {U'-', U'.', U' '}) {
    const Groups groups = ReadDigitGroups(text, 0, std::u32string_view(&sign, 1));
    const Sizes& sizes = groups.sizes;
    if (sizes.size() < 2 || !IsBoundary(text, groups.end)) continue;
    const bool american = sizes == Sizes{3, 3, 4} || sizes == Sizes{1, 3, 3, 4};
    const bool local = sign == '-' && sizes == Sizes{3, 4};
    if (american || local) return Say(context, groups.end, GroupWords(context, text.Text(0, groups.end)));
  }
  // 020 7946 0958, 030/123456, 01 23 45 67 89, 138 1234 5678
  const Groups groups = ReadDigitGroups(text, 0, U" -/\u00A0");
  if (groups.sizes.size() < 2 || groups.digits < 7 || groups.digits > 12 || !IsBoundary(text, groups.end))
    return std::nullopt;
  const bool trunk = text[0] == '0' && groups.sizes[0] >= 2 && groups.sizes.back() > 1;
  const bool mobile = groups.sizes == Sizes{3, 4, 4};
  if (!trunk && !mobile) return std::nullopt;
  return Say(context, groups.end, GroupWords(context, text.Text(0, groups.end)));
}

std::optional<Edit> SayCodeGroups(const NumberContext& context) {
  const Reader& text = context.text;
  // 1234 5678 9012 3456
  for (const char32_t sign : {U' ', U'-', U'\u00A0'}) {
    const Groups groups = ReadDigitGroups(text, 0, std::u32string_view(&sign, 1));
    if (groups.sizes.size() < 2 || !IsBoundary(text, groups.end)) continue;
    const bool fours = std::ranges::all_of(groups.sizes, [](ptrdiff_t size) { return size == 4; });
    const bool card = fours && groups.sizes.size() >= 3;
    const bool american_express = groups.sizes == std::vector<ptrdiff_t>{4, 6, 5};
    // Not the years of "1914-1918".
    const bool code = sign == '-' && fours && !(StartsWithYear(text, 0) && StartsWithYear(text, 5));
    // 0-306-40615: two hyphens or more
    const bool dashes = sign == '-' && groups.sizes.size() >= 3;
    if (card || american_express || code || dashes)
      return Say(context, groups.end, GroupWords(context, text.Text(0, groups.end)));
  }
  return std::nullopt;
}

std::optional<Edit> SayVersion(const NumberContext& context) {
  const Reader& text = context.text;
  const char32_t point = '.';
  const Groups groups = ReadDigitGroups(text, 0, std::u32string_view(&point, 1));
  if (groups.sizes.size() < 3 || !IsBoundary(text, groups.end)) return std::nullopt;
  // Groups of three digits are a number in many languages.
  const bool threes = groups.sizes[0] <= 3 && std::all_of(groups.sizes.begin() + 1, groups.sizes.end(),
                                                          [](ptrdiff_t size) { return size == 3; });
  if (threes && (context.choice.decimal == ',' || (text[groups.end] == ',' && IsDigit(text[groups.end + 1]))))
    return std::nullopt;
  const bool address = groups.sizes.size() == 4;
  const std::string_view sign =
      address || !context.Is(TongueId::kEnglish) ? context.tongue.words.dot : context.tongue.words.point;
  std::string words;
  ptrdiff_t at = 0;
  for (const ptrdiff_t size : groups.sizes) {
    if (at > 0) words.append(context.tongue.gap()).append(sign).append(context.tongue.gap());
    const std::string digits = text.Utf8(at, size);
    words += digits.size() > 3 || (digits.size() > 1 && digits[0] == '0') ? context.words.Digits(digits)
                                                                          : context.words.Cardinal(digits);
    at += size + 1;
  }
  return Say(context, groups.end, words);
}

// Says groups of four with a full stop between them: with commas, 3 of 12 accounts were heard right, with stops 8
// (bundled voice, Whisper base).
std::optional<Edit> SayBankAccount(const NumberContext& context) {
  const Reader& text = context.text;
  constexpr size_t kFewest = 15;
  constexpr size_t kMost = 34;
  if (!IsUpper(text[0]) || text[0] > 'Z' || !IsUpper(text[1]) || text[1] > 'Z' || text.Digits(2, 3) < 2)
    return std::nullopt;
  std::vector<std::string> groups(1);
  size_t characters = 0;
  ptrdiff_t end = 0;
  const bool spaced = IsSpace(text[4]);
  for (ptrdiff_t i = 0; characters < kMost; ++i) {
    const char32_t c = text[i];
    if (IsSpace(c) && spaced && groups.back().size() == 4) {
      groups.emplace_back();
      continue;
    }
    if (!IsDigit(c) && !(c >= 'A' && c <= 'Z')) break;
    if (groups.back().size() == 4) {
      if (spaced) break;
      groups.emplace_back();
    }
    groups.back() += static_cast<char>(c);
    ++characters;
    end = i + 1;
  }
  if (characters < kFewest || !IsBoundary(text, end)) return std::nullopt;
  std::string words;
  for (const std::string& group : groups) {
    if (group.empty()) continue;
    if (!words.empty()) words.append(context.tongue.stop).append(context.tongue.gap());
    std::string spelled;
    for (const char c : group) {
      if (!spelled.empty()) spelled += context.tongue.gap();
      spelled += c >= 'A' ? std::string(1, c) : context.words.Digits(std::string_view(&c, 1));
    }
    words += spelled;
  }
  return Say(context, end, words);
}

std::optional<Edit> SayCode(const NumberContext& context) {
  const Reader& text = context.text;
  constexpr ptrdiff_t kLongest = 60;
  const ptrdiff_t digits = text.Digits(0, kLongest);
  if (digits == 0 || (text[digits] == context.choice.decimal && IsDigit(text[digits + 1]))) return std::nullopt;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.grouped) return std::nullopt;
  const std::string code = text.Utf8(0, digits);
  if (IsJoined(text[-1])) {  // MP3, H264, ES2015
    const bool year = digits == 4 && StartsWithYear(text, 0);
    if (year) return Say(context, digits, context.words.Year(NumberOf(code)));
    if (digits <= 2 && code[0] != '0') return Say(context, digits, context.words.Cardinal(code));
    return Say(context, digits, context.words.Digits(code));
  }
  // 1080p
  if (context.Is(TongueId::kEnglish) && (text[digits] == 'p' || text[digits] == 'i') && IsBoundary(text, digits + 1) &&
      (digits == 3 || digits == 4)) {
    return Say(context, digits,
               context.words.Cardinal(code.substr(0, code.size() - 2)) + " " +
                   context.words.Cardinal(code.substr(code.size() - 2)));
  }
  const bool round = code.ends_with("000");
  const bool zero = code[0] == '0' && digits > 1;
  const bool announced = digits >= 3 && IsAnnounced(text);
  if (zero || digits > 18 || (digits >= 6 && !round) || announced)
    return Say(context, digits, CodeWords(context, code));
  return std::nullopt;
}

}  // namespace qtts
