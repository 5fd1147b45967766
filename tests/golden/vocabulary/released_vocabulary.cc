// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/vocabulary/released_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vocabulary/released_tokens.h"
#include "text/byte_alphabet.h"

namespace qtts {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (text.empty()) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::abort();
  }
  return text;
}

// JSON spells only quotation marks and backslashes in another way: the alphabet has no control characters.
void AppendEntry(std::string_view piece, size_t id, std::string* json) {
  if (json->size() > 1) *json += ',';
  *json += '"';
  for (const char c : piece) {
    if (c == '"' || c == '\\') *json += '\\';
    *json += c;
  }
  *json += "\":" + std::to_string(id);
}

}  // namespace

VocabularyFiles MakeVocabulary(const std::string& merges, const std::vector<std::string>& added) {
  VocabularyFiles files;
  files.merges = merges;
  files.vocab = "{";
  size_t id = 0;
  for (const bool printable : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string_view letter = ByteLetter(static_cast<uint8_t>(byte));
      // A printable byte stands for itself, so its letter lies below U+0100.
      const bool is_printable = static_cast<uint8_t>(letter.front()) < 0xC4;
      if (is_printable == printable) AppendEntry(letter, id++, &files.vocab);
    }
  }
  std::string_view rest(merges);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string piece(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t blank = piece.find(' ');
    if (blank == std::string::npos) continue;
    piece.erase(blank, 1);
    AppendEntry(piece, id++, &files.vocab);
  }
  files.vocab += "}";
  nlohmann::json tokens = nlohmann::json::object();
  for (const std::string& content : added) {
    tokens[std::to_string(id++)] = {{"content", content}, {"lstrip", false},      {"normalized", false},
                                    {"rstrip", false},    {"single_word", false}, {"special", true}};
  }
  files.config = nlohmann::json{{"added_tokens_decoder", tokens}}.dump();
  return files;
}

VocabularyFiles ReleasedVocabulary() {
  return MakeVocabulary(Slurp(QTTS_SOURCE_DIR "/tests/golden/vocabulary/merges.txt"), golden::ReleasedAddedTokens());
}

}  // namespace qtts
