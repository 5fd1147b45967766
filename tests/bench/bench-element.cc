// SPDX-License-Identifier: LGPL-2.1-or-later
// What a user of the element feels, for one model folder on the CPU: load time, text to first sound in
// a warm element, speed over real time, memory. Beside them the floor: the time to read the weights a
// frame needs at the memory bandwidth measured in the same run.
//   bench-element [MODEL_DIR] [--json]
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kLoads = 10;
constexpr int kRounds = 4;  // over all sentences, for the latency

double Milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "bench-element: %s\n", message.c_str());
  std::exit(1);
}

struct Spread {
  double p50 = 0, p95 = 0, max = 0;
};

Spread Summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) { return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]; };
  return {at(0.5), at(0.95), values.back()};
}

std::vector<std::string> Sentences() {
  std::ifstream file(QTTS_BENCH_SENTENCES);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) Fail(std::string("no sentences in ") + QTTS_BENCH_SENTENCES);
  return lines;
}

// appsrc (text) ! qttssrc ! fakesink, and the times of the buffers that leave qttssrc.
class Speaker {
 public:
  explicit Speaker(const std::string& model) {
    pipeline_ = gst_pipeline_new(nullptr);
    text_ = gst_element_factory_make("appsrc", nullptr);
    speech_ = gst_element_factory_make("qttssrc", nullptr);
    GstElement* const sink = gst_element_factory_make("fakesink", nullptr);
    if (!text_ || !speech_ || !sink) Fail("appsrc, qttssrc or fakesink is missing; run in `meson devenv`");
    g_object_set(sink, "sync", FALSE, nullptr);
    g_object_set(speech_, "model-path", model.c_str(), "device", 1 /* cpu */, "seed", gint64{1}, nullptr);
    GstCaps* const caps = gst_caps_from_string("text/x-raw,format=utf8");
    g_object_set(text_, "caps", caps, "format", GST_FORMAT_TIME, nullptr);
    gst_caps_unref(caps);
    gst_bin_add_many(GST_BIN(pipeline_), text_, speech_, sink, nullptr);
    if (!gst_element_link_many(text_, speech_, sink, nullptr)) Fail("linking failed");
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

  // Speaks `text` and waits until it is over. Time from handing it in to the first buffer.
  double Speak(const std::string& text) {
    const guint64 before = Utterances();
    first_ = Clock::time_point();
    const auto start = Clock::now();
    Push(text);
    while (Utterances() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::lock_guard lock(mutex_);
    return Milliseconds(first_ - start);
  }

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
    std::lock_guard lock(self->mutex_);
    if (self->first_ == Clock::time_point()) self->first_ = Clock::now();
    self->samples_time_ += GST_BUFFER_DURATION(GST_PAD_PROBE_INFO_BUFFER(info));
    return GST_PAD_PROBE_OK;
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
  GstClockTime samples_time_ = 0;
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

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  std::string model = QTTS_BENCH_VOICE;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json") {
      json = true;
    } else {
      model = argv[i];
    }
  }
  const std::vector<std::string> sentences = Sentences();

  std::vector<double> loads;
  for (int i = 0; i < kLoads; ++i) loads.push_back(Speaker(model).Load());

  std::vector<double> first;
  std::pair<double, double> all;
  {
    Speaker speaker(model);
    speaker.Load();
    speaker.Speak(sentences[0]);
    for (int round = 0; round < kRounds; ++round) {
      for (const std::string& sentence : sentences) first.push_back(speaker.Speak(sentence));
    }
    all = speaker.SpeakAll(sentences);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  const auto checkpoint = qtts::Checkpoint::Open(model);
  if (!checkpoint.ok()) Fail(checkpoint.status().message());
  const double bytes = WeightBytesPerFrame(**checkpoint);
  const double bandwidth = ReadBandwidth(static_cast<size_t>((*checkpoint)->Info().weight_bytes));
  const double floor_ms = bytes / bandwidth * 1000;
  const double frame_ms = all.second / all.first * 80;

  const Spread load = Summarize(loads);
  const Spread latency = Summarize(first);
  if (json) {
    const Json report = {{"model", model},
                         {"load_ms", {{"p50", load.p50}, {"max", load.max}}},
                         {"first_buffer_ms", {{"p50", latency.p50}, {"p95", latency.p95}, {"max", latency.max}}},
                         {"times_real_time", all.first / all.second},
                         {"frame_ms", frame_ms},
                         {"weight_bytes_per_frame", bytes},
                         {"read_bandwidth", bandwidth},
                         {"floor_ms", floor_ms},
                         {"peak_memory_kib", usage.ru_maxrss}};
    std::printf("%s\n", report.dump().c_str());
    return 0;
  }
  std::printf("model                       %s\n", model.c_str());
  std::printf("load, from page cache       %.1f ms (worst of %d: %.1f)\n", load.p50, kLoads, load.max);
  std::printf("text in -> first buffer     %.1f ms median, %.1f p95, %.1f worst of %zu\n", latency.p50, latency.p95,
              latency.max, first.size());
  std::printf("speed                       %.1f times real time (%.1f s of speech in %.2f s; %.2f ms a frame)\n",
              all.first / all.second, all.first, all.second, frame_ms);
  std::printf(
      "floor                       %.2f ms a frame (%.1f MB of weights read at %.1f GB/s, measured); %.0f %% reached\n",
      floor_ms, bytes / 1e6, bandwidth / 1e9, 100 * floor_ms / frame_ms);
  std::printf("peak memory                 %.0f MB\n", static_cast<double>(usage.ru_maxrss) / 1024 * 1.048576);
  return 0;
}
