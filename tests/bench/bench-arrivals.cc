// SPDX-License-Identifier: LGPL-2.1-or-later
// The scheduler under random requests, above a simulated device that takes the times of a table: time to first sound,
// and gaps. For decisions about when steps run; figures of a GPU come from bench-load.
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "checkpoint/checkpoint.h"
#include "prompt/prompt.h"
#include "simulated_load.h"
#include "text/tokenizer.h"

namespace {

using qtts::bench::Arguments;
using qtts::bench::DeviceTimes;
using qtts::bench::Fail;
using qtts::bench::SimulatedLoad;
using qtts::bench::SimulatedOptions;
using qtts::bench::SimulatedResults;
using qtts::bench::Take;

constexpr std::string_view kUsage =
    "usage: bench-arrivals [OPTION]...\n"
    "  --arrivals X,X... requests a second (default 1,10,20,100)\n"
    "  --streams N       a constant set instead: who has ended is replaced\n"
    "  --ramp SECONDS    time over which the set comes (default: a quarter of all)\n"
    "  --seconds N       of each (default 20)\n"
    "  --frames A-B      of an utterance, at random (default 22-180)\n"
    "  --slots N         (default 1024)\n"
    "  --read-ahead S    listeners take frames S seconds before they play them, as an application's queues do\n"
    "                    (default 0)\n"
    "  --model 0.6b|1.7b|1.7b-fast on an H100 (default 0.6b), 1.7b-h200|0.6b-fast-h200|1.7b-fast-h200 on an H200\n"
    "  --slower X        the device takes X times as long (default 1)\n"
    "  --hiccups N       of a thousand steps N take 20 ms longer (default 0)\n"
    "  --pages N         for contexts, of 128 positions (default 0: no limit). The texts are too short for their\n"
    "                    frames, so what the scheduler expects is wrong.\n"
    "  --seed N          (default 1)\n"
    "The last column is the shortest time in ms before its listener needed it that a frame behind the fourth came.\n"
    "The first frame is silence with preset voices: the second is the first sound. Gaps are counted before an\n"
    "utterance's second, third, fourth and all further frames. Time is simulated too: each run is the same.\n";

struct Options {
  SimulatedOptions load;
  std::vector<double> arrivals;  // requests a second; empty: the default, or a constant set
  double ramp = -1;
};

Options Parse(int argc, char** argv) {
  Options options;
  std::string model = "0.6b";
  Arguments(kUsage)
      .Add("--arrivals", &options.arrivals, 1e-9)
      .Add("--streams", &options.load.streams, 1)
      .Add("--ramp", &options.ramp)
      .Add("--seconds", &options.load.seconds)
      .AddRange("--frames", &options.load.least_frames, &options.load.most_frames, 2)
      .Add("--slots", &options.load.slots)
      .Add("--read-ahead", &options.load.read_ahead)
      .Add("--model", &model, {"0.6b", "1.7b", "1.7b-fast", "1.7b-h200", "0.6b-fast-h200", "1.7b-fast-h200"})
      .Add("--slower", &options.load.slower)
      .Add("--hiccups", &options.load.hiccups)
      .Add("--pages", &options.load.pages)
      .Add("--seed", &options.load.seed)
      .Parse(argc, argv);
  if (options.load.streams > 0 && !options.arrivals.empty()) Fail("--arrivals or --streams, not both");
  if (options.load.streams == 0 && options.arrivals.empty()) options.arrivals = {1, 10, 20, 100};
  options.load.ramp = options.ramp >= 0 ? options.ramp : options.load.seconds / 4;
  if (model == "1.7b") options.load.times = DeviceTimes::Exact17B();
  if (model == "1.7b-h200") options.load.times = DeviceTimes::H200Exact17B();
  if (model == "0.6b-fast-h200") options.load.times = DeviceTimes::H200Fast06B();
  if (model == "1.7b-fast-h200") options.load.times = DeviceTimes::H200Fast17B();
  if (model == "1.7b-fast") options.load.times = DeviceTimes::Fast17B();
  return options;
}

void Measure(const SimulatedOptions& options, const std::shared_ptr<const qtts::PromptBuilder>& prompts,
             const std::shared_ptr<const qtts::Tokenizer>& tokenizer) {
  const SimulatedResults r = Take(SimulatedLoad(options, prompts, tokenizer).Run());
  const auto quantile = &SimulatedResults::Quantile;
  std::printf("%8.0f %9zu %8.1f/%-8.1f %8.1f/%-8.1f %9lld  %lld, %lld, %lld, %-8lld %8.1f/%-8.0f %4.0f %6.1f\n",
              options.arrivals, r.most_at_once, quantile(r.first_frames, 0.5), quantile(r.first_frames, 0.95),
              quantile(r.first_sounds, 0.5), quantile(r.first_sounds, 0.95), static_cast<long long>(r.frames),
              static_cast<long long>(r.late_of[0]), static_cast<long long>(r.late_of[1]),
              static_cast<long long>(r.late_of[2]), static_cast<long long>(r.late_of[3]), r.all_gaps / 1e3,
              r.longest_gap, r.busy * 100, r.least_store);
  if (options.pages > 0) {
    std::printf("%llu times was a stream parked, %d at once at most\n", static_cast<unsigned long long>(r.parkings),
                r.most_parked);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto checkpoint = Take(qtts::Checkpoint::Open(QTTS_BENCH_VOICE));
  const auto tokenizer = Take(qtts::Tokenizer::Load(QTTS_BENCH_VOICE));
  const auto prompts =
      std::make_shared<const qtts::PromptBuilder>(Take(qtts::PromptBuilder::Create(checkpoint->config(), tokenizer)));
  std::printf("a simulated device, %g times as slow as its table; %d slots\n", options.load.slower, options.load.slots);
  std::printf("%8s %9s %17s %17s %9s  %-17s %17s %4s %6s\n", "a second", "at once", "frame 0, p50/p95",
              "sound, p50/p95", "frames", "gaps: 1, 2, 3, on", "all s/longest ms", "busy %", "store");
  SimulatedOptions load = options.load;
  if (load.streams > 0) {
    Measure(load, prompts, tokenizer);
    return 0;
  }
  for (const double arrivals : options.arrivals) {
    load.arrivals = arrivals;
    Measure(load, prompts, tokenizer);
  }
  return 0;
}
