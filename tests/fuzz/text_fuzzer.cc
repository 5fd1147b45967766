// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as text: repaired, normalized, tokenized whole and fed in pieces.
// Input: one byte of options, then the text.

#include <glib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "qtts/utf8.h"
#include "text/normalizer.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"
#include "text/word_finder.h"

namespace {

using qtts::Tokenizer;
using qtts::TokenizerPattern;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> Load(TokenizerPattern pattern) {
  auto tokenizer = Tokenizer::Load(QTTS_SOURCE_DIR "/data/voice", pattern);
  QTTS_FUZZ_CHECK(tokenizer.ok());
  return *tokenizer;
}

Ids Plain(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.EncodePlain(text);
  QTTS_FUZZ_CHECK(ids.ok());
  return *ids;
}

std::vector<qtts::TextRange> Words(std::string_view text, size_t step) {
  qtts::WordFinder finder;
  for (size_t at = 0; at < text.size(); at += step) finder.Append(text.substr(at, step));
  finder.Finish();
  return finder.Take();
}

Ids Fed(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text, size_t step) {
  qtts::TextFeed feed(tokenizer);
  for (size_t at = 0; at < text.size(); at += step) QTTS_FUZZ_CHECK(feed.Append(text.substr(at, step)).ok());
  QTTS_FUZZ_CHECK(feed.Finish().ok());
  return feed.TakeIds();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto native = Load(TokenizerPattern::kNative);
  static const auto patched = Load(TokenizerPattern::kPatched);
  if (size == 0 || size > Tokenizer::kMaxTextBytes / 2) return 0;
  const auto& tokenizer = (data[0] & 1U) != 0 ? patched : native;
  const size_t step = (data[0] >> 1U) + 1U;
  const std::string text(data + 1, data + size);

  const std::string repaired = qtts::RepairUtf8(text);
  QTTS_FUZZ_CHECK(qtts::RepairUtf8(repaired) == repaired);
  const std::string normalized = qtts::ToNfc(repaired);
  if (repaired.find('\0') == std::string::npos && repaired.size() < 4096) {
    const std::unique_ptr<gchar, decltype(&g_free)> whole(
        g_utf8_normalize(repaired.data(), static_cast<gssize>(repaired.size()), G_NORMALIZE_NFC), g_free);
    QTTS_FUZZ_CHECK(whole != nullptr && normalized == whole.get());
  }

  const Ids ids = Plain(*tokenizer, text);
  std::string decoded;
  for (const int32_t id : ids) decoded += tokenizer->Decode(id);
  QTTS_FUZZ_CHECK(decoded == normalized);
  QTTS_FUZZ_CHECK(tokenizer->Encode(text).ok());
  std::vector<size_t> ends;
  const auto again = tokenizer->EncodePlain(text, &ends);
  QTTS_FUZZ_CHECK(again.ok() && *again == ids && ends.size() == ids.size());
  QTTS_FUZZ_CHECK(std::is_sorted(ends.begin(), ends.end()) && (ends.empty() || ends.back() == text.size()));
  const std::vector<qtts::TextRange> words = Words(text, text.size() + 1);
  QTTS_FUZZ_CHECK(words == Words(text, step));
  size_t spoken = 0;
  for (const qtts::TextRange& word : words) {
    QTTS_FUZZ_CHECK(word.begin >= spoken && word.end > word.begin && word.end <= text.size());
    spoken = word.end;
  }

  const Ids whole = Plain(*tokenizer, "assistant\n" + text);
  QTTS_FUZZ_CHECK(Fed(tokenizer, text, step) == whole);
  QTTS_FUZZ_CHECK(Fed(tokenizer, text, text.size() + 1) == whole);

  // The stable prefix of half of the text keeps its ids.
  const std::string_view part = std::string_view(text).substr(0, text.size() / 2);
  const size_t stable = tokenizer->StablePrefix(part);
  QTTS_FUZZ_CHECK(stable <= part.size());
  Ids parts = Plain(*tokenizer, std::string_view(text).substr(0, stable));
  const Ids rest = Plain(*tokenizer, std::string_view(text).substr(stable));
  parts.insert(parts.end(), rest.begin(), rest.end());
  QTTS_FUZZ_CHECK(parts == ids);
  return 0;
}
