// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspoken.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "gstqttsdocument.h"
#include "gstqttstimeline.h"

namespace gstqtts {

void SpokenUtterance::Begin(Utterance next) {
  utterance = std::move(next);
  source_map.Append(utterance.source_map);
}

void SpokenUtterance::Append(std::string_view text) {
  utterance.text.append(text);
  more.append(text);
}

void SpokenUtterance::Append(Utterance more_of_it) {
  source_map.Append(more_of_it.source_map);
  utterance.source.append(more_of_it.source);
  utterance.marks.insert(utterance.marks.end(), more_of_it.marks.begin(), more_of_it.marks.end());
  Append(more_of_it.text);
}

size_t SpokenUtterance::WrittenPosition(size_t position_in_text) const {
  if (source_map.pieces().empty()) return position_in_text;
  const size_t written = source_map.SourceOf(position_in_text, position_in_text).first;
  return utterance.document != nullptr ? utterance.text_offset + written : written;
}

// The marks up to a position in the text.
void SpokenUtterance::AddMarks(size_t position_in_text, uint64_t running_time, std::vector<Report>* reports) {
  for (; marks_told < utterance.marks.size() && utterance.marks[marks_told].text <= position_in_text; ++marks_told) {
    const qtts::MarkupMark& mark = utterance.marks[marks_told];
    Report report;
    report.kind = Report::Kind::kMark;
    report.id = utterance.document != nullptr ? utterance.document->id() : utterance.id;
    report.running_time = running_time;
    report.name = mark.name;
    report.position = mark.position;
    reports->push_back(std::move(report));
  }
}

void SpokenUtterance::AddWords(const std::vector<TextPosition::Word>& words, uint64_t running_time,
                               std::vector<Report>* reports) {
  for (const TextPosition::Word& word : words) {
    AddMarks(word.offset, running_time, reports);
    Report report;
    report.kind = Report::Kind::kProgress;
    report.id = utterance.document != nullptr ? utterance.document->id() : utterance.id;
    report.running_time = running_time;
    report.offset = word.offset;
    report.length = word.length;
    if (!source_map.pieces().empty()) {
      const auto [begin, end] = source_map.SourceOf(word.offset, word.offset + word.length);
      // Several words may be said for what is written once.
      if (begin < told || begin == end) continue;
      told = end;
      report.offset = WrittenPosition(word.offset);
      report.length = end - begin;
    }
    reports->push_back(std::move(report));
  }
}

std::vector<Report> SpokenUtterance::Commit(size_t frame_samples, uint64_t running_time) {
  std::vector<Report> reports;
  Document* const document = utterance.document.get();
  if (frames == 0 && (document == nullptr || document->Begin())) {
    Report started;
    started.id = document != nullptr ? document->id() : utterance.id;
    started.running_time = running_time;
    started.text = document != nullptr ? document->text() : utterance.written();
    started.text_offset = document != nullptr ? 0 : utterance.text_offset;
    started.seed = seed;
    started.first_frame_latency = first_frame_latency;
    reports.push_back(std::move(started));
  }
  ++frames;
  samples += frame_samples;
  last_running_time = running_time;
  last_samples = frame_samples;
  AddWords(position.Advance(seconds()), running_time, &reports);
  return reports;
}

std::vector<Report> SpokenUtterance::Finish(qtts::EndReason reason) {
  std::vector<Report> reports;
  const bool complete = reason == qtts::EndReason::kComplete;
  if (complete && frames > 0) {
    AddWords(position.Advance(std::numeric_limits<double>::infinity()), last_running_time, &reports);
    AddMarks(SIZE_MAX, last_running_time + SampleTime(last_samples, sample_rate), &reports);
  }
  if (utterance.document != nullptr) {
    const size_t last = CountCharacters(utterance.text);
    const size_t spoken = WrittenPosition(complete ? last : frames > 0 ? position.spoken() : 0);
    if (auto report = utterance.document->End({reason, frames, samples, spoken})) reports.push_back(*std::move(report));
    return reports;
  }
  Report report;
  report.id = utterance.id;
  report.kind = Report::Kind::kFinished;
  report.reason = reason;
  report.frames = frames;
  report.samples = samples;
  report.text_chars = CountCharacters(utterance.written());
  report.spoken_chars = complete ? report.text_chars : WrittenPosition(position.spoken());
  reports.push_back(std::move(report));
  return reports;
}

std::optional<Report> FinishedUnspoken(const Utterance& utterance) {
  if (utterance.document != nullptr) {
    if (utterance.text.empty()) return utterance.document->Pass();
    return utterance.document->End({.reason = qtts::EndReason::kCancelled});
  }
  if (utterance.text.empty()) return std::nullopt;  // a gap
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = utterance.id;
  report.reason = qtts::EndReason::kCancelled;
  report.text_chars = CountCharacters(utterance.written());
  return report;
}

}  // namespace gstqtts
