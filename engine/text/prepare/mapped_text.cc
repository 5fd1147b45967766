// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/mapped_text.h"

#include <algorithm>
#include <utility>

namespace qtts {
namespace {

// Returns true if `piece` only goes on with what `last` began, so that the two are one.
bool IsContinued(const TextMapPiece& last, const TextMapPiece& piece) {
  if (last.copied && piece.copied) return true;
  return !last.copied && !piece.copied && piece.source_begin == piece.source_end;
}

}  // namespace

void TextMap::Append(const std::vector<TextMapPiece>& pieces) {
  for (const TextMapPiece& piece : pieces) {
    if (!pieces_.empty() && IsContinued(pieces_.back(), piece)) {
      pieces_.back().spoken_end = piece.spoken_end;
      pieces_.back().source_end = piece.source_end;
    } else {
      pieces_.push_back(piece);
    }
  }
}

std::pair<size_t, size_t> TextMap::SourceOf(size_t begin, size_t end) const {
  const size_t spoken_end = pieces_.empty() ? 0 : pieces_.back().spoken_end;
  const size_t source_end = pieces_.empty() ? 0 : pieces_.back().source_end;
  const auto beyond = [&](size_t spoken) { return source_end + (spoken - spoken_end); };
  // The piece that holds `begin`; pieces without spoken text are passed over.
  const auto first = std::ranges::upper_bound(pieces_, begin, {}, &TextMapPiece::spoken_end);
  if (first == pieces_.end()) return {beyond(std::max(begin, spoken_end)), beyond(std::max(end, spoken_end))};
  const size_t source_begin = first->copied ? first->source_begin + (begin - first->spoken_begin) : first->source_begin;
  if (begin == end) return {source_begin, source_begin};
  const auto last = std::ranges::lower_bound(first, pieces_.end(), end, {}, &TextMapPiece::spoken_end);
  if (last == pieces_.end()) return {source_begin, beyond(end)};
  return {source_begin, last->copied ? last->source_begin + (end - last->spoken_begin) : last->source_end};
}

size_t TextMap::SpokenOf(size_t source) const {
  const auto piece = std::ranges::upper_bound(pieces_, source, {}, &TextMapPiece::source_end);
  if (piece == pieces_.end()) {
    return pieces_.empty() ? source : pieces_.back().spoken_end + (source - pieces_.back().source_end);
  }
  return piece->copied ? piece->spoken_begin + (source - piece->source_begin) : piece->spoken_begin;
}

TextMapPiece* MapBuilder::Continue(bool copied, size_t source_begin) {
  if (prepared_.map.empty()) return nullptr;
  TextMapPiece* const last = &prepared_.map.back();
  const TextMapPiece next = {spoken_, spoken_, source_begin, copied ? source_begin + 1 : source_begin, copied};
  return IsContinued(*last, next) ? last : nullptr;
}

void MapBuilder::Add(const MappedChar& character) {
  AppendUtf8(character.code, &prepared_.spoken);
  if (character.begin > source_) {  // characters that are not spoken
    prepared_.map.push_back({spoken_, spoken_, source_, character.begin, false});
    source_ = character.begin;
  }
  const size_t end = std::max(character.end, source_);
  const bool copied = character.copied && end == source_ + 1;
  TextMapPiece* piece = end == source_ || copied ? Continue(copied, source_) : nullptr;
  if (piece == nullptr) {
    prepared_.map.push_back({spoken_, spoken_, source_, source_, copied});
    piece = &prepared_.map.back();
  }
  piece->spoken_end = ++spoken_;
  piece->source_end = source_ = end;
}

void MapBuilder::Finish(size_t length) {
  if (length > source_) prepared_.map.push_back({spoken_, spoken_, source_, length, false});
  source_ = std::max(source_, length);
}

PreparedText MapBuilder::Take() { return std::exchange(prepared_, {}); }

}  // namespace qtts
