// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/sentencepiece_model.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qtts {
namespace {

// The protocol-buffer encodings that the model needs. `field` is a field number of sentencepiece_model.proto.
enum WireType : uint32_t { kVarint = 0, kLengthDelimited = 2, kFixed32 = 5 };

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7U) out->push_back(static_cast<char>(value | 0x80U));
  out->push_back(static_cast<char>(value));
}

void PutTag(uint32_t field, WireType type, std::string* out) { PutVarint(field << 3U | type, out); }

// Negative numbers take ten bytes, as the format requires for int32.
void PutInt(uint32_t field, int64_t value, std::string* out) {
  PutTag(field, kVarint, out);
  PutVarint(static_cast<uint64_t>(value), out);
}

void PutFloat(uint32_t field, float value, std::string* out) {
  PutTag(field, kFixed32, out);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (uint32_t shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(bits >> shift));
}

void PutBytes(uint32_t field, std::string_view bytes, std::string* out) {
  PutTag(field, kLengthDelimited, out);
  PutVarint(bytes.size(), out);
  out->append(bytes);
}

enum PieceType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3 };

void PutPiece(std::string_view piece, float score, PieceType type, std::string* out) {
  std::string message;
  PutBytes(1, piece, &message);
  PutFloat(2, score, &message);
  PutInt(3, type, &message);
  PutBytes(1, message, out);
}

}  // namespace

std::string SerializeSentencePieceModel(const Vocabulary& vocabulary) {
  constexpr int64_t kBpe = 2;
  constexpr int64_t kNone = -1;
  constexpr std::string_view kUnknownPiece = "\u2047";  // not in the alphabet, so it differs from every piece
  std::string model;
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const int32_t rank = vocabulary.ranks[id];
    // Control pieces are never the result of a merge.
    const PieceType type = rank == Vocabulary::kUnreachable ? kControl : kNormal;
    PutPiece(vocabulary.pieces[id], -static_cast<float>(rank + 1), type, &model);
  }
  PutPiece(kUnknownPiece, 0.0F, kUnknown, &model);

  std::string trainer;
  PutInt(3, kBpe, &trainer);                                                    // model_type
  PutInt(40, static_cast<int64_t>(vocabulary.pieces.size()), &trainer);         // unk_id
  for (const uint32_t field : {41U, 42U, 43U}) PutInt(field, kNone, &trainer);  // bos_id, eos_id, pad_id
  PutBytes(2, trainer, &model);

  std::string normalizer;
  PutBytes(1, "identity", &normalizer);
  // add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
  for (const uint32_t field : {3U, 4U, 5U}) PutInt(field, 0, &normalizer);
  PutBytes(3, normalizer, &model);
  return model;
}

}  // namespace qtts
