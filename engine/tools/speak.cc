// SPDX-License-Identifier: LGPL-2.1-or-later
#include "speak.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "print_json.h"
#include "qtts/bundled_voice.h"
#include "qtts/engine.h"
#include "qtts/mutex.h"
#include "qtts/resources.h"
#include "qtts/tempo.h"
#include "qtts/text_check.h"
#include "qtts/utf8.h"
#include "sound_file.h"
#include "speech_plan.h"
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

// Parses speak TEXT, speak DIR TEXT, speak --text TEXT or speak DIR --text TEXT.
Result<Task> TaskOf(const ToolOptions& options) {
  const bool by_option = !options.text.empty();
  std::vector<std::string> words = options.arguments;
  Task task;
  if (by_option) {
    task.text = options.text;
  } else {
    task.text = words.back();
    words.pop_back();
    if (task.text == "-") {
      QTTS_ASSIGN_OR_RETURN(task.text, ReadText());
    }
  }
  const std::string given = std::exchange(task.text, RepairUtf8(task.text));
  if (task.text != given) Warn("speak: bytes of the text that are not UTF-8 were replaced by U+FFFD");
  task.folder = words.empty() ? BundledVoicePath() : words[0];
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
  // Returns 0 before the first signal.
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

// Has the engine speak step by step, and writes the sound.
class SpeechWriter {
 public:
  // `rate`: of all speech.
  SpeechWriter(Engine* engine, SoundFile* file, EndSignals* signals, double rate)
      : engine_(engine), file_(file), signals_(signals), rate_(rate) {}

  Status Write(const SpeechStep& step);

  uint64_t frames() const { return frames_; }
  uint64_t samples() const { return samples_; }
  // Returns the first one that is not the usual end.
  EndReason reason() const { return reason_; }
  // Returns the marks that were reached: name, position in the text, and time in the sound.
  const Json& marks() const { return marks_; }
  // Returns the words of all utterances.
  const WordsOfSpeech& words() const { return words_; }

 private:
  Status Begin();
  Status WriteSilence(std::chrono::nanoseconds duration);
  Status WriteUtterance(const SpeechStep& step);
  Status WriteSound(const SpeechStep& step, std::vector<float> pcm);
  void AddMark(const MarkupMark& mark, double seconds, bool estimated) {
    marks_.push_back(
        {{"name", mark.name}, {"position", mark.position}, {"seconds", seconds}, {"estimated", estimated}});
  }
  void AddMarkOf(const WordsOfSpeech& speech, const MarkupMark& mark, double begin);
  double Seconds(uint64_t samples) const { return static_cast<double>(samples) / engine_->info().sample_rate; }

  Engine* engine_;
  SoundFile* file_;
  EndSignals* signals_;
  const double rate_;
  bool begun_ = false;
  std::vector<std::string> told_;  // warnings of the last utterance
  uint64_t frames_ = 0;
  uint64_t samples_ = 0;
  EndReason reason_ = EndReason::kComplete;
  Json marks_ = Json::array();
  WordsOfSpeech words_;
};

// Adds a mark of an utterance that began at `begin`: where the word behind it begins, else by its share of the text.
void SpeechWriter::AddMarkOf(const WordsOfSpeech& speech, const MarkupMark& mark, double begin) {
  const size_t position = Utf8Head(speech.text, mark.text).size();
  const auto next =
      std::ranges::find_if(speech.words, [position](const SpokenWord& word) { return word.text.begin >= position; });
  if (speech.report.measured && next != speech.words.end()) {
    AddMark(mark, begin + std::chrono::duration<double>(next->start).count(), false);
  } else {
    const double share = static_cast<double>(position) / static_cast<double>(std::max<size_t>(speech.text.size(), 1));
    AddMark(mark, begin + speech.seconds * share, mark.text > 0);
  }
}

Status SpeechWriter::Begin() {
  if (std::exchange(begun_, true)) return Status::Ok();
  return file_->Begin(engine_->info().sample_rate);
}

Status SpeechWriter::WriteSilence(std::chrono::nanoseconds duration) {
  constexpr uint64_t kPiece = 24000;
  const auto rate = static_cast<uint64_t>(engine_->info().sample_rate);
  uint64_t left = static_cast<uint64_t>(duration.count()) * rate / 1'000'000'000;
  if (left > 0) QTTS_RETURN_IF_ERROR(Begin());
  while (left > 0 && !signals_->stopped()) {
    const std::vector<float> piece(std::min(left, kPiece));
    QTTS_RETURN_IF_ERROR(file_->Write(piece));
    samples_ += piece.size();
    left -= piece.size();
  }
  return Status::Ok();
}

Status SpeechWriter::WriteUtterance(const SpeechStep& step) {
  QTTS_ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, engine_->Start(step.request));
  if (stream->warnings() != told_) {
    told_ = stream->warnings();
    for (const std::string& warning : told_) Warn(warning);
  }
  signals_->OnSignal([stream] { stream->Cancel(); });
  QTTS_RETURN_IF_ERROR(Begin());
  const uint64_t begin = samples_;
  WordsOfSpeech speech{step.request.text, {}, {}, 0};
  std::optional<Tempo> tempo;
  const double rate = std::clamp(step.rate * rate_, Tempo::kMinRate, Tempo::kMaxRate);
  if (rate != 1) tempo.emplace(engine_->info().sample_rate).SetRate(rate);
  Frame frame;
  while (stream->Read(&frame) == ReadState::kFrame) {
    if (tempo) {
      tempo->Put(frame.pcm);
      frame.pcm.clear();
      tempo->Take(&frame.pcm);
    }
    QTTS_RETURN_IF_ERROR(WriteSound(step, std::move(frame.pcm)));
    ++frames_;
    speech.words.insert(speech.words.end(), frame.words.begin(), frame.words.end());
  }
  if (tempo) {
    std::vector<float> rest;
    tempo->Finish();
    tempo->Take(&rest);
    QTTS_RETURN_IF_ERROR(WriteSound(step, std::move(rest)));
  }
  signals_->OnSignal({});
  QTTS_RETURN_IF_ERROR(stream->status());
  if (reason_ == EndReason::kComplete) reason_ = stream->end_reason();
  const std::vector<SpokenWord> last_words = stream->last_words();
  speech.words.insert(speech.words.end(), last_words.begin(), last_words.end());
  for (SpokenWord& word : speech.words) {
    word.start = std::chrono::duration_cast<std::chrono::nanoseconds>(word.start / rate);
    word.duration = std::chrono::duration_cast<std::chrono::nanoseconds>(word.duration / rate);
  }
  speech.report = stream->report();
  speech.seconds = Seconds(samples_ - begin);
  for (const MarkupMark& mark : step.marks) AddMarkOf(speech, mark, Seconds(begin));
  AppendWords(speech, Seconds(begin), &words_);
  return Status::Ok();
}

Status SpeechWriter::WriteSound(const SpeechStep& step, std::vector<float> pcm) {
  if (step.gain != 1) {
    for (float& sample : pcm) sample = std::clamp(sample * static_cast<float>(step.gain), -1.0F, 1.0F);
  }
  samples_ += pcm.size();
  return file_->Write(pcm);
}

Status SpeechWriter::Write(const SpeechStep& step) {
  switch (step.kind) {
    case MarkupPart::Kind::kText:
      QTTS_RETURN_IF_ERROR(WriteSilence(step.silence));
      return WriteUtterance(step);
    case MarkupPart::Kind::kBreak:
      return WriteSilence(step.silence);
    case MarkupPart::Kind::kMark:
      AddMark(step.marks[0], Seconds(samples_), false);
      break;
  }
  return Status::Ok();
}

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
  const double rate = options.rate.value_or(1);
  QTTS_ASSIGN_OR_RETURN(const SoundFile::Format format, FormatOf(options));
  QTTS_ASSIGN_OR_RETURN(const Task task, TaskOf(options));
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, task.folder));
  EndSignals signals;  // must precede every other thread
  QTTS_ASSIGN_OR_RETURN(const auto file, SoundFile::Open(options.output, format));
  QTTS_RETURN_IF_ERROR(signals.Watch(file->temporary()));

  const auto engine = Engine::Load(engine_options, &signals.stopped());
  if (signals.stopped()) return kSignalled + signals.signal();
  if (!engine.ok()) return ExplainMissingVoice(engine.status(), task.folder);
  if (!(*engine)->passed_over().empty()) Warn((*engine)->passed_over());
  const int sample_rate = (*engine)->info().sample_rate;
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, (*engine)->info().defaults));
  request.runaway_guard = true;
  if (!options.part_length) request.parts = PartBounds::Of((*engine)->info().part_characters);
  std::vector<std::string> warnings;
  QTTS_ASSIGN_OR_RETURN(const std::vector<SpeechStep> steps,
                        PlanSpeech(task.text, request, options, (*engine)->info(), &warnings));
  for (const std::string& warning : warnings) Warn(warning);
  const std::string language_warning = LanguageWarning(task.text, (*engine)->info().languages, options.language);
  if (!language_warning.empty()) Warn(language_warning);
  const auto start = Clock::now();
  SpeechWriter writer(engine->get(), file.get(), &signals, rate);
  for (const SpeechStep& step : steps) {
    if (!signals.stopped()) QTTS_RETURN_IF_ERROR(writer.Write(step));
  }
  const int signal = signals.signal();
  const uint64_t frames = writer.frames();
  const uint64_t samples = writer.samples();
  const EndReason reason = writer.reason();
  if (frames == 0 && signal != 0) return kSignalled + signal;
  QTTS_RETURN_IF_ERROR(file->Finish());
  const double took = SecondsSince(start);
  const double seconds = static_cast<double>(samples) / sample_rate;
  const WordsOfSpeech& speech = writer.words();
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
               {"marks", writer.marks()},
               {"device", (*engine)->device_name()}});
  }
  std::fprintf(stderr, "%s: %.2f s%s, made in %.2f s (%.1f times real time) on %s\n", file->name().c_str(), seconds,
               reason == EndReason::kCancelled ? " up to the interruption" : "", took, seconds / took,
               (*engine)->device_name().c_str());
  return signal == 0 ? 0 : kSignalled + signal;
}

}  // namespace qtts
