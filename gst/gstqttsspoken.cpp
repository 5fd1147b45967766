// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsspoken.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "gstqttsdocument.h"
#include "qtts/tempo.h"

namespace gstqtts {

namespace {

using std::chrono::nanoseconds;

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

nanoseconds Nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

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
  utterance.written.append(more_of_it.written);
  utterance.marks.insert(utterance.marks.end(), more_of_it.marks.begin(), more_of_it.marks.end());
  Append(more_of_it.text);
}

// Returns the number under which reports tell of it.
uint64_t SpokenUtterance::id() const { return utterance.document != nullptr ? utterance.document->id() : utterance.id; }

// Returns the run of the source of the characters [first, last) of the text.
SpokenUtterance::SourceRun SpokenUtterance::SourceOf(size_t first, size_t last) const {
  SourceRun run;
  if (!source_map.pieces().empty()) {
    std::tie(run.begin, run.end) = source_map.SourceOf(first, last);
  } else if (utterance.sentence != nullptr) {
    run.begin = utterance.sentence->SourcePosition(first);
    run.end = last > first ? utterance.sentence->SourcePosition(last - 1) + 1 : run.begin;
  } else {
    run = {first, last};
  }
  const size_t before = utterance.document != nullptr ? utterance.text_offset : 0;
  return {run.begin + before, run.end + before};
}

// Adds the marks up to a position in the text.
void SpokenUtterance::AddMarks(size_t position_in_text, uint64_t running_time, std::vector<Report>* reports) {
  for (; marks_told < utterance.marks.size() && utterance.marks[marks_told].text <= position_in_text; ++marks_told) {
    const qtts::MarkupMark& mark = utterance.marks[marks_told];
    Report report;
    report.kind = Report::Kind::kMark;
    report.id = id();
    report.running_time = running_time;
    report.name = mark.name;
    report.position = mark.position;
    reports->push_back(std::move(report));
  }
}

size_t SpokenUtterance::frames_wanted() const {
  if (holding || fit || ahead == TextAhead::kSentences) return kMaxHeldFrames;
  if (!measured) return 1;
  return ahead == TextAhead::kWords ? kFramesAhead + kPatienceFrames : kFramesAhead;
}

// Returns true if the next frame may be handed out. Text that grows is not waited for.
bool SpokenUtterance::MayHandOut() const {
  if (end || growing || made.size() >= frames_wanted()) return true;
  if (fit || ahead == TextAhead::kSentences) return false;
  if (ahead == TextAhead::kNone) return true;
  const uint64_t samples_after = handed_out + made.front().pcm.size();
  const auto stop = nanoseconds(static_cast<int64_t>(SampleTime(samples_after, sample_rate)));
  return !measured || track.known_until(stop) >= stop;
}

double SpokenUtterance::RateOf(double usual) {
  if (rate) return *rate;
  const double asked = utterance.settings.rate.value_or(usual) * utterance.markup.rate;
  const double now = std::clamp(asked, qtts::Tempo::kMinRate, qtts::Tempo::kMaxRate);
  if (ahead != TextAhead::kNone) rate = now;
  return now;
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

// Tells `word`, which begins in sound that has left the element.
void SpokenUtterance::Tell(const TimedWord& word, bool estimated, std::vector<Report>* reports, Told* told) {
  const Moment begin = places.At(word.start);
  const Moment stop = places.Expected(word.stop());
  AddMarks(word.begin, begin.running_time, reports);
  told->words.push_back({word.begin, word.end, begin.time, stop.time - begin.time});
  const SourceRun source = SourceOf(word.begin, word.end);
  // Several words may be said for what is written once.
  if (source.begin < told_source || source.begin == source.end) return;
  told_source = source.end;
  Report report;
  report.kind = Report::Kind::kProgress;
  report.id = id();
  report.offset = source.begin;
  report.length = source.end - source.begin;
  report.running_time = begin.running_time;
  report.duration = stop.running_time - begin.running_time;
  report.estimated = estimated;
  reports->push_back(std::move(report));
}

// Replaces the words for the text pads by all that are known, whose sound follows: not live, nothing comes between.
void SpokenUtterance::TellTextPads(Told* told) {
  told->words.clear();
  // Where words later than the sound are heard is not known if that is still to be shaped.
  const bool known = places.planned() || shaper == nullptr || !shaper->changes_sound();
  for (const TimedWord& word : text_track.Take(known ? nanoseconds::max() : places.end())) {
    const Moment begin = places.Expected(word.start);
    told->words.push_back({word.begin, word.end, begin.time, places.Expected(word.stop()).time - begin.time});
  }
  told->over = end.has_value() && known;
}

// Does the same for words that are not measured, once the length of the speech is known.
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

// Tells words that begin before `seconds` by the estimate, as if they began at `at`.
void SpokenUtterance::TellEstimated(double seconds, nanoseconds at, std::vector<Report>* reports, Told* told) {
  for (const TextPosition::Word& word : position.Advance(seconds)) {
    if (word.offset < track.told()) continue;
    Tell({word.offset, word.offset + word.length, at, Nanoseconds(position.SecondsOf(word))}, true, reports, told);
    track.SkipTo(word.offset + word.length);
  }
}

std::vector<Report> SpokenUtterance::Commit(const ShapedSound& sound, const Moment& moment, Told* told) {
  std::vector<Report> reports;
  Document* const document = utterance.document.get();
  if (frames == 0 && (document == nullptr || document->Begin())) {
    Report started;
    started.id = id();
    started.running_time = moment.running_time;
    started.text = document != nullptr ? document->text() : utterance.source();
    started.text_offset = document != nullptr ? 0 : utterance.text_offset;
    started.seed = seed;
    started.first_frame_latency = first_frame_latency;
    reports.push_back(std::move(started));
  }
  if (frames == 0 && utterance.cue.start) {
    lateness = moment.running_time - std::min(moment.running_time, *utterance.cue.start);
  }
  ++frames;
  samples += sound.pcm.size();
  if (stream != nullptr) stream->SetPlayTime(nanoseconds(static_cast<int64_t>(SampleTime(samples, sample_rate))));
  places.Add(sound.spans, sound.pcm.size(), sample_rate, moment);
  if (!sound.spans.empty()) {
    const auto first = static_cast<uint64_t>(sound.spans.front().begin);
    last_frame = nanoseconds(static_cast<int64_t>(SampleTime(first, sample_rate)));
  }
  for (const SoundSpan& span : sound.spans) source_samples += span.end - span.begin;
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
  if (reason == qtts::EndReason::kComplete && frames > 0) {
    AddMarks(SIZE_MAX, places.At(places.end()).running_time, &reports);
  }
  Report report;
  report.kind = Report::Kind::kFinished;
  report.id = id();
  report.reason = reason;
  report.frames = frames;
  report.heard = heard();
  if (utterance.cue.start && utterance.cue.end) {
    report.slot = *utterance.cue.end - std::min(*utterance.cue.end, *utterance.cue.start);
  }
  report.lateness = lateness;
  report.samples = samples;
  report.retries = retries.made();
  report.text_chars = CountCharacters(utterance.source());
  report.estimated = false;
  if (heard_out && end) report.coverage = Coverage();
  const bool whole = reason == qtts::EndReason::kComplete && !report.coverage.stopped_early;
  if (whole && utterance.document == nullptr) {
    report.spoken_chars = report.text_chars;
  } else if (whole || frames > 0) {
    const size_t spoken = whole ? CountCharacters(utterance.text) : SpokenCharacters(&report.estimated);
    report.spoken_chars = SourceOf(spoken, spoken).begin;
  }
  if (utterance.document == nullptr) {
    reports.push_back(std::move(report));
  } else if (auto all = utterance.document->End(report)) {
    reports.push_back(*std::move(all));
  }
  return reports;
}

// Returns the number of characters of the utterance's text that have left the element.
size_t SpokenUtterance::SpokenCharacters(bool* estimated) {
  const nanoseconds sounded = places.end();
  *estimated = !measured || (track.empty() && !end && sounded > track.last().stop());
  if (!*estimated) return track.SpokenAt(sounded);
  if (measured) position.Advance(Seconds(sounded));
  return std::max(track.last().end, position.spoken());
}

ReportedText SpokenUtterance::Reported(const TextPosition::Run& run) const {
  ReportedText text;
  const SourceRun source = SourceOf(run.begin, run.end);
  text.offset = source.begin;
  text.length = source.end - source.begin;
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

std::optional<Report> FinishedUnspoken(const Utterance& utterance) {
  Report report;
  report.kind = Report::Kind::kFinished;
  report.reason = qtts::EndReason::kCancelled;
  report.estimated = false;
  if (utterance.document != nullptr) {
    return utterance.text.empty() ? utterance.document->Pass() : utterance.document->End(report);
  }
  if (utterance.text.empty()) return std::nullopt;  // a gap
  report.id = utterance.id;
  report.text_chars = CountCharacters(utterance.source());
  return report;
}

}  // namespace gstqtts
