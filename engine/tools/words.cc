// SPDX-License-Identifier: LGPL-2.1-or-later
#include "words.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "qtts/utf8.h"

namespace qtts {
namespace {

double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::string TextOf(const TextRange& range, std::string_view text) {
  const size_t begin = std::min(range.begin, text.size());
  return RepairUtf8(text.substr(begin, std::min(range.end, text.size()) - begin));
}

// Returns "00:00:01.230", with `point` before the milliseconds.
std::string ClockTime(std::chrono::nanoseconds time, char point) {
  const int64_t ms = std::chrono::round<std::chrono::milliseconds>(time).count();
  std::array<char, 40> shown{};
  std::snprintf(shown.data(), shown.size(), "%02lld:%02lld:%02lld%c%03lld", static_cast<long long>(ms / 3600000),
                static_cast<long long>(ms / 60000 % 60), static_cast<long long>(ms / 1000 % 60), point,
                static_cast<long long>(ms % 1000));
  return shown.data();
}

// Escapes a text for a cue: WebVTT has its own meaning for these.
std::string EscapeCue(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Vtt(const WordsOfSpeech& speech) {
  std::string all = "WEBVTT\n";
  for (const SpokenWord& word : speech.words) {
    all += "\n" + ClockTime(word.start, '.') + " --> " + ClockTime(word.start + word.duration, '.') + "\n" +
           EscapeCue(TextOf(word.text, speech.text)) + "\n";
  }
  return all;
}

std::string Srt(const WordsOfSpeech& speech) {
  std::string all;
  for (size_t i = 0; i < speech.words.size(); ++i) {
    const SpokenWord& word = speech.words[i];
    all += std::to_string(i + 1) + "\n" + ClockTime(word.start, ',') + " --> " +
           ClockTime(word.start + word.duration, ',') + "\n" + TextOf(word.text, speech.text) + "\n\n";
  }
  return all;
}

std::string JsonOf(const WordsOfSpeech& speech) {
  return WordsJson(speech).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Returns the file's text. Intervals must cover the whole time, without a gap.
std::string TextGrid(const WordsOfSpeech& speech) {
  struct Interval {
    double begin;
    double end;
    std::string text;
  };
  std::vector<Interval> intervals;
  double at = 0;
  for (const SpokenWord& word : speech.words) {
    const double begin = std::max(Seconds(word.start), at);
    const double end = std::max(Seconds(word.start + word.duration), begin);
    if (begin > at) intervals.push_back({at, begin, ""});
    if (end > begin) intervals.push_back({begin, end, TextOf(word.text, speech.text)});
    at = end;
  }
  const double length = std::max(speech.seconds, at);
  if (length > at || intervals.empty()) intervals.push_back({at, length, ""});
  const auto number = [](double seconds) {
    std::array<char, 40> shown{};
    std::snprintf(shown.data(), shown.size(), "%.6f", seconds);
    return std::string(shown.data());
  };
  std::string all = "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0\nxmax = " + number(length) +
                    "\ntiers? <exists>\nsize = 1\nitem []:\n    item [1]:\n        class = \"IntervalTier\"\n" +
                    "        name = \"words\"\n        xmin = 0\n        xmax = " + number(length) +
                    "\n        intervals: size = " + std::to_string(intervals.size()) + "\n";
  for (size_t i = 0; i < intervals.size(); ++i) {
    std::string text;
    for (const char c : intervals[i].text) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    all += "        intervals [" + std::to_string(i + 1) + "]:\n            xmin = " + number(intervals[i].begin) +
           "\n            xmax = " + number(intervals[i].end) + "\n            text = \"" + text + "\"\n";
  }
  return all;
}

using Formatter = std::string (*)(const WordsOfSpeech&);
constexpr std::pair<std::string_view, Formatter> kFormats[] = {
    {".vtt", Vtt}, {".srt", Srt}, {".json", JsonOf}, {".TextGrid", TextGrid}};

const std::pair<std::string_view, Formatter>* FormatOf(std::string_view path) {
  const auto* const found =
      std::ranges::find_if(kFormats, [path](const auto& format) { return path.ends_with(format.first); });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

Json WordsJson(const WordsOfSpeech& speech) {
  Json words = Json::array();
  for (const SpokenWord& word : speech.words) {
    words.push_back({{"word", TextOf(word.text, speech.text)},
                     {"start", Seconds(word.start)},
                     {"end", Seconds(word.start + word.duration)},
                     {"bytes", {word.text.begin, word.text.end}}});
  }
  return {{"text", speech.text},
          {"seconds", speech.seconds},
          {"words", words},
          {"report", ReportJson(speech.report, speech.text)}};
}

void PrintWords(const WordsOfSpeech& speech) {
  for (const SpokenWord& word : speech.words) {
    std::printf("%8.3f %8.3f  %s\n", Seconds(word.start), Seconds(word.start + word.duration),
                TextOf(word.text, speech.text).c_str());
  }
  const std::string report =
      ReportJson(speech.report, speech.text).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("report   %s\n", report.c_str());
}

void AppendWords(const WordsOfSpeech& utterance, double begin, WordsOfSpeech* all) {
  if (!all->text.empty()) all->text += ' ';
  const size_t before = all->text.size();
  const bool first = before == 0;
  all->text += utterance.text;
  all->seconds = begin + utterance.seconds;
  const auto later = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(begin));
  const auto moved = [before](const TextRange& range) { return TextRange{range.begin + before, range.end + before}; };
  for (const SpokenWord& word : utterance.words) {
    all->words.push_back({moved(word.text), word.start + later, word.duration});
  }
  const SpeechReport& report = utterance.report;
  all->report.measured = report.measured && (first || all->report.measured);
  all->report.tokens += report.tokens;
  all->report.spoken_tokens += report.spoken_tokens;
  std::ranges::transform(report.skipped, std::back_inserter(all->report.skipped), moved);
  std::ranges::transform(report.repeated, std::back_inserter(all->report.repeated), moved);
  all->report.end_missed = all->report.end_missed || report.end_missed;
  all->report.stopped_early = all->report.stopped_early || report.stopped_early;
}

Status CheckWordsFile(const std::string& path) {
  if (FormatOf(path) != nullptr) return Status::Ok();
  return Status::InvalidArgument("--words " + path + ": the name must end in .vtt, .srt, .json or .TextGrid");
}

Status WriteWords(const std::string& path, const WordsOfSpeech& speech) {
  QTTS_RETURN_IF_ERROR(CheckWordsFile(path));
  std::ofstream file(path, std::ios::binary);
  file << FormatOf(path)->second(speech);
  file.close();
  return file ? Status::Ok() : Status::Unreadable("--words " + path + ": cannot be written");
}

Json ReportJson(const SpeechReport& report, std::string_view text) {
  const auto words = [text](const std::vector<TextRange>& ranges) {
    Json list = Json::array();
    for (const TextRange& range : ranges)
      list.push_back({{"word", TextOf(range, text)}, {"bytes", {range.begin, range.end}}});
    return list;
  };
  if (!report.measured) return {{"measured", false}};
  return {{"measured", true},
          {"coverage", report.coverage()},
          {"tokens", report.tokens},
          {"spoken_tokens", report.spoken_tokens},
          {"skipped", words(report.skipped)},
          {"repeated", words(report.repeated)},
          {"end_missed", report.end_missed},
          {"stopped_early", report.stopped_early}};
}

}  // namespace qtts
