// SPDX-License-Identifier: LGPL-2.1-or-later
// Load time, time from text to first buffer and first audible sample in a warm element and the stages before them,
// speed over real time, and memory of one model folder. On the CPU also the least time of a frame: that to read its
// weights at the memory bandwidth, measured in the same run. (qtts-bench prints it for the GPU.)
#include <gst/app/gstappsrc.h>
#include <gst/audio/audio.h>
#include <gst/gst.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "checkpoint/checkpoint.h"

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using qtts::bench::Arguments;
using qtts::bench::Fail;

constexpr std::string_view kUsage =
    "usage: bench-element [MODEL_DIR] [OPTION]...\n"
    "  --device cpu|cuda   (default cpu)\n"
    "  --codec-precision exact|fast  (default exact)\n"
    "  --voice-file FILE   the cloned voice that a Base model speaks with\n"
    "  --set NAME=VALUE    another property of qttssrc, such as speaker=hugh; may be repeated\n"
    "  --utterances N      for the latency: N texts of 5 to 40 words (default: the sentences, four times)\n"
    "  --frames N          cut each of them after N frames, for models that do not end by themselves\n"
    "  --seconds N         of speech for the speed, instead of the sentences to their ends\n"
    "  --sentences FILE    a sentence a line\n"
    "  --loads N           loads to measure (default 10)\n"
    "  --rest N            milliseconds between an utterance and the next text (default 20)\n"
    "  --stages            speaks all texts of the latency once more, and tells where the time goes\n"
    "  --json FILE         all figures, for programs; - prints them instead of the table\n";

constexpr int kRounds = 4;  // over all sentences, for latency
// Audible: a sample of at least -45 dB of full scale.
constexpr float kAudible = 0.00562F;

struct Options {
  std::string model = QTTS_BENCH_VOICE;
  std::string device = "cpu";
  std::string codec_precision = "exact";
  std::string voice_file;
  std::vector<std::pair<std::string, std::string>> properties;
  std::string json;
  std::string sentences = QTTS_BENCH_SENTENCES;
  int utterances = 0;
  int frames = 0;
  int seconds = 0;
  int loads = 10;
  int rest = 20;
  bool stages = false;
};

double Milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

struct Spread {
  double p50 = 0, p95 = 0, p99 = 0, max = 0;

  Json ToJson() const { return {{"p50", p50}, {"p95", p95}, {"p99", p99}, {"max", max}}; }
  void Print(const char* what, size_t count) const {
    std::printf("%-27s %.2f ms median, %.2f p95, %.2f p99, %.2f worst of %zu\n", what, p50, p95, p99, max, count);
  }
};

Spread Summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.5), at(0.95), at(0.99), values.back()};
}

std::vector<std::string> Sentences(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) Fail("no sentences in " + path);
  return lines;
}

// Texts of 5 to 40 words, taken at random from the sentences; the same ones every time.
std::vector<std::string> RandomTexts(const std::vector<std::string>& sentences, int count) {
  std::vector<std::string> words;
  for (const std::string& sentence : sentences) {
    std::istringstream stream(sentence);
    words.insert(words.end(), std::istream_iterator<std::string>(stream), {});
  }
  std::mt19937 random(1);
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (unsigned n = 5 + static_cast<unsigned>(random()) % 36; n > 0; --n) {
      text += (text.empty() ? "" : " ") + words[random() % words.size()];
    }
    texts.push_back(text);
  }
  return texts;
}

// Stages of a text up to its first buffer.
enum Stage { kPad, kTask, kTokens, kPrompt, kMade, kTold, kBuffer, kStages };

struct StageName {
  const char* json;
  const char* label;
};
constexpr std::array<StageName, kStages> kStageNames = {{
    {"pad", "text at the sink pad: appsrc's thread was woken"},
    {"task", "engine asked: the streaming thread was woken"},
    {"tokens", "text is tokens"},
    {"prompt", "prompt handed to the device: the engine's thread was woken"},
    {"made", "first frame made"},
    {"told", "start of the utterance told: the streaming thread was woken"},
    {"buffer", "buffer at the src pad"},
}};

// Time of each stage of an utterance, from log messages of the engine, an element message and two pad probes.
class StageTimes {
 public:
  // The application starts to push the text.
  void Begin() {
    const std::lock_guard lock(mutex_);
    times_ = {};
    begin_ = Clock::now();
  }
  // Counts after the stage before it, so late log messages of the last utterance are ignored.
  void Pass(Stage stage) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (stage != kPad && times_.at(stage - 1) == Clock::time_point()) return;
    if (times_.at(stage) == Clock::time_point()) times_.at(stage) = now;
  }
  // Milliseconds from each stage to the next.
  std::array<double, kStages> Durations() const {
    const std::lock_guard lock(mutex_);
    std::array<double, kStages> durations{};
    Clock::time_point last = begin_;
    for (size_t i = 0; i < kStages; ++i) {
      if (times_.at(i) < last) Fail(std::string("this stage was not seen: ") + kStageNames.at(i).label);
      durations.at(i) = Milliseconds(times_.at(i) - last);
      last = times_.at(i);
    }
    return durations;
  }
  // As GstLogFunction; `user` is a StageTimes.
  static void OnLog(GstDebugCategory* category, GstDebugLevel, const gchar*, const gchar*, gint, GObject*,
                    GstDebugMessage* message, gpointer user) {
    static constexpr std::array<std::pair<std::string_view, Stage>, 4> kLines = {
        {{"asked for", kTask}, {"its text", kTokens}, {"slot", kPrompt}, {"a frame", kMade}}};
    if (g_strcmp0(gst_debug_category_get_name(category), kEngineCategory) != 0) return;
    const std::string_view line = gst_debug_message_get(message);
    for (const auto& [begin, stage] : kLines) {
      if (line.starts_with(begin)) static_cast<StageTimes*>(user)->Pass(stage);
    }
  }

  static constexpr const char* kEngineCategory = "qttsengine";

 private:
  mutable std::mutex mutex_;
  Clock::time_point begin_;
  std::array<Clock::time_point, kStages> times_;
};

// Milliseconds from handing a text in to the first buffer, and of silence from its beginning to the first audible
// sample. Their sum is the time to the first audible sample if the first buffer is played at once.
struct FirstSound {
  double buffer = 0;
  double silence = -1;  // -1: nothing is audible
};

// appsrc (text) ! qttssrc ! fakesink, and the times of the buffers that leave qttssrc.
class Speaker {
 public:
  explicit Speaker(const Options& options) : rest_(options.rest) {
    pipeline_ = gst_pipeline_new(nullptr);
    text_ = gst_element_factory_make("appsrc", nullptr);
    speech_ = gst_element_factory_make("qttssrc", nullptr);
    GstElement* const sink = gst_element_factory_make("fakesink", nullptr);
    if (!text_ || !speech_ || !sink) Fail("appsrc, qttssrc or fakesink is missing; run in `meson devenv`");
    g_object_set(sink, "sync", FALSE, nullptr);
    g_object_set(speech_, "model-path", options.model.c_str(), "seed", gint64{1}, nullptr);
    gst_util_set_object_arg(G_OBJECT(speech_), "device", options.device.c_str());
    gst_util_set_object_arg(G_OBJECT(speech_), "codec-precision", options.codec_precision.c_str());
    if (!options.voice_file.empty()) g_object_set(speech_, "voice-file", options.voice_file.c_str(), nullptr);
    for (const auto& [name, value] : options.properties) {
      if (!g_object_class_find_property(G_OBJECT_GET_CLASS(speech_), name.c_str())) {
        Fail("--set " + name + "=" + value + ": qttssrc has no such property");
      }
      gst_util_set_object_arg(G_OBJECT(speech_), name.c_str(), value.c_str());
    }
    GstCaps* const caps = gst_caps_from_string("text/x-raw,format=utf8");
    g_object_set(text_, "caps", caps, "format", GST_FORMAT_TIME, nullptr);
    gst_caps_unref(caps);
    gst_bin_add_many(GST_BIN(pipeline_), text_, speech_, sink, nullptr);
    GstCaps* const samples = gst_caps_from_string("audio/x-raw,format=(string)" GST_AUDIO_NE(F32));
    if (!gst_element_link(text_, speech_) || !gst_element_link_filtered(speech_, sink, samples)) Fail("linking failed");
    gst_caps_unref(samples);
    GstPad* const pad = gst_element_get_static_pad(speech_, "src");
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnBuffer, this, nullptr);
    gst_object_unref(pad);
  }
  ~Speaker() {
    gst_element_set_state(pipeline_, GST_STATE_NULL);
    gst_object_unref(pipeline_);
  }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  // Time from asking for PLAYING until the model is loaded.
  double Load() {
    const auto start = Clock::now();
    gst_element_set_state(pipeline_, GST_STATE_PLAYING);
    for (;;) {
      GstMessage* const message = Wait(static_cast<GstMessageType>(GST_MESSAGE_PROGRESS));
      GstProgressType type{};
      gst_message_parse_progress(message, &type, nullptr, nullptr);
      gst_message_unref(message);
      if (type == GST_PROGRESS_TYPE_COMPLETE) return Milliseconds(Clock::now() - start);
    }
  }

  // Limits later utterances to `frames` frames; 0: no limit.
  void Limit(int frames) {
    g_object_set(speech_, "max-duration", static_cast<guint64>(frames) * 80 * GST_MSECOND, nullptr);
  }

  // Speaks `text` and waits until it is over.
  FirstSound Speak(const std::string& text) {
    const guint64 before = Utterances();
    // The text comes to an idle element: buffers requested before the last end are done.
    std::this_thread::sleep_for(rest_);
    {
      std::lock_guard lock(mutex_);
      first_ = Clock::time_point();
      played_ = audible_ = -1;
    }
    stages_.Begin();
    const auto start = Clock::now();
    Push(text);
    while (Utterances() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::lock_guard lock(mutex_);
    if (first_ == Clock::time_point()) Fail("an utterance made no sound: " + text);
    return {Milliseconds(first_ - start), audible_};
  }

  // Records the stages of later utterances. Log messages go nowhere else.
  void NoteStages() {
    GstPad* const pad = gst_element_get_static_pad(speech_, "sink");
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnText, this, nullptr);
    gst_object_unref(pad);
    GstBus* const bus = gst_element_get_bus(pipeline_);
    gst_bus_set_sync_handler(bus, OnMessage, this, nullptr);
    gst_object_unref(bus);
    gst_debug_remove_log_function(gst_debug_log_default);
    gst_debug_add_log_function(StageTimes::OnLog, &stages_, nullptr);
    gst_debug_set_threshold_for_name(StageTimes::kEngineCategory, GST_LEVEL_TRACE);
  }
  void StopNotingStages() {
    gst_debug_unset_threshold_for_name(StageTimes::kEngineCategory);
    gst_debug_remove_log_function_by_data(&stages_);
    gst_debug_add_log_function(gst_debug_log_default, nullptr, nullptr);
  }
  // Stages of the last utterance.
  std::array<double, kStages> stages() const { return stages_.Durations(); }

  // Speaks all of `texts` and the end of the stream. Seconds of audio and of time.
  std::pair<double, double> SpeakAll(const std::vector<std::string>& texts) {
    {
      std::lock_guard lock(mutex_);
      samples_time_ = 0;
    }
    const auto start = Clock::now();
    for (const std::string& text : texts) Push(text);
    gst_app_src_end_of_stream(GST_APP_SRC(text_));
    gst_message_unref(Wait(GST_MESSAGE_EOS));
    const double seconds = Milliseconds(Clock::now() - start) / 1000;
    std::lock_guard lock(mutex_);
    return {static_cast<double>(samples_time_) / GST_SECOND, seconds};
  }

 private:
  static GstPadProbeReturn OnBuffer(GstPad*, GstPadProbeInfo* info, gpointer user) {
    auto* const self = static_cast<Speaker*>(user);
    const auto now = Clock::now();
    self->stages_.Pass(kBuffer);
    std::lock_guard lock(self->mutex_);
    GstBuffer* const buffer = GST_PAD_PROBE_INFO_BUFFER(info);
    if (self->first_ == Clock::time_point()) {
      self->first_ = now;
      self->played_ = 0;
    }
    if (self->audible_ < 0) self->FindAudible(buffer);
    self->samples_time_ += GST_BUFFER_DURATION(buffer);
    return GST_PAD_PROBE_OK;
  }

  static GstPadProbeReturn OnText(GstPad*, GstPadProbeInfo*, gpointer user) {
    static_cast<Speaker*>(user)->stages_.Pass(kPad);
    return GST_PAD_PROBE_OK;
  }

  static GstBusSyncReply OnMessage(GstBus*, GstMessage* message, gpointer user) {
    if (gst_message_has_name(message, "qtts-utterance-started")) static_cast<Speaker*>(user)->stages_.Pass(kTold);
    return GST_BUS_PASS;
  }

  // With mutex_ held: looks for the first audible sample in the next buffer of an utterance.
  void FindAudible(GstBuffer* buffer) {
    constexpr double kSamplesPerMillisecond = 24;
    GstMapInfo map;
    if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) Fail("a buffer cannot be read");
    const auto* const samples = reinterpret_cast<const float*>(map.data);
    const size_t count = map.size / sizeof(float);
    const auto* const found = std::find_if(samples, samples + count, [](float x) { return std::fabs(x) >= kAudible; });
    if (found != samples + count) audible_ = played_ + static_cast<double>(found - samples) / kSamplesPerMillisecond;
    played_ += static_cast<double>(count) / kSamplesPerMillisecond;
    gst_buffer_unmap(buffer, &map);
  }

  void Push(const std::string& text) {
    GstBuffer* const buffer = gst_buffer_new_memdup(text.data(), text.size());
    if (gst_app_src_push_buffer(GST_APP_SRC(text_), buffer) != GST_FLOW_OK) Fail("the text was refused");
  }

  guint64 Utterances() const {
    GstStructure* stats = nullptr;
    g_object_get(speech_, "stats", &stats, nullptr);
    guint64 count = 0;
    if (!gst_structure_get_uint64(stats, "utterances", &count)) Fail("stats has no utterances");
    gst_structure_free(stats);
    return count;
  }

  GstMessage* Wait(GstMessageType type) const {
    GstBus* const bus = gst_element_get_bus(pipeline_);
    GstMessage* const message = gst_bus_timed_pop_filtered(
        bus, 600 * GST_SECOND,
        static_cast<GstMessageType>(static_cast<int>(type) | static_cast<int>(GST_MESSAGE_ERROR)));
    gst_object_unref(bus);
    if (!message) Fail("nothing happened for ten minutes");
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      GError* error = nullptr;
      gst_message_parse_error(message, &error, nullptr);
      Fail(error->message);
    }
    return message;
  }

  GstElement* pipeline_;
  GstElement* text_;
  GstElement* speech_;
  std::mutex mutex_;
  Clock::time_point first_;
  double played_ = 0;    // milliseconds of sound of the utterance so far
  double audible_ = -1;  // of these, before the first audible sample; -1: there is none
  GstClockTime samples_time_ = 0;
  const std::chrono::milliseconds rest_;
  StageTimes stages_;
};

// Bytes of weights that one frame reads: the talker once, the predictor once for each of its codes, the
// codec once.
double WeightBytesPerFrame(const qtts::Checkpoint& checkpoint) {
  const auto layers = [](const qtts::TransformerWeights& transformer) {
    double bytes = 0;
    for (const auto& l : transformer.layers) {
      for (const auto* t : {&l.q.weight, &l.k.weight, &l.v.weight, &l.o.weight, &l.gate, &l.up, &l.down}) {
        bytes += static_cast<double>(t->bytes());
      }
    }
    return bytes;
  };
  const auto& predictor = checkpoint.predictor();
  double bytes = layers(checkpoint.talker().transformer) + static_cast<double>(checkpoint.talker().codec_head.bytes());
  for (const auto& head : predictor.heads) bytes += static_cast<double>(head.bytes());
  bytes += static_cast<double>(predictor.heads.size()) * layers(predictor.transformer);
  const auto& codec = checkpoint.codec();
  bytes += layers(codec.transformer) + static_cast<double>(codec.first_conv.weight.bytes());
  for (const auto& stage : codec.upsample) {
    bytes += static_cast<double>(stage.transposed.weight.bytes() + stage.expand.weight.bytes() +
                                 stage.contract.weight.bytes());
  }
  for (const auto& block : codec.blocks) {
    bytes += static_cast<double>(block.transposed.weight.bytes());
    for (const auto& unit : block.residuals)
      bytes += static_cast<double>(unit.conv1.weight.bytes() + unit.conv2.weight.bytes());
  }
  return bytes;
}

// Read bandwidth over `bytes` of memory, by all cores, bytes per second: best of several passes.
double ReadBandwidth(size_t bytes) {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  const size_t words = std::max<size_t>(bytes / sizeof(uint64_t) / threads, 4096);
  std::vector<std::vector<uint64_t>> parts(threads, std::vector<uint64_t>(words, 1));
  std::atomic<uint64_t> total = 0;
  double best = 0;
  for (int pass = 0; pass < 20; ++pass) {
    const auto start = Clock::now();
    std::vector<std::thread> workers;
    for (auto& part : parts) {
      workers.emplace_back([&] {
        for (int i = 0; i < 4; ++i) total += std::accumulate(part.begin(), part.end(), uint64_t{0});
      });
    }
    for (auto& worker : workers) worker.join();
    best = std::max(best, 4.0 * static_cast<double>(words * sizeof(uint64_t) * threads) /
                              (Milliseconds(Clock::now() - start) / 1000));
  }
  return total == 0 ? 0 : best;
}

Options Parse(int argc, char** argv) {
  Options options;
  Arguments(kUsage)
      .Positional(&options.model)
      .Flag("--stages", &options.stages)
      .Add("--device", &options.device, {"cpu", "cuda"})
      .Add("--codec-precision", &options.codec_precision, {"exact", "fast"})
      .Add("--voice-file", &options.voice_file)
      .Add("--set",
           [&](std::string_view value) {
             const size_t equals = value.find('=');
             if (equals == std::string_view::npos) Fail("--set: say NAME=VALUE");
             options.properties.emplace_back(value.substr(0, equals), value.substr(equals + 1));
           })
      .Add("--json", &options.json)
      .Add("--sentences", &options.sentences)
      .Add("--utterances", &options.utterances, 1)
      .Add("--frames", &options.frames, 1)
      .Add("--seconds", &options.seconds, 1)
      .Add("--rest", &options.rest, 1)
      .Add("--loads", &options.loads, 1)
      .Parse(argc, argv);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const Options options = Parse(argc, argv);
  const std::vector<std::string> sentences = Sentences(options.sentences);

  std::vector<double> loads;
  for (int i = 0; i < options.loads; ++i) loads.push_back(Speaker(options).Load());

  std::vector<double> first, silence, audible;
  std::array<std::vector<double>, kStages> stages;
  std::pair<double, double> all;
  {
    Speaker speaker(options);
    speaker.Load();
    speaker.Limit(options.frames);
    speaker.Speak(sentences[0]);
    std::vector<std::string> texts = RandomTexts(sentences, options.utterances);
    for (int round = 0; round < kRounds && options.utterances == 0; ++round) {
      texts.insert(texts.end(), sentences.begin(), sentences.end());
    }
    for (const std::string& text : texts) {
      const FirstSound sound = speaker.Speak(text);
      first.push_back(sound.buffer);
      if (sound.silence < 0) continue;
      silence.push_back(sound.silence);
      audible.push_back(sound.buffer + sound.silence);
    }
    if (options.stages) {
      speaker.NoteStages();
      for (const std::string& text : texts) {
        speaker.Speak(text);
        const std::array<double, kStages> durations = speaker.stages();
        for (size_t i = 0; i < kStages; ++i) stages.at(i).push_back(durations.at(i));
      }
      speaker.StopNotingStages();
    }
    constexpr int kFramesPerUtterance = 125;  // 10 s
    speaker.Limit(options.seconds == 0 ? 0 : kFramesPerUtterance);
    all = speaker.SpeakAll(options.seconds == 0
                               ? sentences
                               : RandomTexts(sentences, std::max(1, options.seconds * 25 / 2 / kFramesPerUtterance)));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double frame_ms = all.second / all.first * 80;
  const Spread load = Summarize(loads);
  const Spread latency = Summarize(first);
  const Spread quiet = silence.empty() ? Spread() : Summarize(silence);
  const Spread sound = audible.empty() ? Spread() : Summarize(audible);

  Json report = {{"model", options.model},
                 {"device", options.device},
                 {"codec_precision", options.codec_precision},
                 {"load_ms", load.ToJson()},
                 {"first_buffer_ms", latency.ToJson()},
                 {"leading_silence_ms", quiet.ToJson()},
                 {"first_audible_ms", sound.ToJson()},
                 {"inaudible_utterances", first.size() - audible.size()},
                 {"times_real_time", all.first / all.second},
                 {"frame_ms", frame_ms},
                 {"peak_memory_kib", usage.ru_maxrss}};
  for (size_t i = 0; i < kStages && options.stages; ++i) {
    report["stages_ms"][kStageNames.at(i).json] = Summarize(stages.at(i)).ToJson();
  }
  double bytes = 0, bandwidth = 0;
  if (options.device == "cpu") {
    const auto checkpoint = qtts::Checkpoint::Open(options.model);
    if (!checkpoint.ok()) Fail(checkpoint.status().message());
    bytes = WeightBytesPerFrame(**checkpoint);
    bandwidth = ReadBandwidth(static_cast<size_t>((*checkpoint)->Info().weight_bytes));
    report["weight_bytes_per_frame"] = bytes;
    report["read_bandwidth"] = bandwidth;
    report["floor_ms"] = bytes / bandwidth * 1000;
  }
  if (options.json == "-") {
    std::printf("%s\n", report.dump().c_str());
    return 0;
  }
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << '\n';
  std::printf("model                       %s\n", options.model.c_str());
  load.Print("load, from page cache", loads.size());
  latency.Print("text in -> first buffer", first.size());
  quiet.Print("first buffer -> audible", silence.size());
  sound.Print("text in -> audible", audible.size());
  for (size_t i = 0; i < kStages && options.stages; ++i) {
    const Spread spread = Summarize(stages.at(i));
    std::printf("  %-60s %6.3f ms median, %.3f p95\n", kStageNames.at(i).label, spread.p50, spread.p95);
  }
  std::printf("speed                       %.1f times real time (%.1f s of speech in %.2f s; %.2f ms a frame)\n",
              all.first / all.second, all.first, all.second, frame_ms);
  if (options.device == "cpu") {
    const double floor_ms = bytes / bandwidth * 1000;
    std::printf(
        "floor                       %.2f ms a frame (%.1f MB of weights read at %.1f GB/s, measured); %.0f %% "
        "reached\n",
        floor_ms, bytes / 1e6, bandwidth / 1e9, 100 * floor_ms / frame_ms);
  }
  std::printf("peak memory                 %.0f MB\n", static_cast<double>(usage.ru_maxrss) / 1024 * 1.048576);
  return 0;
}
