// SPDX-License-Identifier: LGPL-2.1-or-later
#include "speak.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "print_json.h"
#include "qtts/bundled_voice.h"
#include "qtts/engine.h"
#include "qtts/mutex.h"
#include "qtts/resources.h"
#include "qtts/text_check.h"
#include "qtts/utf8.h"
#include "sound_file.h"
#include "text.h"
#include "words.h"

namespace qtts {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSignalled = 128;  // a shell's exit status for a signal, minus the signal's number

void Warn(const std::string& warning) { std::cerr << "qtts-tool: warning: " << warning << '\n'; }

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Task {
  std::string folder;
  std::string text;
  bool bundled = false;  // no folder was named
};

Result<std::string> ReadText() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.find('\0') != std::string::npos) {
    return Status::InvalidArgument("standard input holds zero bytes, which UTF-8 text does not; convert it, for " +
                                   std::string("example with 'iconv -f UTF-16 -t UTF-8'"));
  }
  constexpr const char* kBlank = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
  text.erase(text.find_last_not_of(kBlank) + 1);
  return text;
}

// speak TEXT, speak DIR TEXT, speak --text TEXT or speak DIR --text TEXT.
Result<Task> TaskOf(const ToolOptions& options) {
  const bool by_option = !options.text.empty();
  std::vector<std::string> words = options.arguments;
  Task task;
  if (by_option) {
    if (words.size() > 1) {
      return Status::InvalidArgument("speak: \"" + words[1] + "\" and --text are two texts; leave one out");
    }
    task.text = options.text;
  } else {
    std::error_code error;
    if (words.empty() || (words.size() == 1 && std::filesystem::is_directory(words[0], error))) {
      return Status::InvalidArgument("speak: name what to speak, as in 'speak [DIR] \"Hello.\" --output out.wav'; " +
                                     std::string("the text - is standard input"));
    }
    task.text = words.back();
    words.pop_back();
    if (task.text == "-") {
      QTTS_ASSIGN_OR_RETURN(task.text, ReadText());
    }
  }
  const std::string given = std::exchange(task.text, RepairUtf8(task.text));
  if (task.text != given) Warn("speak: bytes of the text that are not UTF-8 were replaced by U+FFFD");
  task.bundled = words.empty();
  task.folder = task.bundled ? BundledVoicePath() : words[0];
  if (!IsSayable(task.text)) {
    return Status::InvalidArgument(
        "speak: the text has no letter, number or currency sign, so there is nothing to say");
  }
  return task;
}

Result<SoundFile::Format> FormatOf(const ToolOptions& options) {
  SoundFile::Format format;
  QTTS_ASSIGN_OR_RETURN(format.samples, SampleFormatOf(options));
  format.raw = options.raw;
  return format;
}

// Handles the signals that end a process, on its own thread. The first signal ends the speech and keeps the sound made
// so far; the second ends the process. Threads started later have these signals blocked.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, kWake);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN)
        sigaddset(&signals_, signal);  // signals ignored by nohup and shells stay ignored
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~EndSignals() {
    if (thread_.joinable()) {
      over_ = true;
      pthread_kill(thread_.native_handle(), kWake);
      thread_.join();
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Starts the thread. `temporary`: file to remove if the process must end at once; empty for none.
  Status Watch(const std::string& temporary) {
    auto thread = StartThread("wait for Ctrl-C", [this, temporary] {
      while (!over_) {
        int signal = 0;
        if (sigwait(&signals_, &signal) != 0) return;
        if (signal == kWake) continue;
        if (stopped_) {
          unlink(temporary.c_str());
          _exit(kSignalled + signal);
        }
        const MutexLock lock(mutex_);
        signal_ = signal;
        stopped_ = true;
        if (on_signal_) on_signal_();
      }
    });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    return Status::Ok();
  }

  // Calls `action` at the first signal, or now if there was one.
  void OnSignal(std::function<void()> action) {
    const MutexLock lock(mutex_);
    if (signal_ != 0 && action) action();
    on_signal_ = std::move(action);
  }

  const std::atomic<bool>& stopped() const { return stopped_; }
  // 0 before the first signal.
  int signal() const {
    const MutexLock lock(mutex_);
    return signal_;
  }

 private:
  static constexpr int kWake = SIGUSR1;

  sigset_t signals_ = {};
  sigset_t before_ = {};
  std::atomic<bool> over_ = false;
  std::atomic<bool> stopped_ = false;
  mutable Mutex mutex_;
  int signal_ QTTS_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_signal_ QTTS_GUARDED_BY(mutex_);
  std::thread thread_;
};

std::string WhyUnmeasured(const ModelInfo& info) {
  if (!info.description.alignment) {
    return "no word times: this model has no alignment head; 'qtts-tool align' finds it";
  }
  return "no word times: the alignment head did not follow this text; 'qtts-tool align' tells whether it is the right "
         "one";
}

// Tells what of the text was not spoken as it is written.
void WarnOfGaps(const WordsOfSpeech& speech) {
  const auto list = [&](const std::vector<TextRange>& ranges, const char* what) {
    if (ranges.empty()) return;
    std::string words;
    for (const TextRange& range : ranges) {
      words += " \"" + RepairUtf8(std::string_view(speech.text).substr(range.begin, range.end - range.begin)) + "\"";
    }
    Warn(std::string(what) + ":" + words);
  };
  list(speech.report.skipped, "words that were most likely not spoken");
  list(speech.report.repeated, "words that were most likely spoken again");
}

}  // namespace

Result<int> Speak(const ToolOptions& options) {
  if (options.output.empty()) {
    return Status::InvalidArgument("speak: name the file to write with --output: .wav, .raw, or - for standard output");
  }
  if (options.json && options.output == "-") {
    return Status::InvalidArgument("speak: --json and --output - both write to standard output; leave one out");
  }
  if (!options.words.empty()) QTTS_RETURN_IF_ERROR(CheckWordsFile(options.words));
  QTTS_ASSIGN_OR_RETURN(const SoundFile::Format format, FormatOf(options));
  QTTS_ASSIGN_OR_RETURN(const Task task, TaskOf(options));
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, task.folder));
  EndSignals signals;  // must precede every other thread
  QTTS_ASSIGN_OR_RETURN(const auto file, SoundFile::Open(options.output, format));
  QTTS_RETURN_IF_ERROR(signals.Watch(file->temporary()));

  const auto engine = Engine::Load(engine_options, &signals.stopped());
  if (signals.stopped()) return kSignalled + signals.signal();
  if (engine.status().code() == StatusCode::kNotFound && task.bundled) {
    return Status::NotFound("there is no bundled voice: " + engine.status().message() +
                            ", or set QTTS_VOICE_PATH to that of the voice");
  }
  if (!engine.ok()) return engine.status();
  if (!(*engine)->passed_over().empty()) Warn((*engine)->passed_over());
  const int sample_rate = (*engine)->info().sample_rate;
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, (*engine)->info().defaults));
  QTTS_ASSIGN_OR_RETURN(const TextPreparerOptions preparer, MakePreparerOptions(options, (*engine)->info()));
  request.text = PrepareText(task.text, preparer).spoken;
  if (!IsSayable(request.text)) {
    return Status::InvalidArgument("speak: nothing of the text is spoken once it is prepared for this model; " +
                                   std::string("see 'qtts-tool text', or use --normalize none"));
  }
  request.runaway_guard = true;
  if (!options.part_length) request.parts = PartBounds::Of((*engine)->info().part_characters);
  const auto start = Clock::now();
  QTTS_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, (*engine)->Start(request));
  for (const std::string& warning : stream->warnings()) Warn(warning);
  const std::string language_warning = LanguageWarning(task.text, (*engine)->info().languages, options.language);
  if (!language_warning.empty()) Warn(language_warning);
  signals.OnSignal([stream] { stream->Cancel(); });
  QTTS_RETURN_IF_ERROR(file->Begin(sample_rate));
  WordsOfSpeech speech{request.text, {}, {}, 0};
  Frame frame;
  uint64_t frames = 0;
  uint64_t samples = 0;
  while (stream->Read(&frame) == ReadState::kFrame) {
    QTTS_RETURN_IF_ERROR(file->Write(frame.pcm));
    ++frames;
    samples += frame.pcm.size();
    speech.words.insert(speech.words.end(), frame.words.begin(), frame.words.end());
  }
  signals.OnSignal({});
  QTTS_RETURN_IF_ERROR(stream->status());
  const int signal = signals.signal();
  const EndReason reason = stream->end_reason();
  if (frames == 0 && signal != 0) return kSignalled + signal;
  QTTS_RETURN_IF_ERROR(file->Finish());
  const double took = SecondsSince(start);
  const double seconds = static_cast<double>(samples) / sample_rate;
  const std::vector<SpokenWord> last_words = stream->last_words();
  speech.words.insert(speech.words.end(), last_words.begin(), last_words.end());
  speech.report = stream->report();
  speech.seconds = seconds;
  if (!options.words.empty()) {
    if (!speech.report.measured) Warn(WhyUnmeasured((*engine)->info()));
    QTTS_RETURN_IF_ERROR(WriteWords(options.words, speech));
  }
  WarnOfGaps(speech);
  if (reason == EndReason::kMaxDuration) Warn("stopped by the frame limit before the model ended the utterance");
  if (reason == EndReason::kRunaway) {
    Warn("the model missed the end of its text, and was stopped; another --seed will most likely work");
  }
  if (options.json) {
    PrintJson({{"file", options.output},
               {"samples", samples},
               {"frames", frames},
               {"seconds", seconds},
               {"took", took},
               {"speed", seconds / took},
               {"end", EndReasonName(reason)},
               {"report", ReportJson(speech.report, speech.text)},
               {"device", (*engine)->device_name()}});
  }
  std::fprintf(stderr, "%s: %.2f s%s, made in %.2f s (%.1f times real time) on %s\n", file->name().c_str(), seconds,
               reason == EndReason::kCancelled ? " up to the interruption" : "", took, seconds / took,
               (*engine)->device_name().c_str());
  return signal == 0 ? 0 : kSignalled + signal;
}

}  // namespace qtts
