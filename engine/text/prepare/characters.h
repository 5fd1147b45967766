// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_CHARACTERS_H_
#define QTTS_TEXT_PREPARE_CHARACTERS_H_

#include "text/prepare/step.h"

namespace qtts {

// The step `characters`: leaves text that looks the same and has nothing invisible in it.
//
// - White space, control characters and U+FFFD: one space; none at both ends. A blank line or form feed ends a
// sentence.
// - Format characters, such as U+200B, U+FEFF, U+200E and the soft hyphen: nothing. The joiner between emoji stays.
// - ANSI escape sequences: nothing. HTML's character references: the character.
// - A hyphen at a line end before a small letter: nothing, the word is whole again. It stays before a capital letter or
//   a digit, after prefixes such as "self", and where another word follows ("pre-⏎and post-war").
// - Compatibility characters: their plain form (full-width letters, ligatures, mathematical letters, circled numbers,
//   Roman numerals).
class CharactersStep : public Step {
 public:
  // `keep_group_spaces`: a no-break space between digits stays, for the step `numbers`.
  explicit CharactersStep(bool keep_group_spaces) : keep_group_spaces_(keep_group_spaces) {}
  Edit Next(const Reader& text) const override;

 private:
  const bool keep_group_spaces_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_CHARACTERS_H_
