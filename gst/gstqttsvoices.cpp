// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsvoices.h"

#include <glib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "gstqttsreference.h"
#include "gstqttstext.h"
#include "qtts/engine.h"
#include "qtts/resources.h"
#include "qtts/utf8.h"
#include "qtts/voice.h"

namespace gstqtts {
namespace {

// Returns the beginning of an instruction with its first word, which may choose a take of a voice file: all of it if it
// has no letter.
std::string FirstWordOf(const std::string& instruct) {
  std::string text = RepairUtf8(instruct);
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const qtts::Utf8Char next = qtts::DecodeUtf8(std::string_view(text).substr(at));
    if (in_word && (next.code == U' ' || next.code == U'\n' || next.code == U'\t')) return text.substr(0, at);
    in_word = in_word || g_unichar_isalnum(next.code);
    at += next.size;
  }
  return text;
}

// Returns the inputs of a voice.
std::string KeyOf(const qtts::Engine& engine, const Settings& settings) {
  const std::string& file = settings.voice_file.empty() ? settings.reference_audio : settings.voice_file;
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(file, error);
  std::string key = engine.info().fingerprint;
  const bool by_instruct = !settings.voice_file.empty() && settings.style.empty();
  const std::string chosen_by = by_instruct ? FirstWordOf(settings.instruct) : "";
  for (const std::string& part :
       {settings.voice_file, settings.style, chosen_by, settings.reference_audio, settings.reference_text}) {
    key.append(1, '\0').append(part);
  }
  key.append(settings.pad_reference ? "+" : "-").append(settings.prepare_reference ? "+" : "-");
  return error ? key : key + std::to_string(changed.time_since_epoch().count());
}

qtts::Result<qtts::ClonedVoice> MakeVoice(const qtts::Engine& engine, const Settings& settings,
                                          const std::function<bool()>& cancelled) {
  if (!settings.voice_file.empty()) {
    return qtts::LoadVoice(settings.voice_file, settings.style, settings.instruct);
  }
  QTTS_ASSIGN_OR_RETURN(const qtts::Recording recording, ReadReference(settings.reference_audio, cancelled));
  qtts::CloneOptions options;
  options.reference_text = settings.reference_text;
  options.pad_reference = settings.pad_reference;
  options.prepare = settings.prepare_reference;
  return engine.CloneVoice(recording, options);
}

}  // namespace

struct VoiceStore::Job {
  std::string key;
  std::atomic<bool> cancelled = false;
  std::atomic<bool> done = false;
  qtts::Status status;  // these two once done
  std::shared_ptr<const qtts::ClonedVoice> voice;
  std::thread thread;  // last: it uses the rest

  ~Job() {
    if (thread.joinable()) thread.join();
  }
};

VoiceStore::VoiceStore(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
VoiceStore::~VoiceStore() { Cancel(); }

std::optional<VoiceStore::Voice> VoiceStore::Get(const std::shared_ptr<const qtts::Engine>& engine,
                                                 const Settings& settings) {
  if (qtts::Status status = CheckSettings(settings); !status.ok()) return status;
  if (!settings.names_voice()) return std::shared_ptr<const qtts::ClonedVoice>();
  const std::string key = KeyOf(*engine, settings);
  if (std::optional<qtts::Status> failure = Collect(key)) return *std::move(failure);
  if (const auto* voice = made_.Find(key)) return *voice;
  if (job_ != nullptr && job_->key != key) Cancel();
  if (job_ == nullptr) Start(key, engine, settings);
  return Collect(key);
}

void VoiceStore::Prepare(const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings) {
  if (job_ != nullptr || !settings.names_voice() || !CheckSettings(settings).ok()) return;
  const std::string key = KeyOf(*engine, settings);
  if (made_.Find(key) == nullptr) Start(key, engine, settings);
}

void VoiceStore::Cancel() {
  JoinEnded();
  if (job_ == nullptr) return;
  job_->cancelled = true;
  given_up_.push_back(std::move(job_));
}

void VoiceStore::JoinEnded() {
  std::erase_if(given_up_, [](const std::unique_ptr<Job>& job) { return job->done.load(); });
}

// Stores finished voices. A failure is returned to the caller that asks for `key`, and not stored.
std::optional<qtts::Status> VoiceStore::Collect(const std::string& key) {
  if (job_ == nullptr || !job_->done) return std::nullopt;
  const std::unique_ptr<Job> job = std::exchange(job_, nullptr);
  if (!job->status.ok()) return job->key == key ? std::optional(job->status) : std::nullopt;
  warnings_.insert(warnings_.end(), job->voice->warnings.begin(), job->voice->warnings.end());
  made_.Insert(job->key, job->voice);
  return std::nullopt;
}

void VoiceStore::Start(const std::string& key, const std::shared_ptr<const qtts::Engine>& engine,
                       const Settings& settings) {
  job_ = std::make_unique<Job>();
  job_->key = key;
  auto thread =
      qtts::StartThread("make a voice", [job = job_.get(), on_done = on_done_, engine = engine, settings]() mutable {
        job->status = qtts::CatchExhaustion("make a voice", [&] {
          QTTS_ASSIGN_OR_RETURN(qtts::ClonedVoice made,
                                MakeVoice(*engine, settings, [job] { return job->cancelled.load(); }));
          job->voice = std::make_shared<const qtts::ClonedVoice>(std::move(made));
          return qtts::Status::Ok();
        });
        engine.reset();
        job->done = true;
        on_done();
      });
  if (thread.ok()) {
    job_->thread = *std::move(thread);
  } else {
    job_->status = thread.status();
    job_->done = true;
  }
}

}  // namespace gstqtts
