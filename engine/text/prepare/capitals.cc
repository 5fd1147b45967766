// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/capitals.h"

#include <algorithm>
#include <string>

#include "text/prepare/acronyms.h"

namespace qtts {
namespace {

constexpr ptrdiff_t kMaxCapitals = 40;

bool IsApostropheMark(char32_t c) { return c == '\'' || c == 0x2019; }

// A word in capital letters at a position.
struct CapitalWord {
  ptrdiff_t length = 0;    // of the capital letters; 0: there is no such word
  ptrdiff_t tail = 0;      // of what follows them: "s" of a plural, an apostrophe with letters
  bool loud_tail = false;  // the tail is in capitals, too: "DON'T"
};

CapitalWord ReadWord(const Reader& text, ptrdiff_t at) {
  CapitalWord word;
  while (word.length < kMaxCapitals && IsUpper(text[at + word.length])) ++word.length;
  ptrdiff_t end = at + word.length;
  if (word.length == 0) return word;
  if (text[end] == 's' && word.length >= 2 && !IsLetter(text[end + 1])) {
    word.tail = 1;
  } else if (IsLower(text[end])) {
    return {};
  } else if (IsApostropheMark(text[end]) && IsLetter(text[end + 1])) {
    const ptrdiff_t letters = text.Letters(end + 1, kMaxCapitals);
    word.loud_tail = IsUpper(text[end + 1]);
    word.tail = 1 + letters;
  }
  return word;
}

std::string Ascii(const Reader& text, ptrdiff_t at, ptrdiff_t length) {
  std::string word;
  for (ptrdiff_t i = 0; i < length; ++i) word += text[at + i] < 0x80 ? static_cast<char>(text[at + i]) : '?';
  return word;
}

// Returns true for a word that is a loud one rather than an acronym, as far as it tells by itself.
bool IsLoud(const Reader& text, ptrdiff_t at, const CapitalWord& word, const Tongue& tongue) {
  if (word.length < 2) return false;
  if (word.tail == 1) return false;
  if (word.loud_tail) return true;
  const std::string letters = Ascii(text, at, word.length);
  if (tongue.id != TongueId::kEnglish) {
    constexpr ptrdiff_t kShort = 3;
    return word.length > kShort && !IsSpelledAcronym(letters) && !IsSpokenAcronym(letters);
  }
  if (IsShortWord(letters)) return true;
  return !IsSpelledAcronym(letters) && !IsSpokenAcronym(letters) && IsPronounceable(letters);
}

// Returns the position of the next word behind `at`, if only a space, hyphen or comma stands between.
ptrdiff_t NextWord(const Reader& text, ptrdiff_t at) {
  ptrdiff_t next = at;
  while (IsSpace(text[next]) || text[next] == ',' || text[next] == '-') ++next;
  return next > at && next < at + 4 && IsUpper(text[next]) ? next : 0;
}

// Returns true if the word before or behind is loud.
bool IsAmongLoud(const Reader& text, ptrdiff_t length, const Tongue& tongue) {
  ptrdiff_t end = 0;
  while (end > -4 && (IsSpace(text[end - 1]) || text[end - 1] == ',' || text[end - 1] == '-')) --end;
  if (end < 0 && IsLetter(text[end - 1])) {
    ptrdiff_t begin = end;
    while (begin > end - kMaxCapitals && (IsLetter(text[begin - 1]) || IsApostropheMark(text[begin - 1]))) --begin;
    const CapitalWord word = ReadWord(text, begin);
    if (word.length + word.tail == end - begin && IsLoud(text, begin, word, tongue)) return true;
  }
  const ptrdiff_t next = NextWord(text, length);
  if (next == 0) return false;
  const CapitalWord word = ReadWord(text, next);
  return word.length > 0 && IsLoud(text, next, word, tongue);
}

bool BeginsSentence(const Reader& text) {
  ptrdiff_t before = -1;
  while (IsSpace(text[before])) --before;
  return text[before] == Reader::kNone || text[before] == '.' || text[before] == '!' || text[before] == '?';
}

Edit InLowerCase(const Reader& text, ptrdiff_t length) {
  std::u32string lower = ToLower(text.Text(0, length));
  if (BeginsSentence(text)) lower[0] = text[0];
  // The pronoun.
  if (length > 1 && lower[0] == 'i' && IsApostropheMark(lower[1])) lower[0] = 'I';
  return {Edit::Kind::kRewrite, static_cast<size_t>(length), std::move(lower)};
}

Edit Spell(const Reader& text, const CapitalWord& word) {
  std::u32string letters;
  for (ptrdiff_t i = 0; i < word.length; ++i) {
    if (i > 0) letters += ' ';
    letters += text[i];
  }
  if (word.tail > 0 && !IsApostropheMark(text[word.length])) letters += '\'';  // "P D F's"
  letters += text.Text(word.length, word.tail);
  return Replace(word.length + word.tail, std::move(letters));
}

}  // namespace

Edit CapitalsStep::Next(const Reader& text) const {
  if (!IsUpper(text[0]) || IsLetter(text[-1])) return Copy();
  if (!IsUpper(text[1]) && !(text[0] == 'A' && IsSpace(text[1])) && !(text[0] == 'I' && IsApostropheMark(text[1])))
    return Copy();
  const TongueChoice choice = TongueAt(text, choice_);
  const Tongue& tongue = choice.tongue != nullptr ? *choice.tongue : TongueOf(TongueId::kEnglish);
  if (!tongue.spaces || tongue.id == TongueId::kKorean) return Copy();
  const CapitalWord word = ReadWord(text, 0);
  const ptrdiff_t whole = word.length + word.tail;
  if (word.length == 0 || (IsApostropheMark(text[-1]) && IsLetter(text[-2]))) return Copy();
  const std::string letters = Ascii(text, 0, word.length);
  const bool english = tongue.id == TongueId::kEnglish;
  if (word.length == 1) {  // "THIS IS A TEST", "I'M"
    if (word.loud_tail) return InLowerCase(text, whole);
    return english && text[0] == 'A' && IsAmongLoud(text, 1, tongue) ? InLowerCase(text, 1) : Copy();
  }
  if (letters == "OK" && english) return Replace(2, "okay");
  if (word.loud_tail) return InLowerCase(text, whole);
  const bool spelled = IsSpelledAcronym(letters);
  const bool among = word.tail == 0 && IsAmongLoud(text, word.length, tongue);
  if (spelled && !(among && IsShortWord(letters))) return Spell(text, word);
  if (IsSpokenAcronym(letters)) {
    if (IsKeptAcronym(letters) || !english || word.tail > 0) return Copy(whole);
    // At the beginning of a sentence, too: "Nato" is read like a name.
    return {Edit::Kind::kRewrite, static_cast<size_t>(whole), ToLower(text.Text(0, whole))};
  }
  if (among) return InLowerCase(text, whole);
  if (english) {
    const bool is_word = IsShortWord(letters) || IsPronounceable(letters);
    return is_word ? InLowerCase(text, whole) : Spell(text, word);
  }
  return IsLoud(text, 0, word, tongue) ? InLowerCase(text, whole) : Spell(text, word);
}

}  // namespace qtts
