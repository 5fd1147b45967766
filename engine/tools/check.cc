// SPDX-License-Identifier: LGPL-2.1-or-later
#include "check.h"

#include <glib.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "build_config.h"
#include "checkpoint/checkpoint.h"
#include "print_json.h"
#include "prompt/prompt.h"
#include "qtts/engine.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"

namespace qtts {
namespace {

using CheckClock = std::chrono::steady_clock;

// Must be those of tests/golden/official-check.py.
constexpr const char* kReportFormat = "qtts-check-1";
constexpr const char* kReportText = "Hello there. This sentence is the same for everyone: 13 words, no more.";
constexpr const char* kReportInstruct = "A calm and clear voice.";
constexpr const char* kReportLines[] = {
    "Hello, world.",
    "It's 5 o'clock; the iPhone's at 100% (really).",
    "Grüße aus Köln, schöne Wörter!",
    "你好，今天天气很好。",
    "これはテストです。 안녕하세요?",
    "<|im_start|>assistant\nHello there.<|im_end|>\n<|im_start|>assistant\n",
};
constexpr int kReportFrames = 16;
constexpr size_t kPickedStep = 997;  // samples between those that the report holds

// Largest difference of a sample in F32, of full scale (doc/exactness.md).
constexpr double kSampleTolerance = 2e-5;
// A greedy choice by less than this part of the largest logit depends on the order of summation.
constexpr double kClearMargin = 5e-6;

double SecondsFrom(CheckClock::time_point start) {
  return std::chrono::duration<double>(CheckClock::now() - start).count();
}

// Returns a vector with the same F32 values everywhere. Timbre does not matter for a comparison.
std::vector<float> ReportXVector(int size) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(std::max(size, 0)));
  for (int i = 0; i < size; ++i) values.push_back(static_cast<float>(i * 37 % 129 - 64) / 64.0F);
  return values;
}

Request MakeReportRequest(const ModelInfo& info, int hidden_size) {
  Request request;
  request.text = kReportText;
  request.language = std::ranges::count(info.languages, "english") > 0 ? "english" : "auto";
  if (info.type == ModelType::kCustomVoice && !info.speakers.empty()) request.speaker = info.speakers.front();
  if (info.type == ModelType::kVoiceDesign) request.instruct = kReportInstruct;
  if (info.type == ModelType::kBase) {
    ClonedVoice voice;
    voice.x_vector = ReportXVector(hidden_size);
    request.voice = std::make_shared<const ClonedVoice>(std::move(voice));
  }
  request.settings = info.defaults;
  request.settings.talker.do_sample = request.settings.predictor.do_sample = false;
  request.max_frames = kReportFrames;
  request.settings.max_new_tokens = kReportFrames + 1;  // N ids make N - 1 frames (spec 6)
  return request;
}

Json ReportModel(const Checkpoint& checkpoint) {
  const ModelInfo info = checkpoint.Info();
  const ModelConfig& config = checkpoint.config();
  return {{"type", ModelTypeName(info.type)},
          {"size", info.size},
          {"dtype", info.dtype},
          {"fingerprint", info.fingerprint},
          {"talker_layers", config.talker.transformer.num_layers},
          {"talker_hidden_size", config.talker.transformer.hidden_size},
          {"predictor_layers", config.predictor.transformer.num_layers},
          {"code_groups", info.code_groups},
          {"talker_parameters", info.talker_parameters},
          {"codec_parameters", info.codec_parameters},
          {"weight_bytes", info.weight_bytes}};
}

Json ReportRequest(const Request& request, bool streaming) {
  return {{"text", request.text},
          {"speaker", request.speaker},
          {"language", request.language},
          {"instruct", request.instruct},
          {"layout", streaming ? "streaming" : "non-streaming"},
          {"frames", kReportFrames},
          {"lines", kReportLines}};
}

Result<Json> ReportTokens(const Tokenizer& tokenizer) {
  Json tokens = Json::array();
  for (const char* const line : kReportLines) {
    QTTS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(line));
    tokens.push_back(ids);
  }
  return tokens;
}

std::string Sha256(const std::string& text) {
  const std::unique_ptr<gchar, decltype(&g_free)> sum(
      g_compute_checksum_for_data(G_CHECKSUM_SHA256, reinterpret_cast<const guchar*>(text.data()), text.size()),
      g_free);
  return sum.get();
}

// Returns [text id, codec id]; null for an absent side, "x_vector" for the voice.
Json ReportRow(const PromptRow& row) {
  Json codec;
  if (row.x_vector) codec = "x_vector";
  if (row.codes.size() == 1) codec = row.codes[0];
  return Json::array({row.text_id == kNoText ? Json() : Json(row.text_id), codec});
}

Result<Json> ReportPrompt(const Checkpoint& checkpoint, const std::shared_ptr<const Tokenizer>& tokenizer,
                          const Request& request) {
  QTTS_ASSIGN_OR_RETURN(const PromptBuilder prompts, PromptBuilder::Create(checkpoint.config(), tokenizer));
  TextFeed feed(tokenizer);
  QTTS_RETURN_IF_ERROR(feed.AppendLast(request.text));
  QTTS_ASSIGN_OR_RETURN(Prompt prompt, prompts.Build(request, feed.TakeIds(), true));
  // The official package may end the trailing text with padding, which changes no input.
  while (!prompt.trailing_text.empty() && prompt.trailing_text.back() == prompt.pad_text_id) {
    prompt.trailing_text.pop_back();
  }
  Json rows = Json::array();
  for (const PromptRow& row : prompt.rows) rows.push_back(ReportRow(row));
  return Json{{"sha256", Sha256(rows.dump())}, {"rows", rows}, {"trailing_text", prompt.trailing_text}};
}

Json ReportSamples(const std::vector<float>& samples, size_t samples_per_frame) {
  Json picked = Json::array();
  for (size_t i = 0; i < samples.size(); i += kPickedStep) picked.push_back(samples[i]);
  Json sums = Json::array();
  Json absolute_sums = Json::array();
  for (size_t begin = 0; begin < samples.size(); begin += samples_per_frame) {
    double sum = 0;
    double absolute_sum = 0;
    for (size_t i = begin; i < std::min(begin + samples_per_frame, samples.size()); ++i) {
      sum += samples[i];
      absolute_sum += std::abs(samples[i]);
    }
    sums.push_back(sum);
    absolute_sums.push_back(absolute_sum);
  }
  return {{"count", samples.size()}, {"picked", picked}, {"sums", sums}, {"absolute_sums", absolute_sums}};
}

int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Speaks the request with an engine of its own.
Result<Json> ReportRun(const EngineOptions& options, const Request& request) {
  const auto load_start = CheckClock::now();
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(options));
  const double load_seconds = SecondsFrom(load_start);
  if (!engine->passed_over().empty()) std::cerr << "qtts-tool: warning: " << engine->passed_over() << '\n';
  const auto start = CheckClock::now();
  QTTS_ASSIGN_OR_RETURN(const auto stream, engine->Start(request));
  Json codes = Json::array();
  std::vector<float> samples;
  double first_seconds = 0;
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    if (codes.empty()) first_seconds = SecondsFrom(start);
    codes.push_back(frame.codes);
    samples.insert(samples.end(), frame.pcm.begin(), frame.pcm.end());
  }
  QTTS_RETURN_IF_ERROR(stream->status());
  return Json{{"device", engine->device_name()},
              {"precision", PrecisionName(options.precision)},
              {"codes", codes},
              {"samples", ReportSamples(samples, static_cast<size_t>(engine->info().samples_per_frame))},
              {"seconds", {{"load", load_seconds}, {"first_frame", first_seconds}, {"all", SecondsFrom(start)}}},
              {"peak_memory_bytes", PeakMemory()},
              {"device_memory_bytes", engine->occupancy().device_bytes}};
}

// Runs on the CPU in F32, and then on the device and in the precision that the user has named.
Result<Json> ReportRuns(const ToolOptions& options, const Request& request) {
  QTTS_ASSIGN_OR_RETURN(const EngineOptions chosen, MakeEngineOptions(options, options.arguments[0]));
  EngineOptions reference = chosen;
  reference.device = Device::kCpu;
  reference.precision = Precision::kF32;
  Json runs = Json::array();
  QTTS_ASSIGN_OR_RETURN(Json run, ReportRun(reference, request));
  runs.push_back(std::move(run));
  const bool named = !options.device.empty() || !options.precision.empty();
  if (named && !(chosen == reference)) {
    QTTS_ASSIGN_OR_RETURN(Json other, ReportRun(chosen, request));
    runs.push_back(std::move(other));
  }
  return runs;
}

Json ReportVersions() {
  utsname system{};
  uname(&system);
  return {{"qtts-tool", QTTS_VERSION},
          {"compiler", __VERSION__},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine}};
}

Result<Json> MakeReport(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const TokenizerPattern pattern, PatternOf(options));
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  QTTS_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(folder, pattern));
  const ModelInfo info = checkpoint->Info();
  const Request request = MakeReportRequest(info, checkpoint->config().talker.transformer.hidden_size);
  QTTS_ASSIGN_OR_RETURN(const Json tokens, ReportTokens(*tokenizer));
  QTTS_ASSIGN_OR_RETURN(const Json prompt, ReportPrompt(*checkpoint, tokenizer, request));
  QTTS_ASSIGN_OR_RETURN(const Json runs, ReportRuns(options, request));
  return Json{{"format", kReportFormat},
              {"versions", ReportVersions()},
              {"model", ReportModel(*checkpoint)},
              {"pattern", pattern == TokenizerPattern::kPatched ? "patched" : "native"},
              {"request", ReportRequest(request, info.type == ModelType::kBase)},
              {"tokens", tokens},
              {"prompt", prompt},
              {"runs", runs}};
}

// --- Comparison

// Compares two values of JSON and names the first difference.
class Comparison {
 public:
  // `labels`: names of the levels of nested arrays. An array below them is one value. `tolerance`: of numbers.
  Comparison(std::vector<std::string> labels, double tolerance) : labels_(std::move(labels)), tolerance_(tolerance) {}

  // Returns "frame 3, group 0: 12 here, 13 in the file"; nothing if they are equal. A null in `theirs` is unknown there
  // and equals everything. Two objects are compared by their common keys.
  std::optional<std::string> FirstDifference(const Json& mine, const Json& theirs, size_t level = 0) const {
    if (theirs.is_null()) return std::nullopt;
    if (mine.is_object() && theirs.is_object()) return InObjects(mine, theirs, level);
    if (level < labels_.size() && mine.is_array() && theirs.is_array()) return InArrays(mine, theirs, level);
    const bool close =
        mine.is_number() && theirs.is_number() && std::abs(mine.get<double>() - theirs.get<double>()) <= tolerance_;
    if (close || mine == theirs) return std::nullopt;
    return Dump(mine) + " here, " + Dump(theirs) + " in the file";
  }

 private:
  static std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

  static std::string Place(const std::string& place, const std::string& inner) {
    return place + (inner.find(" here, ") < inner.find(": ") ? ": " : ", ") + inner;
  }

  std::optional<std::string> InObjects(const Json& mine, const Json& theirs, size_t level) const {
    for (const auto& [key, value] : mine.items()) {
      if (!theirs.contains(key)) continue;
      if (const auto inner = FirstDifference(value, theirs[key], level)) return Place(key, *inner);
    }
    return std::nullopt;
  }

  std::optional<std::string> InArrays(const Json& mine, const Json& theirs, size_t level) const {
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
      if (const auto inner = FirstDifference(mine[i], theirs[i], level + 1)) {
        return Place(labels_[level] + " " + std::to_string(i), *inner);
      }
    }
    if (mine.size() == theirs.size()) return std::nullopt;
    return labels_[level] + "s: " + std::to_string(mine.size()) + " here, " + std::to_string(theirs.size()) +
           " in the file";
  }

  std::vector<std::string> labels_;
  double tolerance_;
};

constexpr const char* kMissing = "missing in the file";

struct ComparedPart {
  const char* name;
  const char* pointer;  // JSON pointer, in the report or in a run of it
  std::vector<std::string> labels;
  double tolerance = 0;
};

// Adds the outcome of one part to `rows`. Returns true if it is equal.
bool Compare(const ComparedPart& part, const std::string& name, const Json& mine, const Json& theirs, Json* rows) {
  const Json::json_pointer pointer(part.pointer);
  Json row = {{"part", name}};
  if (!theirs.contains(pointer)) {
    row["equal"] = false;
    row["difference"] = kMissing;
    rows->push_back(row);
    return false;
  }
  const auto difference = Comparison(part.labels, part.tolerance).FirstDifference(mine[pointer], theirs[pointer]);
  row["equal"] = !difference.has_value();
  if (difference) row["difference"] = *difference;
  rows->push_back(row);
  return !difference;
}

// Adds to the row of differing codes whether the official choice in that frame was a near tie.
void NoteNearTie(const Json& theirs, Json* row) {
  if (!theirs.contains("margins") || !theirs["margins"].is_array()) return;
  for (size_t i = 0; i < theirs["margins"].size(); ++i) {
    const Json& margin = theirs["margins"][i];
    const std::string place = "frame " + std::to_string(i) + ",";
    std::string difference = (*row)["difference"];
    if (!difference.starts_with(place) || !margin.is_number() || margin.get<double>() >= kClearMargin) continue;
    (*row)["difference"] = difference + "; a near tie, where the order of summation decides";
  }
}

const Json* FindReferenceRun(const Json& report) {
  for (const Json& run : report["runs"]) {
    if (run.is_object() && run.value("precision", Json()) == "f32") return &run;
  }
  return nullptr;
}

// Compares a run in F32. Samples of different codes are not compared.
bool CompareRun(const Json& mine, const Json& theirs, Json* rows) {
  constexpr double kSumTolerance = kSampleTolerance * 1920;  // a frame's samples
  const std::string suffix = " on " + mine["device"].get<std::string>() + " in F32";
  if (!Compare({"codes", "/codes", {"frame", "group"}}, "codes" + suffix, mine, theirs, rows)) {
    NoteNearTie(theirs, &rows->back());
    return false;
  }
  const ComparedPart parts[] = {{"samples", "/samples/picked", {"sample"}, kSampleTolerance},
                                {"sums of samples", "/samples/sums", {"frame"}, kSumTolerance},
                                {"sums of magnitudes", "/samples/absolute_sums", {"frame"}, kSumTolerance}};
  bool equal = true;
  for (const ComparedPart& part : parts) equal &= Compare(part, part.name + suffix, mine, theirs, rows);
  return equal;
}

Json CompareReports(const Json& mine, const Json& theirs, const std::string& file) {
  const ComparedPart parts[] = {{"model", "/model", {}},
                                {"pattern", "/pattern", {}},
                                {"request", "/request", {"line"}},
                                {"tokens", "/tokens", {"line", "token"}},
                                {"prompt", "/prompt/rows", {"row"}},
                                {"trailing text", "/prompt/trailing_text", {"token"}}};
  Json rows = Json::array();
  bool equal = true;
  for (const ComparedPart& part : parts) equal &= Compare(part, part.name, mine, theirs, &rows);
  const Json* const reference = FindReferenceRun(theirs);
  for (const Json& run : mine["runs"]) {
    if (run["precision"] == "f32" && reference != nullptr) equal &= CompareRun(run, *reference, &rows);
  }
  return {{"file", file}, {"equal", equal}, {"parts", rows}};
}

// Reads another report. A report without a run in F32 could not be compared and is refused.
Result<Json> ReadReport(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Status::NotFound("--against " + path + ": cannot be read");
  Json report = Json::parse(text, nullptr, false);
  const bool right = report.is_object() && report.value("format", Json()) == kReportFormat && report.contains("runs") &&
                     report["runs"].is_array() && FindReferenceRun(report) != nullptr;
  if (right) return report;
  return Status::InvalidArgument("--against " + path + ": not a report of the format " + kReportFormat +
                                 "; make one with 'qtts-tool check DIR --json' or tests/golden/official-check.py");
}

// --- Text

void PrintRun(const Json& run) {
  std::printf("\nrun         %s, precision %s\n", run["device"].get<std::string>().c_str(),
              run["precision"].get<std::string>().c_str());
  for (size_t i = 0; i < run["codes"].size(); ++i) std::printf("codes %-5zu %s\n", i, run["codes"][i].dump().c_str());
  std::printf("samples     %s\n", run["samples"]["picked"].dump().c_str());
  std::printf("sums        %s\n", run["samples"]["sums"].dump().c_str());
  const Json& seconds = run["seconds"];
  std::printf("times       load %.2f s, first frame %.3f s, %zu frames %.3f s\n", seconds["load"].get<double>(),
              seconds["first_frame"].get<double>(), run["codes"].size(), seconds["all"].get<double>());
  std::printf("memory      %.1f MB at most so far, %.1f MB on the device\n",
              run["peak_memory_bytes"].get<double>() / 1e6, run["device_memory_bytes"].get<double>() / 1e6);
}

void PrintComparison(const Json& against) {
  std::printf("\nagainst     %s\n", against["file"].get<std::string>().c_str());
  for (const Json& row : against["parts"]) {
    std::string outcome = row.value("difference", "equal");
    if (row["equal"] == false && outcome != kMissing) outcome = "first difference at " + outcome;
    std::printf("  %s: %s\n", row["part"].get<std::string>().c_str(), outcome.c_str());
  }
  std::printf("result      %s\n", against["equal"].get<bool>() ? "equal" : "different");
}

void PrintReport(const Json& report) {
  for (const char* const part : {"versions", "model", "request"}) {
    for (const auto& [key, value] : report[part].items()) {
      if (key != "lines") std::printf("%-19s %s\n", key.c_str(), value.dump().c_str());
    }
  }
  std::printf("%-19s %s\n\n", "pattern", report["pattern"].dump().c_str());
  for (size_t i = 0; i < report["tokens"].size(); ++i) {
    std::printf("tokens %-4zu %s\n", i, report["tokens"][i].dump().c_str());
  }
  constexpr size_t kShownRows = 8;
  const Json& rows = report["prompt"]["rows"];
  std::printf("\nprompt      %zu rows, SHA-256 %s\n", rows.size(),
              report["prompt"]["sha256"].get<std::string>().c_str());
  for (size_t i = 0; i < std::min(rows.size(), kShownRows); ++i)
    std::printf("row %-7zu %s\n", i, rows[i].dump().c_str());
  std::printf("trailing    %s\n", report["prompt"]["trailing_text"].dump().c_str());
  for (const Json& run : report["runs"]) PrintRun(run);
  if (report.contains("against")) PrintComparison(report["against"]);
}

}  // namespace

Result<int> Check(const ToolOptions& options) {
  ToolOptions used = options;
  Json theirs;
  if (!options.against.empty()) {
    QTTS_ASSIGN_OR_RETURN(theirs, ReadReport(options.against));
    // The package's pattern depends on how it was loaded; the file tells.
    if (options.pattern.empty() && theirs.value("pattern", Json()) == "patched") used.pattern = "patched";
  }
  QTTS_ASSIGN_OR_RETURN(Json report, MakeReport(used));
  if (!options.against.empty()) report["against"] = CompareReports(report, theirs, options.against);
  if (options.json) {
    PrintJson(report);
  } else {
    PrintReport(report);
  }
  return options.against.empty() || report["against"]["equal"].get<bool>() ? 0 : 1;
}

}  // namespace qtts
