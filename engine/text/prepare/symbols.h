// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_SYMBOLS_H_
#define QTTS_TEXT_PREPARE_SYMBOLS_H_

#include <utility>

#include "qtts/text_preparer.h"
#include "text/prepare/step.h"
#include "text/prepare/tongue.h"

namespace qtts {

// The step `symbols`: what stands between words becomes one mark of punctuation, a word, or nothing.
//
// - Marks that end sentences stay, repeated ones once. Commas, semicolons and colons stay.
// - Brackets, dashes, bullets, "|": a pause, that is a comma, where no other mark stands; none at both ends of the
// text.
// - Quotation marks, emphasis ("*", "`"), "™", "®", tags, emoticons, footnote marks: silent.
// - "/", "\", "_", arrows and all other symbols: a space.
// - "&", "%", "+", "=", "@", "°", "§", "©", "<", "≈", currency signs and the like: words of the language.
// - Emoji: silent, or their English names.
class SymbolsStep : public Step {
 public:
  SymbolsStep(TongueChoice choice, Emoji emoji) : choice_(std::move(choice)), emoji_(emoji) {}
  Edit Next(const Reader& text) const override;

 private:
  const TongueChoice choice_;
  const Emoji emoji_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_SYMBOLS_H_
