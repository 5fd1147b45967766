// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspoken.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gstqttstimeline.h"

namespace gstqtts {

namespace {

using std::chrono::nanoseconds;

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

nanoseconds Nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

void SpokenUtterance::Append(std::string_view text) {
  utterance.text.append(text);
  more.append(text);
}

size_t SpokenUtterance::frames_wanted() const {
  if (holding || ahead == TextAhead::kSentences) return kMaxHeldFrames;
  if (!measured) return 1;
  return ahead == TextAhead::kWords ? kFramesAhead + kPatienceFrames : kFramesAhead;
}

// Text that grows is not waited for.
bool SpokenUtterance::MayHandOut() const {
  if (ahead == TextAhead::kNone || end || growing || made.size() >= frames_wanted()) return true;
  if (ahead == TextAhead::kSentences) return false;
  const uint64_t samples_after = handed_out + made.front().pcm.size();
  const auto stop = nanoseconds(static_cast<int64_t>(SampleTime(samples_after, sample_rate)));
  return !measured || track.known_until(stop) >= stop;
}

void SpokenUtterance::AddMeasured(const std::vector<qtts::SpokenWord>& words) {
  for (const qtts::SpokenWord& word : words) {
    const TextPosition::Run run = position.Written(word.text);
    track.Add({run.begin, run.end, word.start, word.duration}, run.goes_on);
    text_track.Add({run.begin, run.end, word.start, word.duration}, run.goes_on);
  }
}

void SpokenUtterance::ScanFrames() {
  for (; scanned < made.size(); ++scanned) AddMeasured(made[scanned].words);
  if (end) {
    AddMeasured(std::exchange(end->last_words, {}));
    track.Finish();
    text_track.Finish();
  }
}

// `word` begins in sound that has left the element.
void SpokenUtterance::Tell(const TimedWord& word, bool estimated, std::vector<Report>* reports, Told* told) const {
  const Moment begin = places.At(word.start);
  const Moment stop = places.Expected(word.stop());
  Report report;
  report.kind = Report::Kind::kProgress;
  report.id = utterance.id;
  report.offset = utterance.SourcePosition(word.begin);
  report.length = utterance.SourcePosition(word.end - 1) + 1 - report.offset;
  report.running_time = begin.running_time;
  report.duration = stop.running_time - begin.running_time;
  report.estimated = estimated;
  told->words.push_back({word.begin, word.end, begin.time, stop.time - begin.time});
  reports->push_back(std::move(report));
}

// Replaces the words for the text pads by all that are known, whose sound follows: not live, nothing comes between.
void SpokenUtterance::TellTextPads(Told* told) {
  told->words.clear();
  for (const TimedWord& word : text_track.Take(nanoseconds::max())) {
    const Moment begin = places.Expected(word.start);
    told->words.push_back({word.begin, word.end, begin.time, places.Expected(word.stop()).time - begin.time});
  }
  told->over = end.has_value();
}

// The same for words that are not measured, once the length of the speech is known.
void SpokenUtterance::SpreadWords(Told* told) {
  told->words.clear();
  told->over = true;
  if (std::exchange(spread, true)) return;
  uint64_t all = handed_out;
  for (const qtts::Frame& frame : made) all += frame.pcm.size();
  position.SetLength(static_cast<double>(all) / sample_rate);
  for (const TextPosition::Word& word : position.Words()) {
    const nanoseconds from = std::max(Nanoseconds(position.StartOf(word)), places.begin());
    const Moment begin = places.Expected(from);
    const Moment stop = places.Expected(from + Nanoseconds(position.SecondsOf(word)));
    told->words.push_back({word.offset, word.offset + word.length, begin.time, stop.time - begin.time});
  }
}

void SpokenUtterance::TellMeasured(nanoseconds sounded, std::vector<Report>* reports, Told* told) {
  for (const TimedWord& word : track.Take(sounded)) {
    Tell(word, false, reports, told);
    position.Anchor(word.end, Seconds(word.stop()));
  }
}

// Words that begin before `seconds` by the estimate, told as if they began at `at`.
void SpokenUtterance::TellEstimated(double seconds, nanoseconds at, std::vector<Report>* reports, Told* told) {
  for (const TextPosition::Word& word : position.Advance(seconds)) {
    if (word.offset < track.told()) continue;
    Tell({word.offset, word.offset + word.length, at, Nanoseconds(position.SecondsOf(word))}, true, reports, told);
    track.SkipTo(word.offset + word.length);
  }
}

std::vector<Report> SpokenUtterance::Commit(uint64_t sample, size_t count, const Moment& moment, Told* told) {
  std::vector<Report> reports;
  if (frames == 0) {
    Report started;
    started.id = utterance.id;
    started.running_time = moment.running_time;
    started.text = utterance.source();
    started.seed = seed;
    started.first_frame_latency = first_frame_latency;
    reports.push_back(std::move(started));
  }
  ++frames;
  samples += count;
  last_frame = nanoseconds(static_cast<int64_t>(SampleTime(sample, sample_rate)));
  places.Add(sample, count, sample_rate, moment);
  const nanoseconds sounded = places.end();
  nanoseconds known = sounded;
  told->id = utterance.id;
  if (measured) {
    TellMeasured(sounded, &reports, told);
    const nanoseconds overdue = sounded - kPatience;
    if (track.empty() && overdue > places.begin()) TellEstimated(Seconds(overdue), overdue, &reports, told);
    known = std::max(track.known_until(sounded), overdue);
  } else {
    TellEstimated(seconds(), last_frame, &reports, told);
  }
  if (measured && ahead != TextAhead::kNone) {
    if (!growing) known = sounded;
    TellTextPads(told);
  } else if (spread || (ahead == TextAhead::kSentences && end && frames == 1)) {
    SpreadWords(told);
  } else if (!told->words.empty()) {
    text_track.SkipTo(told->words.back().end);
  }
  told->known_until = places.At(known).time;
  if (!told->words.empty()) told->text = utterance.text;
  return reports;
}

std::vector<Report> SpokenUtterance::Finish(qtts::EndReason reason, Told* told) {
  std::vector<Report> reports;
  told->id = utterance.id;
  told->over = true;
  const bool heard_out = reason == qtts::EndReason::kComplete || reason == qtts::EndReason::kMaxDuration ||
                         reason == qtts::EndReason::kRunaway;
  if (heard_out && end && frames > 0) {
    TellMeasured(nanoseconds::max(), &reports, told);
    if (reason == qtts::EndReason::kComplete && !end->report.measured) {
      TellEstimated(std::numeric_limits<double>::infinity(), last_frame, &reports, told);
    }
    told->known_until = places.At(places.end()).time;
  }
  if (spread) told->words.clear();
  if (!told->words.empty()) told->text = utterance.text;
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = utterance.id;
  report.reason = reason;
  report.frames = frames;
  report.samples = samples;
  report.retries = retries.made();
  report.text_chars = CountCharacters(utterance.source());
  report.estimated = false;
  if (heard_out && end) report.coverage = Coverage();
  if (reason == qtts::EndReason::kComplete && !report.coverage.stopped_early) {
    report.spoken_chars = report.text_chars;
  } else if (frames > 0) {
    report.spoken_chars = utterance.SourcePosition(SpokenCharacters(&report.estimated));
  }
  reports.push_back(std::move(report));
  return reports;
}

// Number of characters of the utterance's text that have left the element.
size_t SpokenUtterance::SpokenCharacters(bool* estimated) {
  const nanoseconds sounded = places.end();
  *estimated = !measured || (track.empty() && !end && sounded > track.last().stop());
  if (!*estimated) return track.SpokenAt(sounded);
  if (measured) position.Advance(Seconds(sounded));
  return std::max(track.last().end, position.spoken());
}

ReportedText SpokenUtterance::Reported(const TextPosition::Run& run) const {
  ReportedText text;
  text.offset = utterance.SourcePosition(run.begin);
  if (run.end > run.begin) text.length = utterance.SourcePosition(run.end - 1) + 1 - text.offset;
  text.text = CharacterRange(utterance.text, run.begin, run.end);
  return text;
}

ReportedCoverage SpokenUtterance::Coverage() {
  const qtts::SpeechReport& measured_speech = end->report;
  ReportedCoverage coverage;
  coverage.measured = measured_speech.measured;
  if (!coverage.measured) return coverage;
  coverage.coverage = measured_speech.coverage();
  coverage.end_missed = measured_speech.end_missed;
  coverage.stopped_early = measured_speech.stopped_early;
  for (const qtts::TextRange& range : measured_speech.skipped) {
    coverage.skipped.push_back(Reported(position.Written(range)));
  }
  for (const qtts::TextRange& range : measured_speech.repeated) {
    coverage.repeated.push_back(Reported(position.Written(range)));
  }
  return coverage;
}

Report FinishedUnspoken(const Utterance& utterance) {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = utterance.id;
  report.reason = qtts::EndReason::kCancelled;
  report.text_chars = CountCharacters(utterance.source());
  report.estimated = false;
  return report;
}

}  // namespace gstqtts
