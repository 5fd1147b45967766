// SPDX-License-Identifier: LGPL-2.1-or-later
#include "golden/golden_case.h"

#include <glib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>

#include "checkpoint/safetensors.h"
#include "text/text_feed.h"

namespace qtts::golden {
namespace {

// The build's path, or that of the environment variable if the build was copied to another machine.
std::string Place(const char* variable, const char* built) {
  const char* const moved = g_getenv(variable);
  return moved != nullptr ? moved : built;
}

const std::string kData = SourceRoot() + "/tests/golden/data/cases/";

// Checkpoints have 100 MB: stream iterators take seconds for that in unoptimised code.
Result<std::string> ReadFile(const std::string& path) {
  gchar* bytes = nullptr;
  gsize size = 0;
  if (g_file_get_contents(path.c_str(), &bytes, &size, nullptr) == FALSE) {
    return Status::Unreadable(path + ": cannot be read");
  }
  std::string content(bytes, size);
  g_free(bytes);
  return content;
}

Result<std::map<std::string, GoldenTensor>> ReadTensors(const std::string& path) {
  QTTS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  const auto bytes = std::as_bytes(std::span(content));
  QTTS_ASSIGN_OR_RETURN(const SafetensorsHeader header, SafetensorsHeader::Parse(bytes, bytes.size(), path));
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, entry] : header.entries) {
    if (entry.dtype != "F32") return Status::CorruptModel(path + ": " + name + " is " + entry.dtype + ", not F32");
    GoldenTensor& tensor = tensors[name];
    tensor.shape = entry.shape;
    tensor.values.resize((entry.end - entry.begin) / sizeof(float));
    std::memcpy(tensor.values.data(), bytes.data() + header.data_offset + entry.begin, entry.end - entry.begin);
  }
  return tensors;
}

Result<nlohmann::json> ReadDocument(const std::string& name) {
  QTTS_ASSIGN_OR_RETURN(const std::string text, ReadFile(kData + name + ".json"));
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) return Status::CorruptModel(kData + name + ".json: not JSON");
  return document;
}

Status Generate(const nlohmann::json& options, const std::string& folder) {
  std::vector<std::string> words = {Place("QTTS_GENERATOR", QTTS_GENERATOR)};
  for (const auto& option : options) words.push_back(option.get<std::string>());
  words.push_back(folder);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int wait_status = 0;
  GError* error = nullptr;
  g_spawn_sync(SourceRoot().c_str(), arguments.data(), nullptr, G_SPAWN_DEFAULT, nullptr, nullptr, nullptr, nullptr,
               &wait_status, &error);
  if (error == nullptr) g_spawn_check_wait_status(wait_status, &error);
  if (error == nullptr) return Status::Ok();
  Status status = Status::Internal(words[0] + ": " + error->message);
  g_error_free(error);
  return status;
}

// Generated checkpoints by their options; removed at the end of the process.
class CheckpointFolders {
 public:
  CheckpointFolders() = default;
  ~CheckpointFolders() {
    std::error_code ignored;
    for (const auto& [options, folder] : folders_) std::filesystem::remove_all(folder, ignored);
  }
  CheckpointFolders(const CheckpointFolders&) = delete;
  CheckpointFolders& operator=(const CheckpointFolders&) = delete;

  Result<std::string> Get(const nlohmann::json& options) {
    const std::string key = options.dump();
    if (const auto it = folders_.find(key); it != folders_.end()) return it->second;
    gchar* made = g_dir_make_tmp("qtts-golden-XXXXXX", nullptr);
    if (made == nullptr) return Status::Internal("no temporary folder can be made");
    const std::string folder = folders_[key] = made;
    g_free(made);
    QTTS_RETURN_IF_ERROR(Generate(options, folder));
    return folder;
  }

 private:
  std::map<std::string, std::string> folders_;
};

// The SHA-256 of a checkpoint's file, computed once: cases share checkpoints.
Result<std::string> SumOf(const std::string& path) {
  static std::map<std::string, std::string> sums;
  if (const auto it = sums.find(path); it != sums.end()) return it->second;
  QTTS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  gchar* sum =
      g_compute_checksum_for_data(G_CHECKSUM_SHA256, reinterpret_cast<const guchar*>(content.data()), content.size());
  const std::string& kept = sums[path] = sum;
  g_free(sum);
  return kept;
}

Status CheckSums(const std::string& folder, const nlohmann::json& recorded) {
  for (const auto& [file, expected] : recorded.items()) {
    QTTS_ASSIGN_OR_RETURN(const std::string sum, SumOf(folder + "/" + file));
    if (expected != sum) {
      return Status::CorruptModel(folder + "/" + file + ": SHA-256 is not the recorded one. If the checkpoint was " +
                                  "changed on purpose, record the golden data anew (tests/golden/README.md)");
    }
  }
  return Status::Ok();
}

CaseKind KindOf(const nlohmann::json& document) {
  if (!document.contains("settings")) return CaseKind::kCodec;
  if (document["request"].contains("ref_audio")) return CaseKind::kCloned;
  return document["settings"]["do_sample"] ? CaseKind::kSampled : CaseKind::kGreedy;
}

struct ListedCase {
  std::string name;
  bool readable = false;
  CaseKind kind{};
  bool has_sound = false;
};

// By name.
std::vector<ListedCase> ListCases() {
  std::vector<ListedCase> listed;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (entry.path().extension() != ".json") continue;
    ListedCase& added = listed.emplace_back();
    added.name = entry.path().stem();
    const Result<nlohmann::json> document = ReadDocument(added.name);
    const auto tensors = ReadTensors(kData + added.name + ".safetensors");
    added.readable = document.ok() && tensors.ok();
    if (!added.readable) continue;
    added.kind = KindOf(*document);
    added.has_sound = tensors->contains("pcm");
  }
  std::sort(listed.begin(), listed.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return listed;
}

TokenSampling SamplingOf(const nlohmann::json& settings, const std::string& prefix, const std::string& do_sample,
                         TokenSampling sampling) {
  sampling.do_sample = settings[do_sample];
  sampling.temperature = settings.value(prefix + "temperature", sampling.temperature);
  sampling.top_k = settings.value(prefix + "top_k", sampling.top_k);
  sampling.top_p = settings.value(prefix + "top_p", sampling.top_p);
  return sampling;
}

Request RequestOf(const GoldenCase& golden, const GenerationSettings& defaults) {
  const nlohmann::json& recorded = golden.request();
  const nlohmann::json& settings = golden.document["settings"];
  Request request;
  request.text = recorded["text"];
  request.speaker = recorded.value("speaker", "");
  request.language = recorded.value("language", "");
  request.instruct = recorded.value("instruct", "");
  request.layout = recorded["non_streaming"] ? PromptLayout::kNonStreaming : PromptLayout::kStreaming;
  request.settings = defaults;
  request.settings.talker = SamplingOf(settings, "", "do_sample", defaults.talker);
  request.settings.predictor = SamplingOf(settings, "subtalker_", "subtalker_dosample", defaults.predictor);
  request.settings.repetition_penalty = settings.value("repetition_penalty", defaults.repetition_penalty);
  request.settings.max_new_tokens = settings["max_new_tokens"];
  if (golden.tensors.contains("x_vector") || golden.document.contains("reference_codes")) {
    auto voice = std::make_shared<ClonedVoice>();
    if (golden.tensors.contains("x_vector")) voice->x_vector = golden.tensors.at("x_vector").values;
    if (golden.document.contains("reference_codes")) {
      for (const auto& frame : golden.document["reference_codes"]) {
        for (const auto& code : frame) voice->reference_codes.push_back(code);
      }
      voice->reference_text = recorded["ref_text"];
    }
    request.voice = std::move(voice);
  }
  return request;
}

}  // namespace

std::string SourceRoot() { return Place("QTTS_SOURCE_ROOT", QTTS_SOURCE_ROOT); }

std::span<const float> GoldenTensor::Row(int64_t row) const {
  const auto width = static_cast<size_t>(shape.back());
  return std::span(values).subspan(static_cast<size_t>(row) * width, width);
}

std::vector<int32_t> GoldenCase::codes() const {
  std::vector<int32_t> codes;
  for (const auto& frame : document["codes"]) {
    for (const auto& code : frame) codes.push_back(code);
  }
  return codes;
}

std::vector<std::string> Cases(std::initializer_list<CaseKind> kinds, bool with_sound) {
  static const std::vector<ListedCase> listed = ListCases();
  std::vector<std::string> names;
  for (const ListedCase& listed_case : listed) {
    const bool fits = std::find(kinds.begin(), kinds.end(), listed_case.kind) != kinds.end() &&
                      (!with_sound || listed_case.has_sound);
    // Cases that cannot be read stay in the list, so that their tests fail.
    if (fits || !listed_case.readable) names.push_back(listed_case.name);
  }
  return names;
}

std::string CaseTestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Result<std::shared_ptr<const GoldenCase>> LoadCase(const std::string& name) {
  static CheckpointFolders folders;
  static std::map<std::string, std::shared_ptr<const GoldenCase>> cases;
  if (const auto it = cases.find(name); it != cases.end()) return it->second;

  auto golden = std::make_shared<GoldenCase>();
  golden->name = name;
  QTTS_ASSIGN_OR_RETURN(golden->document, ReadDocument(name));
  QTTS_ASSIGN_OR_RETURN(golden->tensors, ReadTensors(kData + name + ".safetensors"));
  const nlohmann::json& checkpoint = golden->document["checkpoint"];
  if (checkpoint.contains("folder")) {
    golden->folder = SourceRoot() + "/" + checkpoint["folder"].get<std::string>();
  } else {
    QTTS_ASSIGN_OR_RETURN(golden->folder, folders.Get(checkpoint["options"]));
  }
  QTTS_RETURN_IF_ERROR(CheckSums(golden->folder, checkpoint["sha256"]));
  return cases[name] = std::move(golden);
}

int32_t Fixture::TextAfter(int64_t frame) const {
  const auto index = static_cast<size_t>(frame);
  return index < prompt.trailing_text.size() ? prompt.trailing_text[index] : prompt.pad_text_id;
}

Result<Fixture> MakeFixture(const std::string& name) {
  Fixture fixture;
  QTTS_ASSIGN_OR_RETURN(fixture.golden, LoadCase(name));
  QTTS_ASSIGN_OR_RETURN(fixture.checkpoint, Checkpoint::Open(fixture.golden->folder));
  if (!fixture.golden->is_speech()) return fixture;
  const auto pattern =
      fixture.golden->document["pattern"] == "patched" ? TokenizerPattern::kPatched : TokenizerPattern::kNative;
  QTTS_ASSIGN_OR_RETURN(fixture.tokenizer, Tokenizer::Load(fixture.golden->folder, pattern));
  fixture.request = RequestOf(*fixture.golden, fixture.checkpoint->config().defaults);
  TextFeed feed(fixture.tokenizer);
  QTTS_RETURN_IF_ERROR(feed.Append(fixture.request.text));
  QTTS_RETURN_IF_ERROR(feed.Finish());
  fixture.text_ids = feed.TakeIds();
  QTTS_ASSIGN_OR_RETURN(const PromptBuilder builder,
                        PromptBuilder::Create(fixture.checkpoint->config(), fixture.tokenizer));
  QTTS_ASSIGN_OR_RETURN(fixture.prompt, builder.Build(fixture.request, fixture.text_ids, true));
  return fixture;
}

Result<Utterance> Speak(Backend* backend, const Fixture& fixture) {
  QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(fixture.prompt, fixture.request.settings, 1));
  Utterance utterance;
  for (int64_t frame = 0; utterance.end == EndReason::kNone; ++frame) {
    const FrameStep step = {.slot = slot, .text_id = frame == 0 ? kNoText : fixture.TextAfter(frame - 1)};
    QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
    QTTS_ASSIGN_OR_RETURN(const std::vector<FrameResult> results, backend->Collect());
    if (results.size() != 1) return Status::Internal("one step gave " + std::to_string(results.size()) + " results");
    utterance.codes.insert(utterance.codes.end(), results[0].codes.begin(), results[0].codes.end());
    utterance.pcm.insert(utterance.pcm.end(), results[0].pcm.begin(), results[0].pcm.end());
    utterance.end = results[0].end;
    utterance.status = results[0].status;
  }
  backend->Close(slot);
  return utterance;
}

double AbsoluteError(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])));
  }
  return error;
}

double RelativeError(std::span<const float> actual, std::span<const float> expected) {
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, static_cast<double>(std::abs(value)));
  return AbsoluteError(actual, expected) / largest;
}

void ExpectError(double error, double tolerance) {
  EXPECT_LE(error, tolerance);
  std::ostringstream text;
  text << error;
  ::testing::Test::RecordProperty("error", text.str());
}

}  // namespace qtts::golden
