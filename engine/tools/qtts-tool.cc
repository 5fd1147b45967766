// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool: inspects model folders and runs parts of the engine. See --help.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "align.h"
#include "api/backend_module.h"
#include "api/device_choice.h"
#include "api/speech_decoder.h"
#include "build_config.h"
#include "check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_kind.h"
#include "codes_file.h"
#include "cpu/cpu_voice_encoder.h"
#include "loudness.h"
#include "options.h"
#include "print_json.h"
#include "prompt/prompt.h"
#include "qtts/engine.h"
#include "qtts/language.h"
#include "qtts/log.h"
#include "qtts/sampling_numbers.h"
#include "speak.h"
#include "text.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"
#include "usage.h"
#include "voice/clone.h"
#include "voice_commands.h"
#include "wav.h"

namespace qtts {
namespace {

constexpr int kFramesOfTwoMinutes = 1500;

Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const ToolOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const TokenizerPattern pattern, PatternOf(options));
  return Tokenizer::Load(options.arguments[0], pattern);
}

// Returns the bytes of F32 KV cache per position of the talker.
int64_t KvBytesPerPosition(const TransformerConfig& config) {
  return int64_t{2} * config.num_layers * config.kv_width() * static_cast<int64_t>(sizeof(float));
}

std::string Joined(const std::vector<std::string>& items) {
  std::string all;
  for (const std::string& item : items) all += (all.empty() ? "" : ", ") + item;
  return all.empty() ? "none" : all;
}

// Returns the names with their tags: "german (de)".
std::string WithTags(const std::vector<std::string>& languages) {
  std::string all;
  for (const std::string& name : languages) {
    const std::string_view tag = ResolveLanguage(name).tag;
    all.append(", ").append(name);
    if (!tag.empty()) all.append(" (").append(tag).append(")");
  }
  return all;
}

// Returns the speakers with their dialects: "eric (sichuan_dialect)".
std::string WithDialects(const std::vector<std::string>& speakers, const TalkerConfig& talker) {
  std::vector<std::string> items;
  for (const std::string& name : speakers) {
    const auto dialect = talker.dialects.find(name);
    items.push_back(dialect == talker.dialects.end() ? name : name + " (" + dialect->second + ")");
  }
  return Joined(items);
}

// Returns "yes", or the reason why the folder cannot clone voices.
std::string Cloning(const Checkpoint& checkpoint) {
  if (!KindOf(checkpoint.config().type).clones) return "no";
  const auto encoder = checkpoint.OpenVoiceEncoder();
  return encoder.ok() ? "yes" : "only with voice files: " + encoder.status().message();
}

Json ShowSettings(const GenerationSettings& settings) {
  Json shown = {{"do_sample", settings.talker.do_sample}, {"subtalker_do_sample", settings.predictor.do_sample}};
  for (const SamplingNumber& number : kSamplingNumbers) {
    if (number.whole()) {
      shown[number.key()] = std::llrint(number.Get(settings));
    } else {
      shown[number.key()] = static_cast<float>(number.Get(settings));
    }
  }
  shown["max_new_tokens"] = settings.max_new_tokens;
  return shown;
}

// Estimates how many voices a GPU has memory for, if --device asks for one.
Result<std::optional<DeviceCapacity>> CapacityFor(const ToolOptions& options, const Checkpoint& checkpoint) {
  QTTS_ASSIGN_OR_RETURN(EngineOptions engine, MakeEngineOptions(options, options.arguments[0]));
  QTTS_RETURN_IF_ERROR(CheckOptions(engine));
  if (IsGpu(engine.device)) {
    engine.voices = static_cast<int>(options.voices.value_or(kMostVoices));
    QTTS_ASSIGN_OR_RETURN(DeviceCapacity capacity, CapacityOfDevice(checkpoint, engine));
    return std::optional<DeviceCapacity>(std::move(capacity));
  }
  return std::optional<DeviceCapacity>();
}

// Prints the time of a frame. A frame of one utterance can't be made faster than its weights are read.
void PrintFrameTime(const DeviceCapacity& capacity, const ModelInfo& info) {
  const double gigabytes = static_cast<double>(capacity.frame_bytes) / 1e9;
  if (capacity.bandwidth <= 0) {
    std::printf("frame       %.2f GB of weights to read; the memory's bandwidth is unknown\n", gigabytes);
    return;
  }
  // Copies reach about this share of the bandwidth by clock and bus.
  constexpr double kReached = 0.9;
  const double ms = 1e3 * static_cast<double>(capacity.frame_bytes) / (kReached * capacity.bandwidth);
  std::printf(
      "frame       %.1f ms by bandwidth, one utterance: %.2f GB of weights at %.0f %% of %.0f GB/s, for %.0f ms of "
      "sound\n",
      ms, gigabytes, 100 * kReached, capacity.bandwidth / 1e9, 1e3 * info.samples_per_frame / info.sample_rate);
}

Status Inspect(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  const ModelInfo info = checkpoint->Info();
  const ModelConfig& config = checkpoint->config();
  const TransformerConfig& talker = config.talker.transformer;
  const TransformerConfig& predictor = config.predictor.transformer;
  const int64_t stream_bytes = KvBytesPerPosition(talker) * kFramesOfTwoMinutes;
  QTTS_ASSIGN_OR_RETURN(const std::optional<DeviceCapacity> capacity, CapacityFor(options, *checkpoint));
  if (options.json) {
    Json description = {{"path", info.path},
                        {"type", ModelTypeName(info.type)},
                        {"size", info.size},
                        {"dtype", info.dtype},
                        {"speakers", info.speakers},
                        {"dialects", config.talker.dialects},
                        {"languages", info.languages},
                        {"supports_instruct", info.supports_instruct},
                        {"cloning", Cloning(*checkpoint)},
                        {"fingerprint", info.fingerprint},
                        {"sample_rate", info.sample_rate},
                        {"samples_per_frame", info.samples_per_frame},
                        {"code_groups", info.code_groups},
                        {"talker",
                         {{"layers", talker.num_layers},
                          {"hidden", talker.hidden_size},
                          {"heads", talker.num_heads},
                          {"kv_heads", talker.num_kv_heads},
                          {"head_dim", talker.head_dim},
                          {"max_positions", talker.max_positions}}},
                        {"code_predictor",
                         {{"layers", predictor.num_layers},
                          {"hidden", predictor.hidden_size},
                          {"codebook", config.predictor.vocab_size}}},
                        {"talker_parameters", info.talker_parameters},
                        {"codec_parameters", info.codec_parameters},
                        {"weight_bytes", info.weight_bytes},
                        {"kv_bytes_two_minutes", stream_bytes},
                        {"defaults", ShowSettings(info.defaults)}};
    if (capacity) {
      description["capacity"] = {{"device", capacity->device},
                                 {"compute_capability", capacity->compute_capability},
                                 {"path", capacity->path},
                                 {"bandwidth", capacity->bandwidth},
                                 {"frame_bytes", capacity->frame_bytes},
                                 {"free_bytes", capacity->free_bytes},
                                 {"model_bytes", capacity->model_bytes},
                                 {"voice_bytes", capacity->voice_bytes},
                                 {"voices", capacity->voices}};
    }
    PrintJson(description);
    return Status::Ok();
  }
  std::printf("model       %s, size %s, weights %s\n", std::string(ModelTypeName(info.type)).c_str(), info.size.c_str(),
              info.dtype.c_str());
  std::printf("speakers    %s\n", WithDialects(info.speakers, config.talker).c_str());
  std::printf("languages   auto%s\n", WithTags(info.languages).c_str());
  std::printf("instruct    %s\n", info.supports_instruct ? "yes" : "no");
  std::printf("cloning     %s\n", Cloning(*checkpoint).c_str());
  std::printf("talker      %d layers of %d, %d/%d heads of %d, %d positions\n", talker.num_layers, talker.hidden_size,
              talker.num_heads, talker.num_kv_heads, talker.head_dim, talker.max_positions);
  std::printf("predictor   %d layers of %d, %d code groups, codebooks of %d\n", predictor.num_layers,
              predictor.hidden_size, info.code_groups, config.predictor.vocab_size);
  std::printf("audio       %d Hz, %d samples a frame\n", info.sample_rate, info.samples_per_frame);
  std::printf("parameters  %.1f M talker and predictor, %.1f M codec decoder\n",
              static_cast<double>(info.talker_parameters) / 1e6, static_cast<double>(info.codec_parameters) / 1e6);
  std::printf("memory      %.1f MB weights, and %.1f MB for a stream of 2 minutes\n",
              static_cast<double>(info.weight_bytes) / 1e6, static_cast<double>(stream_bytes) / 1e6);
  if (capacity) {
    std::printf("device      %s, compute capability %s\n", capacity->device.c_str(),
                capacity->compute_capability.c_str());
    std::printf("path        %s\n", capacity->path.c_str());
    PrintFrameTime(*capacity, info);
    std::printf("voices      about %d of 10 s fit in the %.1f GB free on %s: %.1f GB for the model, %.1f MB each\n",
                capacity->voices, static_cast<double>(capacity->free_bytes) / 1e9, capacity->device.c_str(),
                static_cast<double>(capacity->model_bytes) / 1e9, static_cast<double>(capacity->voice_bytes) / 1e6);
  }
  return Status::Ok();
}

Status Tokenize(const ToolOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(options));
  std::string line;
  while (std::getline(std::cin, line)) {
    QTTS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(line));
    if (options.json) {
      PrintJson(ids);
      continue;
    }
    for (size_t i = 0; i < ids.size(); ++i) std::cout << (i ? " " : "") << ids[i];
    std::cout << '\n';
  }
  return Status::Ok();
}

Status PrintPrompt(const ToolOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(options));
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(options.arguments[0]));
  QTTS_ASSIGN_OR_RETURN(const PromptBuilder prompts, PromptBuilder::Create(checkpoint->config(), tokenizer));
  QTTS_ASSIGN_OR_RETURN(const Request request, MakeRequest(options, checkpoint->config().defaults));
  TextFeed feed(tokenizer);
  QTTS_RETURN_IF_ERROR(feed.Append(request.text));
  QTTS_RETURN_IF_ERROR(feed.Finish());
  if (feed.blank()) return Status::InvalidArgument("prompt: name what to speak with --text");
  if (request.voice != nullptr) QTTS_RETURN_IF_ERROR(CheckVoiceModel(*request.voice, checkpoint->Info()));
  QTTS_ASSIGN_OR_RETURN(const auto warnings, prompts.Validate(request));
  QTTS_ASSIGN_OR_RETURN(const Prompt prompt, prompts.Build(request, feed.TakeIds(), true));
  for (const std::string& warning : warnings) std::cerr << "qtts-tool: warning: " << warning << '\n';
  if (options.json) {
    Json rows = Json::array();
    for (const PromptRow& row : prompt.rows) {
      rows.push_back({{"text_id", row.text_id == kNoText ? Json() : Json(row.text_id)},
                      {"codes", row.codes},
                      {"x_vector", row.x_vector}});
    }
    PrintJson({{"rows", rows},
               {"constant_rows", prompt.constant_rows},
               {"trailing_text", prompt.trailing_text},
               {"pad_text_id", prompt.pad_text_id}});
    return Status::Ok();
  }
  for (size_t i = 0; i < prompt.rows.size(); ++i) {
    const PromptRow& row = prompt.rows[i];
    std::printf("%4zu  ", i);
    if (row.text_id == kNoText) {
      std::printf("%-28s", "-");
    } else {
      std::printf("%-6d %-21s", row.text_id,
                  Json(tokenizer->Decode(row.text_id)).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    }
    for (const int32_t code : row.codes) std::printf(" %d", code);
    std::printf("%s%s\n", row.x_vector ? " x-vector" : "",
                i + 1 == prompt.constant_rows ? "   <- constant up to here" : "");
  }
  std::printf("then, one per frame:");
  for (const int32_t id : prompt.trailing_text) std::printf(" %d", id);
  std::printf("%s %d for ever\n", prompt.trailing_text.empty() ? "" : ", and", prompt.pad_text_id);
  return Status::Ok();
}

Status Codes(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, folder));
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(engine_options));
  if (!engine->passed_over().empty()) std::cerr << "qtts-tool: warning: " << engine->passed_over() << '\n';
  QTTS_ASSIGN_OR_RETURN(const Request request, MakeRequest(options, engine->info().defaults));
  QTTS_ASSIGN_OR_RETURN(const auto stream, engine->Start(request));
  for (const std::string& warning : stream->warnings()) std::cerr << "qtts-tool: warning: " << warning << '\n';
  Json all = Json::array();
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    if (options.json) {
      all.push_back(frame.codes);
      continue;
    }
    for (size_t i = 0; i < frame.codes.size(); ++i) std::cout << (i ? " " : "") << frame.codes[i];
    std::cout << '\n';
  }
  QTTS_RETURN_IF_ERROR(stream->status());
  const bool capped = stream->end_reason() == EndReason::kMaxDuration;
  if (options.json) PrintJson({{"codes", all}, {"end", capped ? "max-duration" : "complete"}});
  if (capped) std::cerr << "qtts-tool: warning: stopped by the frame limit before the model ended the utterance\n";
  return Status::Ok();
}

Status Decode(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const WavFormat format, SampleFormatOf(options));
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, folder));
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  const ModelInfo info = checkpoint->Info();
  const CodecConfig& codec = checkpoint->config().codec;
  const int entries = codec.codebook_size;
  std::vector<int32_t> codes;
  if (options.arguments.size() > 1) {
    std::ifstream file(options.arguments[1], std::ios::binary);
    if (!file) return Status::NotFound(options.arguments[1] + ": cannot be read");
    QTTS_ASSIGN_OR_RETURN(codes, ReadCodes(file, options.arguments[1], codec.num_quantizers, entries));
  } else {
    QTTS_ASSIGN_OR_RETURN(codes, ReadCodes(std::cin, "standard input", codec.num_quantizers, entries));
  }
  if (codes.empty()) {
    return Status::InvalidArgument(
        "decode: there are no codes; `qtts-tool codes DIR --text TEXT` prints those of a text");
  }
  QTTS_ASSIGN_OR_RETURN(const auto decoder, CreateSpeechDecoder(engine_options, checkpoint));
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> pcm, decoder->Decode(codes));
  QTTS_RETURN_IF_ERROR(WriteWav(options.output, pcm, info.sample_rate, format));
  const double seconds = static_cast<double>(pcm.size()) / info.sample_rate;
  if (options.json) {
    PrintJson({{"file", options.output}, {"samples", pcm.size()}, {"seconds", seconds}, {"device", decoder->name()}});
  } else {
    std::printf("%s: %.2f s, decoded on %s\n", options.output.c_str(), seconds, decoder->name().c_str());
  }
  return Status::Ok();
}

// Tells what --prepare has changed.
constexpr LogSink kToldChanges = {
    [](LogLevel level) { return level == LogLevel::kInfo; },
    [](LogLevel /*level*/, const char* line) { std::cerr << "qtts-tool: " << line << '\n'; }};

// Sets the loudness to that of the voice's speech, which is heard.
void MeasureVoice(const ToolOptions& options, const std::string& folder, ClonedVoice* voice) {
  const auto measured = LoudnessOfVoice(options, folder, std::make_shared<const ClonedVoice>(*voice));
  if (measured.ok() && *measured) {
    voice->loudness = *measured;
    return;
  }
  std::cerr << "qtts-tool: warning: voice make: the file has "
            << (voice->loudness ? "the loudness of the recording, not of the voice: " : "no loudness: ")
            << (measured.ok() ? "its sample is silent; another --seed may do better" : measured.status().message())
            << '\n';
}

Status MakeVoice(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, folder));
  QTTS_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  QTTS_ASSIGN_OR_RETURN(const Recording recording, ReadWav(options.audio));
  QTTS_ASSIGN_OR_RETURN(const auto encoder, CreateCpuVoiceEncoder(checkpoint, engine_options.threads));
  const CloneOptions clone{options.reference_text, options.pad_reference, options.prepare};
  if (options.prepare) SetLogSink(&kToldChanges);
  QTTS_ASSIGN_OR_RETURN(ClonedVoice voice, CloneVoice(encoder.get(), checkpoint->Fingerprint(), recording, clone));
  SetLogSink(nullptr);
  for (const std::string& warning : voice.warnings) std::cerr << "qtts-tool: warning: " << warning << '\n';
  MeasureVoice(options, folder, &voice);
  QTTS_ASSIGN_OR_RETURN(const std::string path, KeepVoice(voice, options));
  return PrintVoiceFile(path, options.json);
}

Status ShowVoice(const ToolOptions& options) { return PrintVoiceFile(options.arguments[0], options.json); }

// Returns the exit status.
int WrongUsage(const Status& status) {
  std::cerr << "qtts-tool: " << status.message() << "; see qtts-tool --help\n";
  return 2;
}

int Main(int argc, char** argv) {
  const Result<ToolOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) return WrongUsage(options.status());
  if (options->version) {
    std::cout << "qtts-tool " QTTS_VERSION "\n";
    return 0;
  }
  if (options->help) {
    std::cout << Manual(options->command);
    return 0;
  }
  if (const Status status = CheckUsage(*options); !status.ok()) return WrongUsage(status);
  for (const std::string& warning : options->warnings) std::cerr << "qtts-tool: warning: " << warning << '\n';
  using Run = Status (*)(const ToolOptions&);
  const std::pair<std::string_view, Run> commands[] = {{"text", PrintText},
                                                       {"inspect", Inspect},
                                                       {"tokenize", Tokenize},
                                                       {"prompt", PrintPrompt},
                                                       {"codes", Codes},
                                                       {"decode", Decode},
                                                       {"voice make", MakeVoice},
                                                       {"voice show", ShowVoice},
                                                       {"align", Align},
                                                       {"voice design", DesignVoice},
                                                       {"voice mix", MixVoiceFiles},
                                                       {"loudness", Loudness}};
  Status status;
  if (options->command == "speak" || options->command == "check") {
    const Result<int> exit_status = options->command == "speak" ? Speak(*options) : Check(*options);
    if (exit_status.ok()) return *exit_status;
    status = exit_status.status();
  } else {
    status = std::ranges::find(commands, options->command, &std::pair<std::string_view, Run>::first)->second(*options);
    if (status.ok()) return 0;
  }
  if (options->json) {
    PrintJson({{"error", {{"code", StatusCodeName(status.code())}, {"message", status.message()}}}});
  } else {
    std::cerr << "qtts-tool: " << status.message() << '\n';
  }
  return 1;
}

}  // namespace
}  // namespace qtts

int main(int argc, char** argv) {
  try {
    return qtts::Main(argc, argv);
  } catch (...) {
    std::fputs("qtts-tool: an exception that nothing caught\n", stderr);
    return 1;
  }
}
