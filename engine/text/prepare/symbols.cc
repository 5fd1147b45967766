// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/symbols.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/emoji_names.h"
#include "text/prepare/footnote.h"

namespace qtts {
namespace {

using View = std::u32string_view;

bool HasCharacter(View set, char32_t c) { return set.find(c) != View::npos; }

constexpr View kStops = U".!?…。！？";
constexpr View kCommas = U",;:，、；：";
constexpr View kPauses = U"()[]{}–—―−|（）［］【】〔〕•‣●▪■◦・·";
constexpr View kQuotes = U"\"“”„‟«»‹›「」『』《》〈〉〝〞〟";
constexpr View kApostrophes = U"'’‘ʼ＇‛`´′";
constexpr View kVanishing = U"*`™®℠\u200D\uFE0F\uFE0E";

bool IsWord(char32_t c) {
  if (c < 0x80) return IsLetter(c) || IsDigit(c);
  constexpr uint32_t kWords = U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK;
  return c <= UCHAR_MAX_VALUE && (U_GET_GC_MASK(static_cast<UChar32>(c)) & kWords) != 0;
}

bool BeginsWord(const Reader& text, ptrdiff_t at) { return text.LetterComes(at) || IsWord(text[at]); }

// Keeps a mark inside of a word or number as it is.
std::optional<Edit> KeepInWord(const Reader& text) {
  const char32_t c = text[0];
  if (!IsWord(text[-1])) return std::nullopt;
  if (HasCharacter(kApostrophes, c) && IsLetter(text[-1]) && IsLetter(text[1]))
    return Edit{Edit::Kind::kRewrite, 1, U"'"};
  if (!IsWord(text[1])) return std::nullopt;
  if (c == '-') return Copy();
  const bool digits = IsDigit(text[-1]) && IsDigit(text[1]);
  if (c == '.' || ((c == ',' || c == ':') && digits)) return Copy();
  return std::nullopt;
}

// Returns the length of a tag of HTML or a comment at `at`; 0 if there is none. `pause`: it begins a new block.
ptrdiff_t TagLength(const Reader& text, ptrdiff_t at, bool* pause) {
  if (text[at] != '<') return 0;
  if (text.Has(at, "<!--")) {
    for (ptrdiff_t i = at + 4; text[i] != Reader::kNone; ++i) {
      if (text.Has(i, "-->")) return i + 3 - at;
    }
    return 0;
  }
  const ptrdiff_t name = at + (text[at + 1] == '/' ? 2 : 1);
  if (!IsLetter(text[name]) || text[name] >= 0x80) return 0;
  constexpr ptrdiff_t kLongest = 200;
  ptrdiff_t end = name;
  while (end < at + kLongest && text[end] != '>' && text[end] != '<' && text[end] != '\n' && text[end] != Reader::kNone)
    ++end;
  if (text[end] != '>') return 0;
  static constexpr std::string_view kBlocks[] = {"br", "p", "li", "div", "td", "tr", "hr", "h1", "h2", "h3"};
  *pause = *pause || std::ranges::any_of(kBlocks, [&](std::string_view block) {
    return text.HasLower(name, block) && !IsWord(text[name + static_cast<ptrdiff_t>(block.size())]);
  });
  return end + 1 - at;
}

// Returns the length of an emoticon such as ":-)" behind white space; 0 if there is none.
ptrdiff_t EmoticonLength(const Reader& text, ptrdiff_t at) {
  const char32_t before = text[at - 1];
  if (!(text[at] == ':' || text[at] == ';' || text[at] == '=') || !(before == Reader::kNone || IsSpace(before)))
    return 0;
  const ptrdiff_t mouth = at + (text[at + 1] == '-' || text[at + 1] == '\'' ? 2 : 1);
  if (HasCharacter(U")(]|\\*", text[mouth])) return mouth + 1 - at;
  return HasCharacter(U"DPpOo/3", text[mouth]) && !IsWord(text[mouth + 1]) ? mouth + 1 - at : 0;
}

// Returns the word of a symbol; empty if it has none.
std::string_view SymbolWord(const Reader& text, ptrdiff_t at, const Tongue& tongue) {
  const SymbolWords& words = tongue.words;
  switch (text[at]) {
    case '&':
    case U'＆':
      return words.and_;
    case '%':
    case U'％':
      return words.percent;
    case U'‰':
      return words.permille;
    case '+':
    case U'＋':
      return words.plus;
    case '=':
    case U'＝':
      return words.equals;
    case U'×':
    case U'⋅':
      return words.times;
    case U'÷':
      return words.divided;
    case U'±':
      return words.plus_minus;
    case U'≠':
      return words.not_equal;
    case U'≈':
      return words.about;
    case U'≤':
      return words.less_equal;
    case U'≥':
      return words.greater_equal;
    case U'°':
      return words.degrees;
    case U'©':
      return words.copyright;
    case U'§':
      return words.section;
    case U'№':
      return words.number;
    case '@':
      return words.at;
    case '<':
      return text[at + 1] == '=' ? words.less_equal : words.less;
    case '>':
      return text[at + 1] == '=' ? words.greater_equal : words.greater;
    case '~':
      return IsWord(text[at + 1]) && !IsWord(text[at - 1]) && text[at - 1] != '~' ? words.about : std::string_view();
    case '#':
      return IsLetter(text[at + 1]) && !IsWord(text[at - 1]) ? words.hashtag : std::string_view();
    default:
      break;
  }
  const auto currency = std::ranges::find_if(tongue.currencies, [&](const CurrencyNames& each) {
    return !each.sign.empty() && CountUtf8(each.sign) == 1 && text.Has(at, each.sign);
  });
  if (currency == tongue.currencies.end()) return {};
  // "2,4 millions €"
  const bool behind_number =
      tongue.id != TongueId::kEnglish && IsSpace(text[at - 1]) && IsWord(text[at - 2]) && !IsWord(text[at + 1]);
  return behind_number ? currency->other : currency->one;
}

// A symbol that is spoken, with its repetitions.
struct SpokenSymbol {
  ptrdiff_t length = 0;
  std::string_view word;
};

SpokenSymbol ReadSymbol(const Reader& text, ptrdiff_t at, const Tongue& tongue) {
  const char32_t c = text[at];
  if (c == Reader::kNone || c == ' ' || IsWord(c)) return {};
  // Arrows; quoting at the beginning of a text; lines of "====".
  if (c == '=' && (text[at + 1] == '>' || text[at - 1] == '=')) return {};
  if (c == '<' && (text[at + 1] == '-' || text[at + 1] == '<')) return {};
  if (c == '>' && (text[at - 1] == '-' || text[at - 1] == '=' || text[at - 1] == '>' || text[at - 1] == Reader::kNone))
    return {};
  const std::string_view word = SymbolWord(text, at, tongue);
  if (word.empty()) return {};
  ptrdiff_t length = 1;
  if ((c == '<' || c == '>') && text[at + 1] == '=') length = 2;
  if (c == '=' || c == '%' || c == '&') {
    while (text[at + length] == c) ++length;
    constexpr ptrdiff_t kLine = 3;
    if (length >= kLine) return {};
  }
  return {length, word};
}

// The separator between two words.
struct Between {
  ptrdiff_t length = 0;
  std::u32string stops;
  char32_t comma = 0;
  bool pause = false;
  bool space = false;
};

// Adds the pause or space that a mark without a word makes.
void AddMark(const Reader& text, ptrdiff_t at, Between* between) {
  const char32_t c = text[at];
  if (HasCharacter(kStops, c)) {
    between->stops += c;
  } else if (HasCharacter(kCommas, c)) {
    if (between->comma == 0) between->comma = c;
  } else if (c == '-' || c == 0x2010 || c == 0x2011) {
    const bool dash = text[at + 1] == '-' || text[at - 1] == '-' || (IsSpace(text[at - 1]) && IsSpace(text[at + 1])) ||
                      text[at - 1] == Reader::kNone;
    (dash && text[at + 1] != '>' ? between->pause : between->space) = true;
  } else if (HasCharacter(kPauses, c)) {
    between->pause = true;
  } else if (!HasCharacter(kQuotes, c) && !HasCharacter(kApostrophes, c) && !HasCharacter(kVanishing, c)) {
    // Skin tones and other modifiers of emoji leave no gap of their own.
    between->space = true;
  }
}

// Spanish sentences begin with marks, too.
bool IsSpanishMark(char32_t c, const Tongue& tongue) {
  return (c == U'¿' || c == U'¡') && tongue.id == TongueId::kSpanish;
}

Between ReadBetween(const Reader& text, const Tongue& tongue, Emoji emoji) {
  Between between;
  ptrdiff_t& at = between.length;
  while (!BeginsWord(text, at) && text[at] != Reader::kNone) {
    if (IsSpace(text[at]) || IsWhiteSpace(text[at])) {
      between.space = true;
      ++at;
      continue;
    }
    ptrdiff_t skip = FootnoteLength(text, at);
    if (skip == 0) skip = TagLength(text, at, &between.pause);
    if (skip == 0) skip = EmoticonLength(text, at);
    if (skip > 0) {
      at += skip;
      continue;
    }
    if (emoji == Emoji::kNames && EmojiLength(text, at) > 0) {
      between.pause = true;  // before the name
      break;
    }
    if (IsSpanishMark(text[at], tongue) || ReadSymbol(text, at, tongue).length > 0) break;
    AddMark(text, at, &between);
    ++at;
  }
  return between;
}

std::u32string StopOf(const std::u32string& stops) {
  for (const char32_t c : View(U"?？!！")) {
    if (HasCharacter(stops, c)) return std::u32string(1, c);
  }
  if (HasCharacter(stops, U'…') || std::ranges::count(stops, U'.') > 1) return U"...";
  return std::u32string(1, stops[0]);
}

// Returns true for full-width marks, which need no space behind them.
bool IsWide(char32_t c) { return c >= 0x3000; }

Edit ReplaceBetween(const Reader& text, const Between& between, const Tongue& tongue) {
  const char32_t last = text.last_spoken();
  const bool begins = last == Reader::kNone;
  const bool ends =
      between.length < Reader::kAhead && !text.LetterComes(between.length) && text[between.length] == Reader::kNone;
  const bool after_mark = HasCharacter(kStops, last) || HasCharacter(kCommas, last);
  std::u32string spoken;
  if (!begins && !after_mark && last != ' ') {
    if (!between.stops.empty()) {
      spoken = StopOf(between.stops);
    } else if (between.comma != 0) {
      spoken = between.comma;
    } else if (between.pause && !ends) {
      spoken = ToUtf32(tongue.comma);
    }
  }
  const bool space = between.space || !spoken.empty() || between.pause;
  if (!begins && !ends && space && last != ' ' && (spoken.empty() || !IsWide(spoken.back()))) spoken += ' ';
  if (spoken == text.Text(0, between.length)) return Copy(between.length);
  return Replace(between.length, std::move(spoken));
}

Edit SayName(const Reader& text, ptrdiff_t length, const Tongue& tongue, std::string_view name) {
  std::string words(name);
  const char32_t last = text.last_spoken();
  if (IsWord(last)) words.insert(0, ", ");
  ptrdiff_t next = length;
  while (IsSpace(text[next])) ++next;
  if (IsWord(text[next])) {
    words.append(tongue.comma).append(" ");
    return Replace(next, words);
  }
  return Replace(length, words);
}

}  // namespace

Edit SymbolsStep::Next(const Reader& text) const {
  const char32_t c = text[0];
  if (IsWord(c)) return Copy();
  if (c == ' ' && IsWord(text[-1]) && BeginsWord(text, 1)) return Copy();
  if (auto kept = KeepInWord(text)) return *std::move(kept);
  const TongueChoice choice = TongueAt(text, choice_);
  const Tongue& tongue = choice.tongue != nullptr ? *choice.tongue : TongueOf(TongueId::kEnglish);
  if (IsSpanishMark(c, tongue)) return Copy();
  const Emoji emoji = tongue.id == TongueId::kEnglish ? emoji_ : Emoji::kSilent;
  const Between between = ReadBetween(text, tongue, emoji);
  if (between.length > 0) return ReplaceBetween(text, between, tongue);
  if (const SpokenSymbol symbol = ReadSymbol(text, 0, tongue); symbol.length > 0) {
    const char32_t last = text.last_spoken();
    std::string words(symbol.word);
    if (tongue.spaces) {
      if (last != Reader::kNone && last != ' ') words.insert(0, " ");
      const bool next_symbol = ReadSymbol(text, symbol.length, tongue).length > 0;
      if (IsWord(text[symbol.length]) && !next_symbol) words += ' ';
    }
    return Replace(symbol.length, words);
  }
  return SayName(text, EmojiLength(text, 0), tongue, EmojiName(text, 0));
}

}  // namespace qtts
