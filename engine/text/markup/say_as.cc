// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/say_as.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "qtts/text_preparer.h"
#include "qtts/utf8.h"
#include "text/prepare/reader.h"
#include "text/prepare/spellout.h"
#include "text/prepare/tongue.h"

namespace qtts {
namespace {

enum class SayAsKind { kCharacters, kDigits, kTelephone, kCardinal, kOrdinal, kDate, kNumbers };

std::optional<SayAsKind> KindOf(std::string_view name) {
  static constexpr std::pair<std::string_view, SayAsKind> kKinds[] = {{"characters", SayAsKind::kCharacters},
                                                                      {"spell-out", SayAsKind::kCharacters},
                                                                      {"verbatim", SayAsKind::kCharacters},
                                                                      {"letters", SayAsKind::kCharacters},
                                                                      {"digits", SayAsKind::kDigits},
                                                                      {"number:digits", SayAsKind::kDigits},
                                                                      {"telephone", SayAsKind::kTelephone},
                                                                      {"cardinal", SayAsKind::kCardinal},
                                                                      {"number", SayAsKind::kCardinal},
                                                                      {"ordinal", SayAsKind::kOrdinal},
                                                                      {"date", SayAsKind::kDate},
                                                                      {"time", SayAsKind::kNumbers},
                                                                      {"fraction", SayAsKind::kNumbers},
                                                                      {"unit", SayAsKind::kNumbers},
                                                                      {"currency", SayAsKind::kNumbers},
                                                                      {"address", SayAsKind::kNumbers}};
  const auto* const found = std::ranges::find(kKinds, name, &std::pair<std::string_view, SayAsKind>::first);
  return found != std::end(kKinds) ? std::optional(found->second) : std::nullopt;
}

struct Speaker {
  const Tongue& tongue;
  TongueChoice choice;
  std::string language;
};

Speaker SpeakerOf(const std::string& language) {
  TongueChoice choice = ChooseTongue(language.empty() ? "en" : language);
  const bool known = choice.tongue != nullptr;
  if (!known) choice = ChooseTongue("en");
  return {*choice.tongue, choice, known ? language : "en"};
}

std::string ContentOf(const std::vector<DocumentChar>& content) {
  std::string text;
  for (const DocumentChar& character : content) AppendUtf8(character.code, &text);
  return std::string(Trim(text));
}

// Returns the name of a sign when it is spelled; empty if it is silent.
std::string_view NameOf(char32_t c, const SymbolWords& words) {
  switch (c) {
    case '+':
      return words.plus;
    case '-':
      return words.dash;
    case '.':
      return words.dot;
    case '/':
      return words.slash;
    case '@':
      return words.at;
    case '_':
      return words.underscore;
    case '#':
      return words.hashtag;
    case '&':
      return words.and_;
    case '%':
      return words.percent;
    case '=':
      return words.equals;
    default:
      return "";
  }
}

char32_t Capital(char32_t c) { return c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c; }

// Spells the characters one by one, with a space between. In a telephone number other signs than "+" are pauses.
void SpellOut(const std::vector<DocumentChar>& content, const Tongue& tongue, bool telephone, ItemBuilder* items) {
  bool pause = false;
  bool first = true;
  for (const DocumentChar& character : content) {
    const char32_t c = character.code;
    const std::string_view name = telephone && c != '+' ? "" : NameOf(c, tongue.words);
    if (!IsLetter(c) && !IsDigit(c) && name.empty()) {
      pause = !first;
      continue;
    }
    const size_t at = character.position;
    if (!first) items->Replace(pause && telephone ? std::string(tongue.comma) + tongue.gap().data() : " ", at, at);
    pause = first = false;
    if (name.empty()) {
      items->Copy(Capital(c), at);
    } else {
      items->Replace(name, at, at + 1);
    }
  }
}

// Spells digits one by one; leaves all else as it is.
void SpellDigits(const std::vector<DocumentChar>& content, ItemBuilder* items) {
  char32_t before = 0;
  for (const DocumentChar& character : content) {
    if (IsDigit(character.code) && IsDigit(before)) items->Replace(" ", character.position, character.position);
    items->Copy(character);
    before = character.code;
  }
}

// Returns a whole number without its separators; empty if the text is none.
std::string DigitsOf(std::string_view text) {
  constexpr size_t kMaxDigits = 18;
  const char separator = text.find(',') != std::string_view::npos   ? ','
                         : text.find('.') != std::string_view::npos ? '.'
                                                                    : ' ';
  std::string digits;
  size_t group = 0;
  bool grouped = false;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      digits += c;
      ++group;
    } else if (c == separator && !digits.empty() && (grouped ? group == 3 : group <= 3)) {
      grouped = true;
      group = 0;
    } else {
      return "";
    }
  }
  return digits.size() <= kMaxDigits && (!grouped || group == 3) ? digits : "";
}

std::string InWords(std::string_view text, const std::string& language) {
  TextPreparerOptions options;
  options.language = language;
  options.steps.characters = options.steps.numbers = true;
  return PrepareText(text, options).spoken;
}

std::string SpeakCardinal(std::string_view text, const Speaker& speaker) {
  const bool negative = text.starts_with('-');
  const std::string digits = DigitsOf(text.substr(negative ? 1 : 0));
  if (digits.empty()) return InWords(text, speaker.language);
  const std::string number = Spellout::For(speaker.tongue.id, speaker.choice.tag).Cardinal(digits);
  return negative ? std::string(speaker.tongue.words.minus) + " " + number : number;
}

std::string SpeakOrdinal(std::string_view text, const Speaker& speaker) {
  const std::string digits = DigitsOf(text.substr(0, text.find_first_not_of("0123456789")));
  if (digits.empty()) return InWords(text, speaker.language);
  return Spellout::For(speaker.tongue.id, speaker.choice.tag).Ordinal(std::stoll(digits));
}

// Returns the numbers of a date by the letters of `format`; a year alone has four digits.
std::string SpeakDate(std::string_view text, std::string_view format, const Speaker& speaker) {
  const bool full = format.size() == 3 && format.find('d') != std::string_view::npos &&
                    format.find('m') != std::string_view::npos && format.find('y') != std::string_view::npos;
  std::vector<std::string> numbers(1);
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      numbers.back() += c;
    } else if (!numbers.back().empty()) {
      numbers.emplace_back();
    }
  }
  if (numbers.size() == 1 && numbers[0].size() == 8 && full) {  // "20240315"
    std::vector<std::string> parts;
    for (size_t i = 0, at = 0; i < format.size(); ++i) {
      const size_t length = format[i] == 'y' ? 4 : 2;
      parts.push_back(numbers[0].substr(at, length));
      at += length;
    }
    numbers = parts;
  }
  constexpr size_t kMaxDigits = 4;
  const bool fits = std::ranges::all_of(
      numbers, [](const std::string& number) { return !number.empty() && number.size() <= kMaxDigits; });
  if (!full || numbers.size() != format.size() || !fits) return InWords(text, speaker.language);
  std::array<int, 3> date = {};  // year, month, day
  for (size_t i = 0; i < format.size(); ++i) {
    const int number = std::stoi(numbers[i]);
    constexpr int kNextCentury = 50;
    const bool short_year = format[i] == 'y' && numbers[i].size() <= 2;
    const int value = short_year ? number + (number < kNextCentury ? 2000 : 1900) : number;
    date[format[i] == 'y' ? 0 : format[i] == 'm' ? 1 : 2] = value;
  }
  std::string iso = std::to_string(date[0]);
  for (size_t i = 1; i < date.size(); ++i) iso += (date[i] < 10 ? "-0" : "-") + std::to_string(date[i]);
  return InWords(iso, speaker.language);
}

}  // namespace

bool KnowsSayAs(std::string_view kind) { return KindOf(kind).has_value(); }

void SpeakAs(const SayAs& how, const std::vector<DocumentChar>& content, ItemBuilder* items) {
  const std::optional<SayAsKind> kind = KindOf(how.kind);
  const std::string text = ContentOf(content);
  if (!kind || text.empty()) {
    for (const DocumentChar& character : content) items->Copy(character);
    return;
  }
  const Speaker speaker = SpeakerOf(how.language);
  std::string spoken;
  switch (*kind) {
    case SayAsKind::kCharacters:
      return SpellOut(content, speaker.tongue, false, items);
    case SayAsKind::kTelephone:
      return SpellOut(content, speaker.tongue, true, items);
    case SayAsKind::kDigits:
      return SpellDigits(content, items);
    case SayAsKind::kCardinal:
      spoken = SpeakCardinal(text, speaker);
      break;
    case SayAsKind::kOrdinal:
      spoken = SpeakOrdinal(text, speaker);
      break;
    case SayAsKind::kDate:
      spoken = SpeakDate(text, how.format, speaker);
      break;
    case SayAsKind::kNumbers:
      spoken = InWords(text, speaker.language);
      break;
  }
  items->Replace(spoken, content.front().position, content.back().position + 1);
}

}  // namespace qtts
