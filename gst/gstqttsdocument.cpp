// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsdocument.h"

#include <algorithm>
#include <utility>

#include "qtts/utf8.h"

namespace gstqtts {
namespace {

// The reason of the whole: the first one that is not a usual end; else whether anything was said.
qtts::EndReason Together(qtts::EndReason before, qtts::EndReason reason) {
  if (before == qtts::EndReason::kNothingToSay) return reason;
  if (before != qtts::EndReason::kComplete || reason == qtts::EndReason::kNothingToSay) return before;
  return reason;
}

}  // namespace

bool Document::Begin() { return !std::exchange(begun_, true); }

std::optional<Report> Document::End(const Outcome& outcome) {
  all_.reason = std::exchange(passed_, true) ? Together(all_.reason, outcome.reason) : outcome.reason;
  all_.frames += outcome.frames;
  all_.samples += outcome.samples;
  all_.spoken = std::max(all_.spoken, outcome.spoken);
  return Pass();
}

std::optional<Report> Document::Pass() {
  if (--parts_ > 0) return std::nullopt;
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = id_;
  report.reason = all_.reason;
  report.frames = all_.frames;
  report.samples = all_.samples;
  report.text_chars = qtts::CountUtf8(text_);
  report.spoken_chars = all_.reason == qtts::EndReason::kComplete ? report.text_chars : all_.spoken;
  return report;
}

}  // namespace gstqtts
