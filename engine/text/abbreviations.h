// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_ABBREVIATIONS_H_
#define QTTS_TEXT_ABBREVIATIONS_H_

#include <string>
#include <string_view>
#include <unordered_set>

namespace qtts {

// Role of a full stop after a word.
enum class FullStopRole {
  kNone,          // not part of an abbreviation: it ends a sentence
  kNever,         // of an abbreviation before another word, "Dr.", "e.g.": it ends none
  kPerhaps,       // of one that may also end a sentence, "Inc.", "U.S.", an initial: the next word decides
  kBeforeNumber,  // of one before a number, "Fig.", "Vol."; otherwise it is an ordinary word
};

// Abbreviations and first words of sentences in a language. Immutable; instances share their tables.
//
// The lists of suppressed sentence breaks in CLDR (ICU has them as "@ss=standard") are extended here, since they lack
// "Dr.", "Jr." and "Corp." of English; and they are reduced by what is an ordinary word, such as "Is." and "All.".
class Abbreviations {
 public:
  // `language`: a BCP-47 tag of a language alone; empty: unknown, then CLDR's English list and the first words of all
  // languages apply.
  explicit Abbreviations(const std::string& language);

  // Returns the role of a full stop behind `word`: UTF-8, without the stop, in the case of the text; the single letters
  // of "z. B" as "z.B".
  FullStopRole Classify(std::string_view word) const;
  // Returns true if `next` is a roman numeral behind such an abbreviation of the class kBeforeNumber: "Vol. II".
  static bool IsNumberAfter(std::string_view word, std::string_view next);
  // Returns true if sentences often begin with `word`, in any case: "The", "However".
  bool BeginsSentence(std::string_view word) const;

 private:
  using Words = std::unordered_set<std::string>;

  const std::string language_;
  const Words& suppressed_;  // CLDR's, without the full stop
  const Words& starters_;
};

// Returns true for an upper-case roman numeral: "IV".
bool IsRomanNumeral(std::string_view word);

}  // namespace qtts

#endif  // QTTS_TEXT_ABBREVIATIONS_H_
