// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Untrusted vocab.json, merges.txt and tokenizer_config.json. Input: one byte that says which file the
// rest stands for; for merges, vocab.json is made to fit, so that most of them get past the first checks.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace {

// vocab.json with the bytes and the results of the merges, even of broken ones.
std::string VocabFor(std::string_view merges) {
  nlohmann::json vocab = nlohmann::json::object();
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) vocab[std::string(qtts::ByteLetter(static_cast<uint8_t>(byte)))] = id++;
  while (!merges.empty()) {
    const std::string_view line = merges.substr(0, merges.find('\n'));
    merges.remove_prefix(std::min(line.size() + 1, merges.size()));
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    std::string piece(line);
    piece.erase(blank, 1);
    if (vocab.emplace(piece, id).second) ++id;
  }
  return vocab.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(data + 1, data + size);
  qtts::VocabularyFiles files;
  files.merges = "a b\nab ab\n";
  files.config = R"({"added_tokens_decoder": {"300": {"content": "<x>"}}})";
  switch (data[0] % 3) {
    case 0:
      files.vocab = rest;
      break;
    case 1:
      files.merges = rest;
      break;
    default:
      files.config = rest;
  }
  if (data[0] % 3 != 0) files.vocab = VocabFor(files.merges);
  const auto tokenizer = qtts::Tokenizer::Create(files);
  if (!tokenizer.ok()) {
    QTTS_FUZZ_CHECK(!tokenizer.status().message().empty() && tokenizer.status().message().size() < 1000);
    return 0;
  }
  // ASCII is in normal form, so decoding returns it for any pieces.
  for (const std::string_view text : {"abababab aab bba <x> \n", "the quick brown fox, aaaaaaa"}) {
    for (const auto& ids : {(*tokenizer)->Encode(text), (*tokenizer)->EncodePlain(text)}) {
      QTTS_FUZZ_CHECK(ids.ok());
      std::string decoded;
      for (const int32_t id : *ids) {
        QTTS_FUZZ_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
        decoded += (*tokenizer)->Decode(id);
      }
      QTTS_FUZZ_CHECK(decoded == text);
    }
  }
  return 0;
}
