// SPDX-License-Identifier: LGPL-2.1-or-later
// Words that are written in short: addresses of the network, abbreviations, initials, Roman numerals.
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

bool IsAsciiWord(char32_t c) { return c < 0x80 && IsJoined(c); }

// Returns the parts of an address in words: letters stay, digits and signs are spoken.
std::string AddressWords(const NumberContext& context, std::u32string_view address) {
  const SymbolWords& words = context.tongue.words;
  const auto add = [](std::string* to, std::string_view word) {
    if (!to->empty() && !to->ends_with(' ')) *to += ' ';
    to->append(word);
  };
  std::string text;
  for (size_t i = 0; i < address.size();) {
    const char32_t c = address[i];
    if (IsDigit(c)) {
      std::string digits;
      while (i < address.size() && IsDigit(address[i])) digits += static_cast<char>(address[i++]);
      add(&text,
          digits.size() <= 2 && digits[0] != '0' ? context.words.Cardinal(digits) : context.words.Digits(digits));
      continue;
    }
    const bool after_sign = i > 0 && !IsLetter(address[i - 1]);
    ++i;
    if (IsLetter(c)) {
      if (after_sign) add(&text, "");
      AppendUtf8(c, &text);
      continue;
    }
    const std::string_view word = c == '.'   ? words.dot
                                  : c == '/' ? words.slash
                                  : c == '-' ? words.dash
                                  : c == '_' ? words.underscore
                                  : c == '@' ? words.at
                                  : c == '+' ? words.plus
                                  : c == ':' ? std::string_view(",")
                                             : std::string_view();
    if (!word.empty()) add(&text, word);
  }
  return text;
}

// Says an address with its scheme, or "www.".
std::optional<Edit> SayUrl(const NumberContext& context) {
  const Reader& text = context.text;
  static constexpr std::string_view kSchemes[] = {"https://", "http://", "ftp://", "mailto:"};
  ptrdiff_t begin = 0;
  for (const std::string_view scheme : kSchemes) {
    if (begin == 0 && text.HasLower(0, scheme)) begin = static_cast<ptrdiff_t>(scheme.size());
  }
  const bool www = text.HasLower(begin, "www.");
  if (begin == 0 && !www) return std::nullopt;
  if (begin > 0 && www) begin += 4;  // nobody says it
  ptrdiff_t end = begin;
  while (text[end] != Reader::kNone && !IsSpace(text[end]) && text[end] > ' ' && text[end] != '"' && text[end] != '<' &&
         text[end] != '>' && !IsCjk(text[end]))
    ++end;
  while (end > begin && std::u32string_view(U".,;:!?)]}'’”»").find(text[end - 1]) != std::u32string_view::npos) --end;
  if (end == begin) return std::nullopt;
  // Queries and fragments are for machines.
  std::u32string address = text.Text(begin, end - begin);
  address.resize(std::min(address.find_first_of(U"?#"), address.size()));
  while (!address.empty() && address.back() == '/') address.pop_back();
  std::string words;
  if (begin == 0) {
    words = "W W W";
    address.erase(0, 3);
  }
  const std::string rest = AddressWords(context, address);
  // Text that begins with a letter is spoken with one at its beginning (Step::KeepsFirstLetters()).
  if (words.empty() && (rest.empty() || rest[0] == ',')) return std::nullopt;
  if (!words.empty() && !rest.starts_with(' ')) words += ' ';
  return Say(context, end, words + rest);
}

std::optional<Edit> SayMail(const NumberContext& context) {
  const Reader& text = context.text;
  constexpr ptrdiff_t kLongest = 64;
  ptrdiff_t at = 0;
  while (at < kLongest && (IsAsciiWord(text[at]) ||
                           (at > 0 && std::u32string_view(U"._%+-").find(text[at]) != std::u32string_view::npos)))
    ++at;
  if (at == 0 || text[at] != '@' || !IsAsciiWord(text[at + 1])) return std::nullopt;
  ptrdiff_t end = at + 1;
  bool dot = false;
  while (end < at + kLongest) {
    if (IsAsciiWord(text[end])) {
      ++end;
    } else if ((text[end] == '.' || text[end] == '-') && IsAsciiWord(text[end + 1])) {
      dot = dot || text[end] == '.';
      ++end;
    } else {
      break;
    }
  }
  if (!dot) return std::nullopt;
  return Say(context, end, AddressWords(context, text.Text(0, end)));
}

// Returns true if the full stop at `stop` may be the end of a sentence: nothing or a capital letter follows.
bool StopMayEndSentence(const Reader& text, ptrdiff_t stop, bool before_capital) {
  const ptrdiff_t next = stop + 1 + text.Spaces(stop + 1);
  if (text[next] == Reader::kNone) return true;
  return before_capital && next > stop + 1 && IsUpper(text[next]);
}

std::string Capitalized(std::string_view words) {
  std::u32string codes = ToUtf32(words);
  if (!codes.empty()) codes[0] = static_cast<char32_t>(u_toupper(static_cast<UChar32>(codes[0])));
  return ToUtf8(codes);
}

struct Roman {
  ptrdiff_t length = 0;
  int value = 0;
};

Roman ReadRoman(const Reader& text) {
  static constexpr std::u32string_view kLetters = U"IVXLC";
  static constexpr std::array<int, 5> kValues = {1, 5, 10, 50, 100};
  constexpr ptrdiff_t kLongest = 10;
  Roman roman;
  while (roman.length < kLongest && kLetters.find(text[roman.length]) != std::u32string_view::npos) ++roman.length;
  for (ptrdiff_t i = 0; i < roman.length; ++i) {
    const int value = kValues[kLetters.find(text[i])];
    const size_t next = i + 1 < roman.length ? kLetters.find(text[i + 1]) : std::u32string_view::npos;
    roman.value += next != std::u32string_view::npos && kValues[next] > value ? -value : value;
  }
  // The letters must be the usual spelling of the value: "VIII", not "IIX".
  static constexpr std::pair<int, std::u32string_view> kParts[] = {
      {100, U"C"}, {90, U"XC"}, {50, U"L"}, {40, U"XL"}, {10, U"X"}, {9, U"IX"}, {5, U"V"}, {4, U"IV"}, {1, U"I"}};
  std::u32string spelled;
  int rest = roman.value;
  for (const auto& [value, letters] : kParts) {
    for (; rest >= value; rest -= value) spelled += letters;
  }
  return roman.length > 0 && spelled == text.Text(0, roman.length) ? roman : Roman();
}

// Returns true for names of rulers and popes, in lower case: their numerals are ordinals.
bool IsRuler(std::u32string_view name) {
  static constexpr std::u32string_view kNames[] = {
      U"henry",     U"edward",   U"george",     U"charles",    U"james",     U"william",   U"richard",   U"elizabeth",
      U"mary",      U"louis",    U"philip",     U"francis",    U"napoleon",  U"pius",      U"paul",      U"benedict",
      U"gregory",   U"leo",      U"innocent",   U"clement",    U"urban",     U"boniface",  U"alexander", U"nicholas",
      U"catherine", U"peter",    U"frederick",  U"ferdinand",  U"ramses",    U"ptolemy",   U"xerxes",    U"darius",
      U"john",      U"ivan",     U"heinrich",   U"wilhelm",    U"friedrich", U"ludwig",    U"karl",      U"otto",
      U"franz",     U"leopold",  U"joseph",     U"maximilian", U"papst",     U"henri",     U"françois",  U"philippe",
      U"jean",      U"napoléon", U"élisabeth",  U"felipe",     U"alfonso",   U"carlos",    U"fernando",  U"juan",
      U"isabel",    U"pedro",    U"pío",        U"joão",       U"afonso",    U"manuel",    U"emanuele",  U"umberto",
      U"carlo",     U"pio",      U"paolo",      U"giovanni",   U"benedetto", U"leone",     U"gregorio",  U"enrico",
      U"luigi",     U"filippo",  U"elisabetta", U"пётр",       U"петр",      U"екатерина", U"николай",   U"александр",
      U"павел",     U"иван",     U"людовик",    U"карл",       U"генрих",    U"елизавета", U"пий",       U"фридрих"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Says "XXe siècle", "François Ier", "Ve République".
std::optional<Edit> SayFrenchOrdinal(const NumberContext& context, const Roman& roman) {
  const Reader& text = context.text;
  static constexpr std::string_view kCounted[] = {"siècle", "siècles", "république", "arrondissement", "dynastie"};
  for (const std::string_view suffix : {"er", "re", "e", "ème"}) {
    const ptrdiff_t end = roman.length + static_cast<ptrdiff_t>(CountUtf8(suffix));
    if (!text.Has(roman.length, suffix) || !IsBoundary(text, end)) continue;
    // "Le" and "Ce" are words.
    const bool counted = MatchWord(text, end + text.Spaces(end), kCounted) > 0;
    if (roman.length == 1 && roman.value != 1 && !counted) return std::nullopt;
    return Say(context, end, suffix == "re" ? "première" : context.words.Ordinal(roman.value));
  }
  return std::nullopt;
}

std::string RulerWords(const NumberContext& context, int value, std::u32string_view name) {
  const Spellout& words = context.words;
  switch (context.tongue.id) {
    case TongueId::kEnglish:
      return "the " + Capitalized(words.Ordinal(value));
    case TongueId::kGerman:
      return "der " + Capitalized(words.Ordinal(value));
    case TongueId::kFrench:
      return value == 1 ? "premier" : words.Cardinal(value);
    case TongueId::kSpanish:
    case TongueId::kPortuguese:
      return value <= 10 ? words.Ordinal(value) : words.Cardinal(value);
    case TongueId::kRussian:
      return words.ByRules(value,
                           name.ends_with(U'а') || name.ends_with(U'я') ? "ordinal-feminine" : "ordinal-masculine");
    default:
      return words.Ordinal(value);
  }
}

// Matches "century" behind a Roman numeral.
ptrdiff_t CenturyAt(const NumberContext& context, ptrdiff_t at) {
  static constexpr std::string_view kWords[] = {"century", "centuries", "siècle", "siècles", "secolo",
                                                "век",     "века",      "веке",   "веку"};
  const ptrdiff_t spaces = context.text.Spaces(at);
  return spaces > 0 ? MatchWord(context.text, at + spaces, kWords) : 0;
}

}  // namespace

std::optional<Edit> SayAddress(const NumberContext& context) {
  if (context.text[0] >= 0x80) return std::nullopt;
  if (auto edit = SayUrl(context)) return edit;
  return SayMail(context);
}

std::optional<Edit> SayAbbreviation(const NumberContext& context) {
  const Reader& text = context.text;
  if (context.Is(TongueId::kGerman)) {  // "Hauptstr."
    constexpr ptrdiff_t kLongest = 30;
    const ptrdiff_t letters = text.Letters(0, kLongest);
    if (letters > 4 && text.Has(letters - 3, "str.")) return Replace(letters + 1, text.Utf8(0, letters - 3) + "straße");
  }
  using When = Abbreviation::When;
  constexpr ptrdiff_t kLongestPlace = 30;
  for (const Abbreviation& entry : context.tongue.abbreviations) {
    const char32_t first = DecodeUtf8(entry.written).code;
    const bool raised = text[0] != first && IsLower(first) && ToLower(text[0]) == first;
    if (text[0] != first && !raised) continue;
    const auto length = static_cast<ptrdiff_t>(CountUtf8(entry.written));
    if (!text.Has(1, entry.written.substr(DecodeUtf8(entry.written).size))) continue;
    const bool stop = text[length] == '.';
    if (entry.needs_stop && !stop) continue;
    if (!stop && IsLetter(text[length - 1]) && !IsBoundary(text, length)) continue;
    const ptrdiff_t behind = length + (stop ? 1 : 0);
    if (IsLetter(text[behind]) && stop && !IsUpper(text[behind])) continue;  // "no.one"
    const ptrdiff_t next = behind + text.Spaces(behind);
    if (entry.when == When::kBeforeNumber) {
      static constexpr std::u32string_view kNumerals = U"IVXLC";
      const bool roman = IsUpper(text[0]) && kNumerals.find(text[next]) != std::u32string_view::npos;
      if (!IsDigit(text[next]) && !roman) continue;
    }
    if (entry.when == When::kBeforeName && !IsUpper(text[next])) continue;
    if (entry.when == When::kAfterName) {
      const ptrdiff_t before = text[-1] == ' ' ? (text[-2] == ',' ? -3 : -2) : 0;
      if (before == 0 || !IsJoined(text[before])) continue;
      // A number before it may have letters: "5th Ave."
      ptrdiff_t begin = before;
      bool number = IsDigit(text[begin]);
      for (; IsJoined(text[begin - 1]) && begin > -kLongestPlace; --begin) number = number || IsDigit(text[begin - 1]);
      if (!number && !IsUpper(text[begin])) continue;
    }
    const bool ends = stop && entry.when != When::kBeforeNumber && entry.when != When::kBeforeName &&
                      StopMayEndSentence(text, length, entry.when == When::kMayEnd);
    std::string words(entry.spoken);
    if (raised) words = Capitalized(words);
    const ptrdiff_t taken = ends ? length : behind;
    return Say(context, taken, words);
  }
  return std::nullopt;
}

std::optional<Edit> SayInitials(const NumberContext& context) {
  const Reader& text = context.text;
  if (text[0] >= 0x80 || !IsLetter(text[0]) || text[1] != '.') return std::nullopt;
  const bool upper = IsUpper(text[0]);
  const auto is_letter = [&](char32_t c) { return c < 0x80 && (upper ? IsUpper(c) : IsLower(c)); };
  ptrdiff_t letters = 1;
  while (letters < 6 && is_letter(text[2 * letters]) && text[2 * letters + 1] == '.') ++letters;
  if (letters < 2 || IsJoined(text[2 * letters])) return std::nullopt;
  std::string words;
  for (ptrdiff_t i = 0; i < letters; ++i) {
    if (i > 0) words += ' ';
    AppendUtf8(upper ? text[2 * i] : text[2 * i] - 'a' + 'A', &words);
  }
  const bool ends = StopMayEndSentence(text, 2 * letters - 1, false);
  return Replace(2 * letters - (ends ? 1 : 0), words);
}

std::optional<Edit> SayRomanNumeral(const NumberContext& context) {
  const Reader& text = context.text;
  if (!context.tongue.spaces || context.Is(TongueId::kKorean)) return std::nullopt;
  const Roman roman = ReadRoman(text);
  if (roman.value == 0) return std::nullopt;
  ptrdiff_t end = roman.length;
  const std::u32string before = text.WordBefore();
  const std::u32string lower = ToLower(before);
  if (context.Is(TongueId::kFrench)) {
    if (auto ordinal = SayFrenchOrdinal(context, roman)) return ordinal;
  }
  if (!IsBoundary(text, end)) return std::nullopt;
  if (CenturyAt(context, end) > 0) {
    const bool russian = context.Is(TongueId::kRussian);
    const bool genitive = russian && text.Has(end + text.Spaces(end), "века");
    const bool locative = russian && text.Has(end + text.Spaces(end), "веке");
    return Say(context, end,
               genitive   ? context.words.ByRules(roman.value, "ordinal-masculine-genitive")
               : locative ? context.words.ByRules(roman.value, "ordinal-masculine-locative")
                          : context.words.Ordinal(roman.value));
  }
  // Nothing else is written like "VIII".
  const bool unmistakable = roman.length > 2 && roman.value < 40 && !text.Has(0, "XXX");
  if (before.empty() || !IsSpace(text[-1])) {
    return unmistakable ? std::optional(Say(context, end, context.words.Cardinal(roman.value))) : std::nullopt;
  }
  const bool chapter =
      std::ranges::any_of(context.tongue.chapter_words, [&](std::string_view word) { return ToUtf32(word) == lower; });
  // The pronoun.
  const bool pronoun = context.Is(TongueId::kEnglish) && roman.length == 1 && roman.value == 1 &&
                       !(chapter && IsUpper(before[0])) && !(chapter && text[end] != ' ');
  if (pronoun) return std::nullopt;
  if (chapter) return Say(context, end, context.words.Cardinal(roman.value));
  const bool capital = IsUpper(before[0]) && before.size() > 1 && IsLower(before[1]);
  if (!capital)
    return unmistakable ? std::optional(Say(context, end, context.words.Cardinal(roman.value))) : std::nullopt;
  if (IsRuler(lower)) {
    // "Heinrich VIII." has the full stop of an ordinal.
    if (context.Is(TongueId::kGerman) && text[end] == '.' && !StopMayEndSentence(text, end, false)) ++end;
    return Say(context, end, RulerWords(context, roman.value, lower));
  }
  constexpr int kMost = 39;
  if (roman.length < 2 || roman.value > kMost || text.Has(0, "XXX")) return std::nullopt;
  return Say(context, end, context.words.Cardinal(roman.value));
}

}  // namespace qtts
