// SPDX-License-Identifier: LGPL-2.1-or-later
// Costs of a cloned voice at the engine: making one from a recording of ten seconds, loading a saved one, and the time
// to the first sound with it, beside that of a preset voice of another model folder.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "qtts/engine.h"
#include "tools/wav.h"

namespace {

using Clock = std::chrono::steady_clock;
using qtts::bench::Arguments;
using qtts::bench::Fail;
using qtts::bench::Take;

constexpr std::string_view kUsage =
    "usage: bench-voices BASE_DIR [OPTION]...\n"
    "  --preset-model DIR  a CustomVoice folder of the same structure, for the comparison\n"
    "  --audio WAV         the recording, repeated or cut to --seconds (default: one at 48 kHz, stereo)\n"
    "  --seconds N         (default 10)\n"
    "  --device cpu|cuda   (default cpu)\n"
    "  --threads N         (default 2)\n"
    "  --rounds N          voices made, and texts spoken with each (default 5)\n";

constexpr int kLoads = 200;
// Text of about ten seconds.
constexpr const char* kReferenceText =
    "The ferry leaves at half past seven in the morning, and if the weather is good it comes back the same evening "
    "with whatever the fishermen have caught.";

struct Options {
  std::string base;
  std::string preset;
  std::string audio = QTTS_BENCH_RECORDING;
  std::string device = "cpu";
  int seconds = 10;
  int threads = 2;
  int rounds = 5;
};

// Milliseconds of wall time, and of CPU time, which other work on the machine changes less.
struct Duration {
  double wall = 0;
  double processor = 0;
};

template <typename Work>
Duration Time(const Work& work) {
  const std::clock_t processor = std::clock();
  const auto start = Clock::now();
  work();
  return {std::chrono::duration<double, std::milli>(Clock::now() - start).count(),
          1000.0 * static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC};
}

Duration Print(const std::string& what, const std::vector<Duration>& times) {
  const auto sorted = [&](double Duration::*member) {
    std::vector<double> values;
    for (const Duration& time : times) values.push_back(time.*member);
    std::sort(values.begin(), values.end());
    return values;
  };
  const std::vector<double> wall = sorted(&Duration::wall);
  const Duration median = {wall[wall.size() / 2], sorted(&Duration::processor)[wall.size() / 2]};
  std::printf("%-58s %8.2f ms median (%.2f best, %.2f worst of %zu), processor %.2f ms\n", what.c_str(), median.wall,
              wall.front(), wall.back(), wall.size(), median.processor);
  std::fflush(stdout);
  return median;
}

std::string LoadAverage() {
  std::ifstream file("/proc/loadavg");
  std::string text;
  std::getline(file, text);
  return text;
}

qtts::Recording Reference(const Options& options) {
  qtts::Recording recording = Take(qtts::ReadWav(options.audio));
  const auto wanted =
      static_cast<size_t>(options.seconds) * static_cast<size_t>(recording.sample_rate * recording.channels);
  const std::vector<float> once = recording.samples;
  while (recording.samples.size() < wanted) {
    recording.samples.insert(recording.samples.end(), once.begin(), once.end());
  }
  recording.samples.resize(wanted);
  return recording;
}

std::shared_ptr<qtts::Engine> Load(const std::string& folder, const Options& options) {
  qtts::EngineOptions engine;
  engine.model_path = folder;
  engine.device = options.device == "cuda" ? qtts::Device::kCuda : qtts::Device::kCpu;
  engine.threads = options.threads;
  return Take(qtts::Engine::Load(engine));
}

// Time from the request to its first frame. Returns after the end of the utterance.
Duration FirstFrame(qtts::Engine* engine, qtts::Request request, int number) {
  request.text = "This is the text of number " + std::to_string(number) + ", a sentence of a dozen words.";
  request.settings = engine->info().defaults;
  request.settings.max_new_tokens = 2;  // one frame
  request.seed = static_cast<uint64_t>(number);
  qtts::Frame frame;
  std::unique_ptr<qtts::Stream> stream;
  const Duration time = Time([&] {
    stream = Take(engine->Start(request));
    if (stream->Read(&frame) != qtts::ReadState::kFrame) Fail("no frame: " + stream->status().message());
  });
  while (stream->Read(&frame) == qtts::ReadState::kFrame) continue;
  return time;
}

// First use, with empty caches, then others with other texts.
Duration Speak(const std::string& what, qtts::Engine* engine, const qtts::Request& request, const Options& options) {
  Print(what + ", first use", {FirstFrame(engine, request, 0)});
  std::vector<Duration> times;
  for (int i = 1; i <= options.rounds; ++i) times.push_back(FirstFrame(engine, request, i));
  return Print(what, times);
}

Options Parse(int argc, char** argv) {
  Options options;
  Arguments(kUsage)
      .Positional(&options.base)
      .Add("--preset-model", &options.preset)
      .Add("--audio", &options.audio)
      .Add("--seconds", &options.seconds, 1)
      .Add("--device", &options.device, {"cpu", "cuda"})
      .Add("--threads", &options.threads, 1)
      .Add("--rounds", &options.rounds, 1)
      .Parse(argc, argv);
  if (options.base.empty()) Fail("the folder of a base model is missing; see --help");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  std::printf("load average %s\n", LoadAverage().c_str());
  const qtts::Recording recording = Reference(options);
  const std::shared_ptr<qtts::Engine> engine = Load(options.base, options);
  std::printf("%s, %s: %d s at %d Hz, %d channels\n", options.base.c_str(), engine->device_name().c_str(),
              options.seconds, recording.sample_rate, recording.channels);

  qtts::ClonedVoice x_vector;
  qtts::ClonedVoice icl;
  const auto make_vector = [&] { x_vector = Take(engine->CloneVoice(recording)); };
  const auto make = [&] { icl = Take(engine->CloneVoice(recording, {.reference_text = kReferenceText})); };
  // On a GPU, the first use of each network uploads it.
  Print("recording -> voice, x-vector, first use", {Time(make_vector)});
  Print("recording -> voice, in-context, first use", {Time(make)});
  std::vector<Duration> making_vector;
  std::vector<Duration> making;
  for (int i = 0; i < options.rounds; ++i) {
    making_vector.push_back(Time(make_vector));
    making.push_back(Time(make));
  }
  Print("recording -> voice, x-vector", making_vector);
  Print("recording -> voice, in-context", making);

  const std::string file = (std::filesystem::temp_directory_path() / "bench-voices.safetensors").string();
  if (const qtts::Status status = qtts::SaveVoice(icl, file); !status.ok()) Fail(status.message());
  std::vector<Duration> loading;
  for (int i = 0; i < kLoads; ++i) loading.push_back(Time([&] { Take(qtts::LoadVoice(file)); }));
  Print("loading a saved voice of " + std::to_string(std::filesystem::file_size(file)) + " bytes", loading);
  std::filesystem::remove(file);

  Duration preset;
  const auto compare = [&](const char* what, const Duration& time) {
    if (preset.wall <= 0) return;
    std::printf("  %s against the preset: %+.0f %%, processor %+.0f %%\n", what, 100 * (time.wall / preset.wall - 1),
                100 * (time.processor / preset.processor - 1));
  };
  if (!options.preset.empty()) {
    const std::shared_ptr<qtts::Engine> custom = Load(options.preset, options);
    preset = Speak("first frame, preset speaker", custom.get(), {}, options);
    qtts::Request streaming;
    streaming.layout = qtts::PromptLayout::kStreaming;
    compare("streaming layout",
            Speak("first frame, preset speaker, streaming layout", custom.get(), streaming, options));
  }
  qtts::Request request;
  request.voice = std::make_shared<const qtts::ClonedVoice>(x_vector);
  compare("x-vector", Speak("first frame, x-vector", engine.get(), request, options));
  request.voice = std::make_shared<const qtts::ClonedVoice>(icl);
  compare("in-context", Speak("first frame, in-context", engine.get(), request, options));
  request.layout = qtts::PromptLayout::kNonStreaming;
  compare("in-context, non-streaming layout",
          Speak("first frame, in-context, non-streaming layout", engine.get(), request, options));
  return 0;
}
