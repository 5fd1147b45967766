// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/generator/tokenizer_files.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/vocabulary/released_tokens.h"

namespace qtts::golden {
namespace {

// The UTF-8 of a code point below U+0800.
std::string Utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

// The byte alphabet in id order: printable bytes stand for themselves and come first, the others
// follow as U+0100, U+0101, …
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  for (int b = 0; b < 256; ++b) {
    if (printable(b)) alphabet.push_back(Utf8(b));
  }
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    if (!printable(b)) alphabet.push_back(Utf8(next++));
  }
  return alphabet;
}

// The merges that build `piece` from its characters, left to right.
void AddChain(const std::vector<std::string>& characters, std::vector<std::pair<std::string, std::string>>* merges) {
  std::string left = characters.front();
  for (size_t i = 1; i < characters.size(); ++i) {
    merges->emplace_back(left, characters[i]);
    left += characters[i];
  }
}

Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  return file ? Status::Ok() : Status::Unreadable(path + ": writing failed");
}

}  // namespace

int Vocabulary::AddedId(const std::string& token) const {
  const auto it = std::find(added.begin(), added.end(), token);
  return 256 + static_cast<int>(merges.size()) + static_cast<int>(it - added.begin());
}

int Vocabulary::PieceId(const std::string& piece) const {
  const auto it =
      std::find_if(merges.begin(), merges.end(), [&](const auto& m) { return m.first + m.second == piece; });
  return 256 + static_cast<int>(it - merges.begin());
}

Vocabulary TinyVocabulary() {
  const std::string space = "\u0120";
  const std::string newline = "\u010A";
  Vocabulary v;
  AddChain({"a", "s", "s", "i", "s", "t", "a", "n", "t"}, &v.merges);
  AddChain({space, "t", "h", "e"}, &v.merges);
  AddChain({space, "a", "n", "d"}, &v.merges);
  AddChain({"i", "n", "g"}, &v.merges);
  AddChain({"e", "r"}, &v.merges);
  AddChain({"u", "s"}, &v.merges);
  AddChain({"us", "er"}, &v.merges);
  AddChain({"o", "n"}, &v.merges);
  AddChain({"o", "u"}, &v.merges);
  AddChain({"H", "e", "l", "l", "o"}, &v.merges);
  AddChain({space, "w", "o", "r", "l", "d"}, &v.merges);
  AddChain({space, "s", "p", "e", "e", "c", "h"}, &v.merges);
  AddChain({"'", "s"}, &v.merges);
  AddChain({space, space}, &v.merges);
  AddChain({newline, newline}, &v.merges);
  AddChain({"\u00C3", "\u00A9"}, &v.merges);            // é
  AddChain({"\u00C3", "\u00BC"}, &v.merges);            // ü
  AddChain({"\u00E4", "\u00BD", "\u0142"}, &v.merges);  // 你
  AddChain({"\u00E5", "\u00A5", "\u00BD"}, &v.merges);  // 好
  v.version_line = true;
  v.added = {"<|endoftext|>", "<|im_start|>",   "<|im_end|>",     "<|audio_start|>",       "<|audio_end|>",
             "<tts_pad>",     "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"};
  return v;
}

Result<Vocabulary> ReleasedVocabulary(const std::string& merges_file) {
  std::ifstream file(merges_file, std::ios::binary);
  if (!file) return Status::NotFound(merges_file + ": cannot be opened");
  Vocabulary v;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || (v.merges.empty() && line.starts_with("#version"))) continue;
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) {
      return Status::CorruptModel(std::string(merges_file).append(": line '").append(line).append("' is not a pair"));
    }
    v.merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  v.added = ReleasedAddedTokens();
  return v;
}

Status WriteTokenizerFiles(const std::string& folder, const Vocabulary& vocabulary) {
  std::string merges = vocabulary.version_line ? "#version: 0.2\n" : "";
  // Written by hand: nlohmann's ordered objects look up every new key from the start.
  std::string vocab = "{";
  int id = 0;
  const auto add_piece = [&](const std::string& piece) {
    if (id != 0) vocab += ',';
    vocab += nlohmann::json(piece).dump() + ":" + std::to_string(id++);
  };
  for (const std::string& character : ByteAlphabet()) add_piece(character);
  for (const auto& [left, right] : vocabulary.merges) {
    merges.append(left).append(" ").append(right).append("\n");
    add_piece(left + right);
  }
  vocab += "}";

  nlohmann::ordered_json decoder;
  nlohmann::ordered_json additional = nlohmann::ordered_json::array();
  for (const std::string& token : vocabulary.added) {
    const bool special = token.find("tool_") == std::string::npos && token.find("think") == std::string::npos &&
                         !token.starts_with("<|fim_") && token != "<|repo_name|>" && token != "<|file_sep|>";
    decoder[std::to_string(id++)] = {{"content", token}, {"lstrip", false},      {"normalized", false},
                                     {"rstrip", false},  {"single_word", false}, {"special", special}};
    if (special && token != "<|endoftext|>") additional.push_back(token);
  }
  const nlohmann::ordered_json config = {{"add_bos_token", false},
                                         {"add_prefix_space", false},
                                         {"added_tokens_decoder", decoder},
                                         {"additional_special_tokens", additional},
                                         {"bos_token", nullptr},
                                         {"clean_up_tokenization_spaces", false},
                                         {"eos_token", "<|im_end|>"},
                                         {"errors", "replace"},
                                         {"model_max_length", 131072},
                                         {"pad_token", "<|endoftext|>"},
                                         {"split_special_tokens", false},
                                         {"tokenizer_class", "Qwen2Tokenizer"},
                                         {"unk_token", nullptr}};
  QTTS_RETURN_IF_ERROR(WriteFile(folder + "/vocab.json", vocab));
  QTTS_RETURN_IF_ERROR(WriteFile(folder + "/merges.txt", merges));
  return WriteFile(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace qtts::golden
