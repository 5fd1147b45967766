// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspoken.h"

#include <limits>
#include <utility>

namespace gstqtts {

namespace {

void AddWords(const std::vector<TextPosition::Word>& words, Report report, std::vector<Report>* reports) {
  report.kind = Report::Kind::kProgress;
  for (const TextPosition::Word& word : words) {
    report.offset = word.offset;
    report.length = word.length;
    reports->push_back(report);
  }
}

}  // namespace

void SpokenUtterance::Append(std::string_view text) {
  utterance.text.append(text);
  more.append(text);
}

std::vector<Report> SpokenUtterance::Commit(size_t frame_samples, uint64_t running_time) {
  std::vector<Report> reports;
  Report report;
  report.id = utterance.id;
  report.running_time = running_time;
  if (frames == 0) {
    Report started = report;
    started.text = utterance.text;
    started.seed = seed;
    started.first_frame_latency = first_frame_latency;
    reports.push_back(std::move(started));
  }
  ++frames;
  samples += frame_samples;
  last_running_time = running_time;
  AddWords(position.Advance(seconds()), std::move(report), &reports);
  return reports;
}

std::vector<Report> SpokenUtterance::Finish(qtts::EndReason reason) {
  std::vector<Report> reports;
  Report report;
  report.id = utterance.id;
  if (reason == qtts::EndReason::kComplete && frames > 0) {
    report.running_time = last_running_time;
    AddWords(position.Advance(std::numeric_limits<double>::infinity()), report, &reports);
    report.running_time = {};
  }
  report.kind = Report::Kind::kFinished;
  report.reason = reason;
  report.frames = frames;
  report.samples = samples;
  report.text_chars = CountCharacters(utterance.text);
  report.spoken_chars = reason == qtts::EndReason::kComplete ? report.text_chars : position.spoken();
  reports.push_back(std::move(report));
  return reports;
}

Report FinishedUnspoken(const Utterance& utterance) {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = utterance.id;
  report.reason = qtts::EndReason::kCancelled;
  report.text_chars = CountCharacters(utterance.text);
  return report;
}

}  // namespace gstqtts
