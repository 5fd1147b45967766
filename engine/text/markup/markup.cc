// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/markup.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "qtts/language.h"
#include "qtts/text_check.h"
#include "qtts/utf8.h"
#include "text/markup/map_window.h"

namespace qtts {
namespace {

// An utterance that is being put together.
struct Draft {
  std::string text;   // not given out
  size_t length = 0;  // characters of all of it
  size_t begin = 0;   // in the document
  size_t given = 0;   // up to here it was given out
  size_t end = 0;
  MapBuilder map;
  std::vector<MarkupMark> marks;
  SentenceGap before = SentenceGap::kSentence;
  bool after_break = false;
  bool begins = true;  // nothing was given out
};

}  // namespace

struct MarkupSplitter::Impl {
  Impl(const MarkupOptions& options, MarkupUnits how, const Segmenter::Options& given)
      : markup(options), units(how), sentences(given), reader(options) {
    segmenter.SetOptions(sentences);
  }

  std::string Decode(std::string_view text, bool ended);
  void Read(const std::vector<MarkupItem>& items);
  void ReadText(const MarkupItem& item);
  void SwitchSettings(const MarkupSettings& to);
  void Grow(std::string_view text);
  void TakeSentences(bool at_end);
  void AddSentence(const Sentence& sentence);
  void AddCharacter(char32_t c, size_t position);
  void Give(bool ends);
  void EndUnit();
  void GiveMark(const MarkupMark& mark);
  void GiveMarks();
  void DropDraft();

  const MarkupOptions markup;
  const MarkupUnits units;
  Segmenter::Options sentences;
  MarkupReader reader;
  Segmenter segmenter;
  size_t segmented = 0;  // position in the plain text at which the segmenter's text begins
  size_t length = 0;     // characters of the plain text
  size_t said = 0;       // end of the last sentence, in the plain text
  MapWindow map;
  MarkupSettings settings;
  std::deque<std::pair<size_t, MarkupMark>> marks;  // by their position in the plain text; of no part yet
  SentenceGap gap = SentenceGap::kSentence;         // before the next utterance
  bool after_break = false;
  std::optional<Draft> draft;
  std::deque<MarkupPart> parts;
  DocumentWindow document;
  std::string pending;  // an incomplete UTF-8 sequence
  bool finished = false;
};

// Returns the whole characters so far.
std::string MarkupSplitter::Impl::Decode(std::string_view text, bool ended) {
  pending.append(text);
  std::string decoded;
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Utf8Char c = DecodeUtf8(rest);
    if (c.incomplete && !ended) break;
    AppendUtf8(c.code, &decoded);
    rest.remove_prefix(c.size);
  }
  pending.erase(0, pending.size() - rest.size());
  return decoded;
}

// Adds a character of an utterance, at `position` of the plain text.
void MarkupSplitter::Impl::AddCharacter(char32_t c, size_t position) {
  MappedChar source = map.Find(position);
  if (!draft) {
    draft.emplace();
    draft->begin = draft->given = draft->end = source.begin;
    draft->before = std::exchange(gap, SentenceGap::kSentence);
    draft->after_break = std::exchange(after_break, false);
  }
  for (; !marks.empty() && marks.front().first <= position; marks.pop_front()) {
    marks.front().second.text = draft->length;
    draft->marks.push_back(std::move(marks.front().second));
  }
  source.code = c;
  draft->end = std::max(draft->end, source.end);
  source.begin -= std::min(source.begin, draft->begin);
  source.end -= std::min(source.end, draft->begin);
  draft->map.Add(source);
  AppendUtf8(c, &draft->text);
  ++draft->length;
}

// Drops the full stop behind an element, say: nothing to speak, and no utterance.
void MarkupSplitter::Impl::DropDraft() {
  const Draft dropped = *std::exchange(draft, std::nullopt);
  gap = std::max(gap, dropped.before);
  after_break = after_break || dropped.after_break;
  for (const MarkupMark& mark : dropped.marks) GiveMark(mark);
}

// Gives out what is new of the utterance.
void MarkupSplitter::Impl::Give(bool ends) {
  if (!draft || (!ends && draft->text.empty())) return;
  const bool whole = ends && draft->begins && units != MarkupUnits::kGrowing;
  if (whole && !IsSayable(draft->text)) return DropDraft();
  MarkupPart part;
  part.text = std::exchange(draft->text, {});
  part.begin = draft->given;
  part.source = document.Take(draft->given, draft->end);
  part.map = draft->map.Take().map;
  part.marks = std::exchange(draft->marks, {});
  part.settings = settings;
  part.before = draft->before;
  part.after_break = draft->after_break;
  part.begins = std::exchange(draft->begins, false);
  part.ends = ends;
  draft->given = std::max(draft->given, draft->end);
  parts.push_back(std::move(part));
  if (ends) draft.reset();
}

void MarkupSplitter::Impl::AddSentence(const Sentence& sentence) {
  const size_t begin = segmented + sentence.offset;
  const bool long_already = draft && draft->length + CountUtf8(sentence.text) > sentences.max_chars;
  if (sentence.before > SentenceGap::kSentence || long_already) Give(true);
  gap = std::max(gap, sentence.before);
  if (draft && begin > said) AddCharacter(U' ', said);  // sentences of a block are apart if they were
  size_t position = 0;
  for (std::string_view rest = sentence.text; !rest.empty(); ++position) {
    const Utf8Char c = DecodeUtf8(rest);
    rest.remove_prefix(c.size);
    AddCharacter(c.code, begin + sentence.SourcePosition(position));
  }
  said = begin + CountUtf8(sentence.source);
  if (units == MarkupUnits::kSentences) Give(true);
}

void MarkupSplitter::Impl::TakeSentences(bool at_end) {
  while (const auto sentence = at_end ? segmenter.NextAtEnd() : segmenter.Next()) AddSentence(*sentence);
}

// Ends the utterance.
void MarkupSplitter::Impl::EndUnit() {
  if (units != MarkupUnits::kGrowing) {
    TakeSentences(true);
    segmenter.Clear();
    segmented = length;
  }
  Give(true);
}

void MarkupSplitter::Impl::GiveMark(const MarkupMark& mark) {
  MarkupPart part;
  part.kind = MarkupPart::Kind::kMark;
  part.begin = mark.position;
  part.name = mark.name;
  parts.push_back(std::move(part));
}

// Gives out the marks behind an utterance.
void MarkupSplitter::Impl::GiveMarks() {
  for (; !marks.empty(); marks.pop_front()) GiveMark(marks.front().second);
}

void MarkupSplitter::Impl::SwitchSettings(const MarkupSettings& to) {
  if (to == settings) return;
  EndUnit();  // marks ahead of the switch belong to what follows
  settings = to;
  Segmenter::Options options = sentences;
  if (!settings.language.empty()) options.language = ResolveLanguage(settings.language).tag;
  segmenter.SetOptions(options);
}

// Adds text of an utterance that is given out as it comes.
void MarkupSplitter::Impl::Grow(std::string_view text) {
  for (size_t position = length; !text.empty(); ++position) {
    const Utf8Char c = DecodeUtf8(text);
    text.remove_prefix(c.size);
    const bool blank = IsWhiteSpace(c.code);
    if (draft && draft->length >= sentences.max_chars) Give(true);
    if (!draft && blank) continue;
    AddCharacter(c.code == '\n' ? U' ' : c.code, position);
  }
}

void MarkupSplitter::Impl::ReadText(const MarkupItem& item) {
  SwitchSettings(item.settings);
  map.Append(item.map);
  if (units == MarkupUnits::kGrowing) {
    Grow(item.text);
  } else {
    segmenter.Append(item.text);
  }
  length += CountUtf8(item.text);
  if (units == MarkupUnits::kGrowing) {
    Give(false);
  } else {
    TakeSentences(false);
  }
}

void MarkupSplitter::Impl::Read(const std::vector<MarkupItem>& items) {
  for (const MarkupItem& item : items) {
    switch (item.kind) {
      case MarkupItem::Kind::kText:
        ReadText(item);
        break;
      case MarkupItem::Kind::kBlockEnd:
        EndUnit();
        GiveMarks();
        gap = std::max(gap, item.gap);
        break;
      case MarkupItem::Kind::kMark:
        marks.emplace_back(length, MarkupMark{0, item.position, item.name});
        break;
      case MarkupItem::Kind::kBreak: {
        EndUnit();
        GiveMarks();
        MarkupPart part;
        part.kind = MarkupPart::Kind::kBreak;
        part.begin = item.position;
        part.duration = item.duration;
        parts.push_back(std::move(part));
        after_break = true;
        break;
      }
    }
  }
}

MarkupSplitter::MarkupSplitter(const MarkupOptions& options, MarkupUnits units, const Segmenter::Options& sentences)
    : impl_(std::make_unique<Impl>(options, units, sentences)) {}
MarkupSplitter::~MarkupSplitter() = default;
MarkupSplitter::MarkupSplitter(MarkupSplitter&&) noexcept = default;
MarkupSplitter& MarkupSplitter::operator=(MarkupSplitter&&) noexcept = default;

Status MarkupSplitter::Append(std::string_view text) {
  const std::string decoded = impl_->Decode(text, false);
  impl_->document.Append(decoded);
  QTTS_RETURN_IF_ERROR(impl_->reader.Append(decoded));
  impl_->Read(impl_->reader.Take());
  return Status::Ok();
}

void MarkupSplitter::Finish() {
  if (std::exchange(impl_->finished, true)) return;
  const std::string last = impl_->Decode("", true);
  impl_->document.Append(last);
  (void)impl_->reader.Append(last);
  impl_->reader.Finish();
  impl_->Read(impl_->reader.Take());
  impl_->EndUnit();
  impl_->GiveMarks();
}

void MarkupSplitter::ReadWhole(std::string_view document) {
  const std::string repaired = impl_->Decode(document, true);
  if (impl_->markup.markup != Markup::kMarkdown) {
    (void)Append(repaired);
    return Finish();
  }
  impl_->finished = true;
  impl_->document.Append(repaired);
  std::vector<std::string> warnings;
  impl_->Read(ReadMarkup(repaired, impl_->markup, &warnings));
  impl_->EndUnit();
  impl_->GiveMarks();
}

void MarkupSplitter::EndUtterance() { impl_->EndUnit(); }

std::optional<MarkupPart> MarkupSplitter::Next() {
  if (impl_->parts.empty()) return std::nullopt;
  MarkupPart part = std::move(impl_->parts.front());
  impl_->parts.pop_front();
  return part;
}

bool MarkupSplitter::idle() const { return !impl_->draft && impl_->parts.empty() && impl_->segmenter.empty(); }

std::vector<std::string> MarkupSplitter::TakeWarnings() { return impl_->reader.TakeWarnings(); }

}  // namespace qtts
