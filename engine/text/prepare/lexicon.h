// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_LEXICON_H_
#define QTTS_TEXT_PREPARE_LEXICON_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/status.h"
#include "qtts/text_preparer.h"
#include "text/prepare/step.h"
#include "text/prepare/tongue.h"

namespace qtts {

// An entry as a file has it.
struct LexiconEntry {
  std::string written;
  std::string spoken;
  std::string language;  // tag; empty: all
};

// Bounds of a lexicon file.
inline constexpr size_t kMaxLexiconBytes = size_t{8} << 20U;
inline constexpr size_t kMaxLexiconEntries = 200000;
inline constexpr size_t kMaxWrittenCharacters = 100;
inline constexpr size_t kMaxSpokenCharacters = 1000;

// Parses a file's content: W3C PLS if it begins with "<", else columns. `name` is for messages.
Result<std::vector<LexiconEntry>> ParseLexicon(std::string_view content, const std::string& name);

// The entries of a lexicon as a tree of characters.
class LexiconTree : public Lexicon {
 public:
  // Entries ahead win over later ones.
  explicit LexiconTree(const std::vector<LexiconEntry>& entries);

  size_t size() const override { return entries_.size(); }

  // Returns the longest entry for the language that the text at position 0 is written like, up to a word's end: how
  // many characters it takes, and what is spoken. 0: none.
  //
  // An entry in small letters stands for its word in any case. An entry with a capital letter stands for just that
  // spelling, which wins over the other.
  std::pair<ptrdiff_t, std::u32string_view> Find(const Reader& text, std::string_view language) const;

 private:
  struct Entry {
    std::u32string written;
    std::u32string spoken;
    std::string language;
    bool any_case = false;
  };
  struct Node {
    std::vector<std::pair<char32_t, uint32_t>> next;  // sorted by character, in lower case
    std::vector<uint32_t> entries;
  };

  void Add(const LexiconEntry& entry);

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;
};

// The step of the lexicon.
class LexiconStep : public Step {
 public:
  LexiconStep(TongueChoice choice, std::string language, std::shared_ptr<const Lexicon> lexicon)
      : choice_(std::move(choice)), language_(std::move(language)), lexicon_(std::move(lexicon)) {}
  Edit Next(const Reader& text) const override;

 private:
  const TongueChoice choice_;
  const std::string language_;  // as requested
  const std::shared_ptr<const Lexicon> lexicon_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_LEXICON_H_
