// SPDX-License-Identifier: LGPL-2.1-or-later
// One engine under load, at the engine's interface: a constant set of streams, Poisson arrivals, or books without a
// clock. Readers take a frame every 80 ms from their first frame on, without pre-roll; a frame that is not there then
// is an underrun. The time of each sound is that of the engine's callback.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "arguments.h"
#include "frame_times.h"
#include "qtts/engine.h"

namespace {

using Clock = std::chrono::steady_clock;
using qtts::bench::Arguments;
using qtts::bench::Fail;
using qtts::bench::FrameTimes;
using qtts::bench::Take;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kFrameTime{80};

constexpr std::string_view kUsage =
    "usage: bench-load [MODEL_DIR] [OPTION]...  (default: the bundled voice)\n"
    "  --streams N       a constant set: who has ended is replaced at once (default 2)\n"
    "  --ramp SECONDS    begins the set's streams one after the other over this time (default 0: all at once)\n"
    "  --poisson X       arrivals at random, X requests a second, instead of the set\n"
    "  --books N         N streams that are read as fast as they come, instead: throughput\n"
    "  --seconds N       (default 20)\n"
    "  --words A-B       words of a text, at random (default 5-40)\n"
    "  --frames A-B      cuts utterances after so many frames, at random: random checkpoints do not end by themselves\n"
    "  --sentences FILE  where they are taken from (default: the voice's test sentences)\n"
    "  --device cpu|cuda|auto, --precision NAME, --codec-precision exact|fast, --threads N, --voices N\n"
    "  --spread          over all cards of the host: each stream takes the engine with the most free voices\n"
    "  --lead-frames N   frames that are made ahead of a reader (default: the engine's)\n"
    "  --max-wait MS     who waits longer for a slot is refused (default: nobody is)\n"
    "  --count-silence   the first sound is frame 0 even where it is silent, as with preset voices; otherwise the "
    "first\n"
    "                    frame above -60 dB\n"
    "  --seed N          of texts and arrivals (default 1)\n";

struct Options {
  qtts::EngineOptions engine;
  int streams = 2;
  double ramp = 0;
  double poisson = 0;
  int books = 0;
  int seconds = 20;
  std::string sentences = QTTS_BENCH_SENTENCES;
  int least_words = 5;
  int most_words = 40;
  int least_frames = 0;
  int most_frames = 0;  // 0: none is cut
  int lead_frames = 0;
  int max_wait_ms = -1;
  bool count_silence = false;
  bool spread = false;
  unsigned seed = 1;
};

// The codec's arithmetic.
std::string CodecText(const qtts::EngineOptions& options, bool on_gpu) {
  if (!on_gpu) return "in the precision of the model";
  if (options.precision == qtts::Precision::kF32) return "f32";
  return std::string(qtts::CodecPrecisionName(options.codec_precision));
}

Options Parse(int argc, char** argv) {
  Options options;
  qtts::EngineOptions& engine = options.engine;
  engine.model_path = QTTS_BENCH_VOICE;
  std::string device = "cpu";
  std::string precision = "auto";
  std::string codec_precision = "exact";
  Arguments(kUsage)
      .Positional(&engine.model_path)
      .Flag("--count-silence", &options.count_silence)
      .Flag("--spread", &options.spread)
      .Add("--streams", &options.streams)
      .Add("--ramp", &options.ramp)
      .Add("--poisson", &options.poisson)
      .Add("--books", &options.books)
      .Add("--seconds", &options.seconds)
      .AddRange("--words", &options.least_words, &options.most_words, 1)
      .AddRange("--frames", &options.least_frames, &options.most_frames, 1)
      .Add("--sentences", &options.sentences)
      .Add("--device", &device, {"cpu", "cuda", "auto"})
      .Add("--precision", &precision, {"auto", "bf16", "f32", "int8", "int4"})
      .Add("--codec-precision", &codec_precision, {"exact", "fast"})
      .Add("--threads", &engine.threads)
      .Add("--voices", &engine.voices)
      .Add("--lead-frames", &options.lead_frames)
      .Add("--max-wait", &options.max_wait_ms)
      .Add("--seed", &options.seed)
      .Parse(argc, argv);
  for (const auto known : {qtts::Device::kAuto, qtts::Device::kCpu, qtts::Device::kCuda}) {
    if (device == qtts::DeviceName(known)) engine.device = known;
  }
  for (const auto known : {qtts::Precision::kAuto, qtts::Precision::kBF16, qtts::Precision::kF32,
                           qtts::Precision::kInt8, qtts::Precision::kInt4}) {
    if (precision == qtts::PrecisionName(known)) engine.precision = known;
  }
  engine.codec_precision = codec_precision == "fast" ? qtts::CodecPrecision::kFast : qtts::CodecPrecision::kExact;
  if (options.poisson > 0 && options.books > 0) Fail("--poisson or --books, not both");
  return options;
}

struct Reader {
  std::shared_ptr<qtts::Engine> engine;
  std::unique_ptr<qtts::Stream> stream;
  std::shared_ptr<FrameTimes> times;
  Clock::time_point asked;
  int64_t frames = 0;
  bool heard = false;  // the first sound was heard
  bool waits = false;  // in an underrun: playback resumes when the frame has come
  bool playing = false;
};

struct Results {
  std::vector<double> first_sound;  // ms
  int64_t requests = 0;
  int64_t refused = 0;
  int64_t ended = 0;
  int64_t frames = 0;
  int64_t underruns = 0;
  int64_t streams_with_underruns = 0;
  std::array<int64_t, 4> underruns_of = {};    // frame 1, 2, 3, and all that follow
  std::map<int64_t, int64_t> underruns_begun;  // by the tens of seconds since the load began
  int64_t silent_first_frames = 0;
  int64_t first_frames = 0;
  double frame_indices = 0;
  int64_t most_at_once = 0;
  std::map<const qtts::Engine*, int64_t> frames_of_engine;
  // Counts of the first engine, since all streams of a set have begun.
  uint64_t steps = 0;
  uint64_t step_frames = 0;
  int64_t step_nanoseconds = 0;
  // State of the first engine, asked every 50 ms.
  int64_t pages = 0;
  int64_t fewest_free_pages = 0;
  int most_parked = 0;
  uint64_t parkings = 0;
};

bool IsSilent(const std::vector<float>& pcm) {
  return std::all_of(pcm.begin(), pcm.end(), [](float sample) { return std::fabs(sample) < 1e-3F; });
}

class Load {
 public:
  Load(const Options& options, std::shared_ptr<qtts::Engine> engine)
      : options_(options), engine_(std::move(engine)), random_(options.seed) {
    std::ifstream file(options_.sentences);
    for (std::string word; file >> word;) words_.push_back(word);
    if (words_.empty()) Fail("there are no words in " + options_.sentences);
  }

  // The readers' clock: one thread, which also starts the streams.
  Results Run() {
    start_ = Clock::now();
    results_.fewest_free_pages = engine_->occupancy().free_pages;
    auto look_again = start_;
    const auto end = start_ + std::chrono::seconds(options_.seconds);
    auto next_arrival = start_;
    const int set = options_.poisson > 0 ? 0 : options_.books > 0 ? options_.books : options_.streams;
    int begun = 0;
    const auto next_of_set = [&] {
      return start_ + std::chrono::duration_cast<Clock::duration>(Seconds(options_.ramp * begun / set));
    };
    while (Clock::now() < end) {
      auto now = Clock::now();
      for (; begun < set && next_of_set() <= now; ++begun) Start();
      while (options_.poisson > 0 && next_arrival <= now) {
        Start();
        next_arrival += std::chrono::duration_cast<Clock::duration>(
            Seconds(std::exponential_distribution<>(options_.poisson)(random_)));
      }
      while (!due_.empty() && due_.top().first <= now) {
        const size_t place = due_.top().second;
        due_.pop();
        Serve(place, now);
      }
      if (set > 0 && begun == set && requests_of_set_ == 0) requests_of_set_ = results_.requests;
      if (!all_since_ && requests_of_set_ > 0 && results_.first_frames >= requests_of_set_) {
        all_since_ = now;
        frames_before_ = results_.frames;
        before_ = engine_->occupancy();
      }
      if (now >= look_again) {
        NoteMemory();
        look_again = now + std::chrono::milliseconds(50);
      }
      auto wake = now + std::chrono::milliseconds(20);
      if (!due_.empty()) wake = std::min(wake, due_.top().first);
      if (options_.poisson > 0) wake = std::min(wake, next_arrival);
      if (begun < set) wake = std::min(wake, next_of_set());
      std::this_thread::sleep_until(std::min(wake, end));
    }
    NoteMemory();
    const auto stop = Clock::now();
    seconds_ = Seconds(stop - start_).count();
    if (all_since_) seconds_of_all_ = Seconds(stop - *all_since_).count();
    const qtts::Occupancy after = engine_->occupancy();
    results_.steps = after.steps - before_.steps;
    results_.step_frames = after.step_frames - before_.step_frames;
    results_.step_nanoseconds = after.step_nanoseconds - before_.step_nanoseconds;
    return results_;
  }

  double seconds() const { return seconds_; }
  // Sound a second since all streams of the set have begun; 0 if they never had.
  double RateOfAll() const {
    const double frames = static_cast<double>(results_.frames - frames_before_);
    return seconds_of_all_ > 0 ? frames * Seconds(kFrameTime).count() / seconds_of_all_ : 0;
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{1};

  std::string Text() {
    const int count = std::uniform_int_distribution<>(options_.least_words, options_.most_words)(random_);
    std::string text;
    for (int i = 0; i < count; ++i) text += (i > 0 ? " " : "") + words_[random_() % words_.size()];
    return text;
  }

  void Start() {
    auto reader = std::make_unique<Reader>();
    reader->engine = options_.spread ? Take(qtts::Engine::Acquire(options_.engine)) : engine_;
    reader->times = std::make_shared<FrameTimes>();
    qtts::Request request;
    request.text = Text();
    request.settings = engine_->info().defaults;
    if (options_.most_frames > 0) {
      request.settings.max_new_tokens =
          1 + std::uniform_int_distribution<>(options_.least_frames, options_.most_frames)(random_);
    }
    request.seed = static_cast<uint64_t>(++results_.requests);
    request.lead_frames = options_.lead_frames;
    request.real_time = options_.books == 0;
    request.runaway_guard = true;
    if (options_.max_wait_ms >= 0) request.max_wait = std::chrono::milliseconds(options_.max_wait_ms);
    reader->asked = Clock::now();
    reader->stream = Take(reader->engine->Start(request, [times = reader->times] { times->Add(); }));
    size_t place = 0;
    while (place < readers_.size() && readers_[place] != nullptr) ++place;
    if (place == readers_.size()) readers_.emplace_back();
    readers_[place] = std::move(reader);
    ++active_;
    results_.most_at_once = std::max(results_.most_at_once, active_);
    due_.emplace(Clock::now() + kPoll, place);
  }

  void NoteMemory() {
    const qtts::Occupancy now = engine_->occupancy();
    results_.pages = now.pages;
    results_.fewest_free_pages = std::min(results_.fewest_free_pages, now.free_pages);
    results_.most_parked = std::max(results_.most_parked, now.parked);
    results_.parkings = now.parkings;
  }

  // Reads the due frame of a reader, or all available frames of a book.
  void Serve(size_t place, Clock::time_point now) {
    Reader& reader = *readers_[place];
    const bool book = options_.books > 0;
    qtts::Frame frame;
    for (;;) {
      const qtts::ReadState state = reader.stream->TryRead(&frame);
      if (state == qtts::ReadState::kEnd) return End(place);
      if (state == qtts::ReadState::kPending) {
        if (!book && reader.playing && !reader.waits) {
          // No underrun if the utterance has ended: the end is reported one step after the last frame.
          reader.waits = true;
        }
        due_.emplace(now + kPoll, place);
        return;
      }
      Take(&reader, frame);
      if (book) continue;
      if (reader.waits) CountUnderrun(place, frame.index, now);
      if (!reader.playing || reader.waits) played_at_[place] = now;
      if (!reader.playing) played_at_[place] = reader.times->Of(0);
      reader.playing = true;
      reader.waits = false;
      played_at_[place] += kFrameTime;
      due_.emplace(played_at_[place], place);
      return;
    }
  }

  void CountUnderrun(size_t place, int64_t frame, Clock::time_point now) {
    ++results_.underruns;
    ++results_.underruns_of[static_cast<size_t>(std::clamp<int64_t>(frame, 1, 4) - 1)];
    ++results_.underruns_begun[static_cast<int64_t>(Seconds(now - start_).count() / 10)];
    if (!underrun_[place]) ++results_.streams_with_underruns;
    underrun_[place] = true;
  }

  void Take(Reader* reader, const qtts::Frame& frame) {
    if (underrun_.size() < readers_.size()) {
      underrun_.resize(readers_.size());
      played_at_.resize(readers_.size());
    }
    ++results_.frames;
    ++results_.frames_of_engine[reader->engine.get()];
    results_.frame_indices += static_cast<double>(frame.index);
    const bool silent = IsSilent(frame.pcm);
    if (frame.index == 0) {
      ++results_.first_frames;
      results_.silent_first_frames += silent ? 1 : 0;
    }
    if (!reader->heard && (!silent || options_.count_silence) && static_cast<size_t>(frame.index) < FrameTimes::kKept) {
      reader->heard = true;
      const Clock::time_point at = reader->times->Of(static_cast<size_t>(frame.index));
      results_.first_sound.push_back(Seconds(at - reader->asked).count() * 1e3);
    }
  }

  template <typename T>
  static T Take(qtts::Result<T> result) {
    return ::Take(std::move(result));
  }

  void End(size_t place) {
    const qtts::EndReason reason = readers_[place]->stream->end_reason();
    if (reason == qtts::EndReason::kError) Fail(readers_[place]->stream->status().message());
    if (reason == qtts::EndReason::kBusy) {
      ++results_.refused;
    } else {
      ++results_.ended;
    }
    readers_[place].reset();
    if (place < underrun_.size()) underrun_[place] = false;
    --active_;
    if (options_.poisson <= 0) Start();
  }

  const Options options_;
  const std::shared_ptr<qtts::Engine> engine_;
  Clock::time_point start_;
  std::mt19937 random_;
  std::vector<std::string> words_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::vector<bool> underrun_;                // of each reader
  std::vector<Clock::time_point> played_at_;  // time at which its next frame is due
  using Due = std::pair<Clock::time_point, size_t>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  int64_t active_ = 0;
  Results results_;
  double seconds_ = 0;
  int64_t requests_of_set_ = 0;  // until all of the set were begun, those of streams that have ended included
  std::optional<Clock::time_point> all_since_;
  int64_t frames_before_ = 0;
  qtts::Occupancy before_;  // then
  double seconds_of_all_ = 0;
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto engine = Take(qtts::Engine::Acquire(options.engine));
  // The engine of each card, before the clock runs.
  std::vector<std::shared_ptr<qtts::Engine>> engines = {engine};
  while (options.spread) {
    const auto next = Take(qtts::Engine::Acquire(options.engine));
    if (std::find(engines.begin(), engines.end(), next) != engines.end()) break;
    engines.push_back(next);
  }
  std::printf("model       %s, %s\n", engine->info().path.c_str(), engine->device_name().c_str());
  std::printf("codec       %s\n", CodecText(options.engine, engine->beside_host()).c_str());
  std::printf("voices      %d\n", engine->occupancy().slots);
  if (options.books > 0) {
    std::printf("load        %d books, read as fast as they come\n", options.books);
  } else if (options.poisson > 0) {
    std::printf("load        Poisson, %.2f requests/s\n", options.poisson);
  } else {
    std::printf("load        constant, %d streams, begun over %.0f s\n", options.streams, options.ramp);
  }
  std::printf("texts       %d to %d words", options.least_words, options.most_words);
  if (options.most_frames > 0) std::printf(", cut after %d to %d frames", options.least_frames, options.most_frames);
  std::printf("\n");
  Load load(options, engine);
  const Results r = load.Run();
  const double frames = static_cast<double>(r.frames);
  std::printf("time        %.1f s\n", load.seconds());
  std::printf("context     %.0f frames behind the prompt, on average\n", frames > 0 ? r.frame_indices / frames : 0);
  std::printf("requests    %lld, %lld ended, %lld refused; at most %lld at once\n", static_cast<long long>(r.requests),
              static_cast<long long>(r.ended), static_cast<long long>(r.refused),
              static_cast<long long>(r.most_at_once));
  std::printf("frame 0     silent in %lld of %lld, %s\n", static_cast<long long>(r.silent_first_frames),
              static_cast<long long>(r.first_frames),
              options.count_silence ? "counted as the first sound" : "not counted as the first sound");
  std::printf("first sound p50 %.1f ms, p95 %.1f ms, of %zu\n", Quantile(r.first_sound, 0.5),
              Quantile(r.first_sound, 0.95), r.first_sound.size());
  if (options.spread) {
    std::printf("cards       %zu, frames of each:", engines.size());
    for (const auto& [card, of_card] : r.frames_of_engine) std::printf(" %lld", static_cast<long long>(of_card));
    std::printf("\n");
  }
  if (options.books == 0) {
    std::printf("underruns   %lld of %lld frames, in %lld streams, at 80 ms a frame without pre-roll\n",
                static_cast<long long>(r.underruns), static_cast<long long>(r.frames),
                static_cast<long long>(r.streams_with_underruns));
  }
  if (r.underruns > 0) {
    std::printf("            of frames 1, 2, 3 and later ones: %lld, %lld, %lld, %lld; by ten seconds:",
                static_cast<long long>(r.underruns_of[0]), static_cast<long long>(r.underruns_of[1]),
                static_cast<long long>(r.underruns_of[2]), static_cast<long long>(r.underruns_of[3]));
    for (const auto& [tens, count] : r.underruns_begun) {
      std::printf(" %lld: %lld", static_cast<long long>(tens), static_cast<long long>(count));
    }
    std::printf("\n");
  }
  if (r.steps > 0) {
    const auto steps = static_cast<double>(r.steps);
    std::printf("steps       %.0f of %.0f streams and %.1f ms on average\n", steps,
                static_cast<double>(r.step_frames) / steps, static_cast<double>(r.step_nanoseconds) * 1e-6 / steps);
  }
  if (r.pages > 0) {
    std::printf("contexts    %lld of %lld pages free at least; %llu times was a stream parked, %d at once at most\n",
                static_cast<long long>(r.fewest_free_pages), static_cast<long long>(r.pages),
                static_cast<unsigned long long>(r.parkings), r.most_parked);
  }
  std::printf("throughput  %.2f audio-s/s", frames * Seconds(kFrameTime).count() / load.seconds());
  if (load.RateOfAll() > 0) std::printf(", %.2f since all have begun", load.RateOfAll());
  std::printf("\n");
  return 0;
}
