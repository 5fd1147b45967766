// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_SAY_AS_H_
#define QTTS_TEXT_MARKUP_SAY_AS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/markup/item_builder.h"

namespace qtts {

// SSML's say-as: how its content is spoken.
struct SayAs {
  std::string kind;      // interpret-as
  std::string format;    // of dates: "mdy"
  std::string language;  // name or tag; empty: English
};

// Returns true for a kind that SpeakAs() knows.
bool KnowsSayAs(std::string_view kind);

// Adds `content` to `items` as it is spoken. Content that is nothing of the kind is added as it is.
void SpeakAs(const SayAs& how, const std::vector<DocumentChar>& content, ItemBuilder* items);

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_SAY_AS_H_
