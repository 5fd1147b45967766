// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/lexicon.h"

#include <algorithm>

#include "qtts/language.h"

namespace qtts {
namespace {

// Any white space of an entry or a text is one space, and all apostrophes are the same.
char32_t Unified(char32_t c) {
  if (c != Reader::kNone && IsWhiteSpace(c)) return ' ';
  return c == 0x2019 ? U'\'' : c;
}

char32_t Folded(char32_t c) { return ToLower(Unified(c)); }

// Returns true if an entry of language `entry` is for texts of `text` (tags, or nothing): "en" is for "en-GB", not the
// reverse.
bool IsFor(std::string_view entry, std::string_view text) {
  if (entry.empty()) return true;
  if (text.size() < entry.size() || (text.size() > entry.size() && text[entry.size()] != '-')) return false;
  return std::equal(entry.begin(), entry.end(), text.begin(), [](char a, char b) {
    return ToLower(static_cast<char32_t>(static_cast<unsigned char>(a))) ==
           ToLower(static_cast<char32_t>(static_cast<unsigned char>(b)));
  });
}

// Returns true if the text begins with an entry's written form, in the same case.
bool IsWritten(const Reader& text, std::u32string_view written) {
  for (size_t i = 0; i < written.size(); ++i) {
    if (Unified(text[static_cast<ptrdiff_t>(i)]) != Unified(written[i])) return false;
  }
  return true;
}

}  // namespace

LexiconTree::LexiconTree(const std::vector<LexiconEntry>& entries) : nodes_(1) {
  for (const LexiconEntry& entry : entries) Add(entry);
}

void LexiconTree::Add(const LexiconEntry& entry) {
  uint32_t node = 0;
  Entry added = {ToUtf32(entry.written), ToUtf32(entry.spoken), entry.language, true};
  for (const char32_t c : added.written) {
    added.any_case = added.any_case && ToLower(c) == c;
    const char32_t key = Folded(c);
    auto& next = nodes_[node].next;
    auto place = std::ranges::lower_bound(next, key, {}, &std::pair<char32_t, uint32_t>::first);
    if (place == next.end() || place->first != key) {
      next.insert(place, {key, static_cast<uint32_t>(nodes_.size())});
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      node = place->second;
    }
  }
  nodes_[node].entries.push_back(static_cast<uint32_t>(entries_.size()));
  entries_.push_back(std::move(added));
}

std::pair<ptrdiff_t, std::u32string_view> LexiconTree::Find(const Reader& text, std::string_view language) const {
  std::pair<ptrdiff_t, std::u32string_view> best = {0, {}};
  const Node* node = nodes_.data();
  for (ptrdiff_t length = 0;; ++length) {
    if (!node->entries.empty() && (!IsJoined(text[length - 1]) || !IsJoined(text[length]))) {
      const Entry* found = nullptr;
      for (const uint32_t index : node->entries) {
        const Entry& entry = entries_[index];
        if (!IsFor(entry.language, language)) continue;
        if (IsWritten(text, entry.written)) {
          found = &entry;
          break;
        }
        if (entry.any_case && found == nullptr) found = &entry;
      }
      if (found != nullptr) best = {length, found->spoken};
    }
    if (node->next.empty()) return best;
    const char32_t key = Folded(text[length]);
    const auto next = std::ranges::lower_bound(node->next, key, {}, &std::pair<char32_t, uint32_t>::first);
    if (next == node->next.end() || next->first != key) return best;
    node = &nodes_[next->second];
  }
}

Edit LexiconStep::Next(const Reader& text) const {
  if (IsJoined(text[0]) && IsJoined(text[-1])) return Copy();
  // The language of the text, where it is known: as requested, or as the letters tell.
  const TongueChoice choice = TongueAt(text, choice_);
  const std::string_view language =
      choice.tongue != nullptr ? std::string_view(choice.tag) : std::string_view(language_);
  const auto& tree = static_cast<const LexiconTree&>(*lexicon_);
  const auto [length, spoken] = tree.Find(text, language);
  if (length == 0) return Copy();
  return Replace(length, std::u32string(spoken));
}

}  // namespace qtts
