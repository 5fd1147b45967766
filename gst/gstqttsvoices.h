// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_VOICES_H_
#define GST_QTTS_VOICES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttssettings.h"
#include "qtts/lru_cache.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
}

namespace gstqtts {

// Cloned voices of the settings, from voice files or recordings. A voice is made on a separate thread: one or two
// seconds for a recording, a few milliseconds for a file. The most recent voices are cached. A changed file is read
// again.
//
// Owned by the Speech. Used by the streaming thread; Cancel() and the destructor may run on another one while that
// thread is stopped. Not thread-safe.
class VoiceStore {
 public:
  using Voice = qtts::Result<std::shared_ptr<const qtts::ClonedVoice>>;

  // `on_done` is called on that thread when a voice is ready or has failed.
  explicit VoiceStore(std::function<void()> on_done);
  // Waits for the voice in progress.
  ~VoiceStore();
  VoiceStore(const VoiceStore&) = delete;
  VoiceStore& operator=(const VoiceStore&) = delete;

  // Returns the voice: null if the settings name none; an error if it cannot be made; nothing while this or another
  // voice is being made (call again after `on_done`).
  std::optional<Voice> Get(const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);
  // Starts to make the voice of settings for which Get() will be called, if no other voice is being made.
  void Prepare(const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);
  // Returns what is to be told about voices that were made since the last call: faults of their recordings.
  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }
  // Cancels the voice in progress without waiting for it.
  void Cancel();
  // Joins finished threads of cancelled voices. Does not block.
  void JoinEnded();

 private:
  static constexpr size_t kMostVoices = 32;

  struct Job;

  std::optional<qtts::Status> Collect(const std::string& key);
  void Start(const std::string& key, const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);

  const std::function<void()> on_done_;
  qtts::LruCache<std::shared_ptr<const qtts::ClonedVoice>> made_{kMostVoices};
  std::vector<std::string> warnings_;
  std::unique_ptr<Job> job_;                    // the voice in progress
  std::vector<std::unique_ptr<Job>> given_up_;  // whose threads may still run
};

}  // namespace gstqtts

#endif  // GST_QTTS_VOICES_H_
