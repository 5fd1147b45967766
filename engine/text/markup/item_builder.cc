// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/item_builder.h"

#include <algorithm>

#include "qtts/utf8.h"

namespace qtts {

void ItemBuilder::Add(const MappedChar& character) {
  if (space_) text_.Add(*std::exchange(space_, std::nullopt));
  text_.Add(character);
  has_text_ = true;
  position_ = std::max(position_, character.end);
  last_ = character.code;
}

void ItemBuilder::Replace(std::string_view spoken, size_t begin, size_t end) {
  for (const char32_t code : ToUtf32(spoken)) {
    if (IsWhiteSpace(code)) {
      AddSpace({code, begin, end, false});
    } else {
      Add({code, begin, end, false});
    }
  }
}

void ItemBuilder::AddSpace(const MappedChar& space) {
  if (last_ == kNone || IsWhiteSpace(last_)) return;
  if (!space_ || (space.code == '\n' && space_->code != '\n')) space_ = space;
}

void ItemBuilder::Space(size_t position, char32_t code) { AddSpace({code, position, position + 1, true}); }
void ItemBuilder::Gap(size_t position, char32_t code) { AddSpace({code, position, position, false}); }

void ItemBuilder::Pause(size_t begin, size_t end) {
  if (last_ == kNone) return;
  space_.reset();
  Replace(", ", begin, end);
}

void ItemBuilder::SetSettings(const MarkupSettings& settings) {
  if (settings == settings_) return;
  FlushText();
  settings_ = settings;
}

void ItemBuilder::FlushText() {
  if (!std::exchange(has_text_, false)) return;
  PreparedText text = text_.Take();
  MarkupItem item;
  item.position = position_;
  item.text = std::move(text.spoken);
  item.map = std::move(text.map);
  item.settings = settings_;
  items_.push_back(std::move(item));
}

void ItemBuilder::EndBlock(SentenceGap gap, size_t position) {
  if (last_ == kNone && gap <= last_gap_) return;
  last_gap_ = gap;
  FlushText();
  last_ = kNone;
  space_.reset();
  MarkupItem item;
  item.kind = MarkupItem::Kind::kBlockEnd;
  item.position = position;
  item.gap = gap;
  items_.push_back(std::move(item));
}

void ItemBuilder::Break(std::chrono::nanoseconds duration, size_t position) {
  FlushText();
  last_ = kNone;
  space_.reset();
  last_gap_ = SentenceGap::kSentence;
  MarkupItem item;
  item.kind = MarkupItem::Kind::kBreak;
  item.position = position;
  item.duration = duration;
  items_.push_back(std::move(item));
}

void ItemBuilder::Mark(std::string name, size_t position) {
  if (space_) {  // it stands before the mark
    text_.Add(*std::exchange(space_, std::nullopt));
    last_ = ' ';
    has_text_ = true;
  }
  FlushText();
  MarkupItem item;
  item.kind = MarkupItem::Kind::kMark;
  item.position = position;
  item.name = std::move(name);
  items_.push_back(std::move(item));
}

void ItemBuilder::Warn(const std::string& warning) {
  if (told_.size() < kMaxWarnings && told_.insert(warning).second) warnings_.push_back(warning);
}

std::vector<MarkupItem> ItemBuilder::Take() {
  FlushText();
  return std::exchange(items_, {});
}

}  // namespace qtts
