// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspoken.h"

#include <utility>

namespace gstqtts {

void SpokenUtterance::Append(std::string_view text) {
  utterance.text.append(text);
  if (stream != nullptr) position.Append(text);
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
  report.kind = Report::Kind::kProgress;
  for (const TextPosition::Word& word : position.Advance(seconds())) {
    report.offset = word.offset;
    report.length = word.length;
    reports.push_back(report);
  }
  return reports;
}

Report SpokenUtterance::Finish(qtts::EndReason reason) const {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = utterance.id;
  report.reason = reason;
  report.frames = frames;
  report.samples = samples;
  report.text_chars = CountCharacters(utterance.text);
  report.spoken_chars = reason == qtts::EndReason::kComplete ? report.text_chars : position.spoken();
  return report;
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
