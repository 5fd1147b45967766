// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsdocument.h"

#include <algorithm>
#include <utility>

#include "qtts/utf8.h"

namespace gstqtts {
namespace {

// Returns the reason of the whole: the first one that is not a usual end; else whether anything was said.
qtts::EndReason Together(qtts::EndReason before, qtts::EndReason reason) {
  if (before == qtts::EndReason::kNothingToSay) return reason;
  if (before != qtts::EndReason::kComplete || reason == qtts::EndReason::kNothingToSay) return before;
  return reason;
}

// Adds the coverage of an utterance with `characters`, which counts by them. Unmeasured utterances are left out.
void AddCoverage(const ReportedCoverage& part, size_t characters, size_t* all_characters, ReportedCoverage* all) {
  if (!part.measured) return;
  const auto before = static_cast<double>(std::exchange(*all_characters, *all_characters + characters));
  const auto after = static_cast<double>(std::max<size_t>(*all_characters, 1));
  all->coverage = (all->coverage * before + part.coverage * static_cast<double>(characters)) / after;
  all->measured = true;
  all->skipped.insert(all->skipped.end(), part.skipped.begin(), part.skipped.end());
  all->repeated.insert(all->repeated.end(), part.repeated.begin(), part.repeated.end());
  all->end_missed = all->end_missed || part.end_missed;
  all->stopped_early = all->stopped_early || part.stopped_early;
}

}  // namespace

bool Document::Begin() { return !std::exchange(begun_, true); }

std::optional<Report> Document::End(const Report& part) {
  all_.reason = std::exchange(passed_, true) ? Together(all_.reason, part.reason) : part.reason;
  all_.frames += part.frames;
  all_.samples += part.samples;
  all_.heard += part.heard;
  all_.retries += part.retries;
  all_.spoken_chars = std::max(all_.spoken_chars, part.spoken_chars);
  all_.estimated = part.estimated;
  AddCoverage(part.coverage, part.text_chars, &measured_chars_, &all_.coverage);
  return Pass();
}

std::optional<Report> Document::Pass() {
  if (--parts_ > 0) return std::nullopt;
  Report report = all_;
  report.kind = Report::Kind::kFinished;
  report.id = id_;
  report.text_chars = qtts::CountUtf8(text_);
  if (report.reason == qtts::EndReason::kComplete && !report.coverage.stopped_early) {
    report.spoken_chars = report.text_chars;
  }
  return report;
}

}  // namespace gstqtts
