// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_VOICES_H_
#define GST_QTTS_VOICES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gstqttssettings.h"
#include "qtts/lru_cache.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace qtts {
class Engine;
}

namespace gstqtts {

// The cloned voices that settings name, by file or by recording. A voice is made on a thread of its own, which takes
// a second or two for a recording and a few milliseconds for a file, and kept with those used last. A file that has
// changed since is read again.
//
// Owned by the Speech and used by the streaming thread, but for Cancel() and the destructor, which need that at
// rest; not thread-safe.
class VoiceStore {
 public:
  using Voice = qtts::Result<std::shared_ptr<const qtts::ClonedVoice>>;

  // `on_done` is called, on the other thread, when a voice was made or could not be.
  explicit VoiceStore(std::function<void()> on_done);
  // Waits for what is being made.
  ~VoiceStore();
  VoiceStore(const VoiceStore&) = delete;
  VoiceStore& operator=(const VoiceStore&) = delete;

  // The voice: null if the settings name none, an error if they name one that cannot be had. Nothing while it is
  // being made, before anything else; to be asked again after `on_done`.
  std::optional<Voice> Get(const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);
  // Begins to make the voice of settings that Get() is going to be asked for, if there is nothing else to make.
  void Prepare(const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);
  // Gives up what is being made, without waiting for it.
  void Cancel();
  // Joins the threads that have ended of what was given up. Waits for nothing.
  void JoinEnded();

 private:
  static constexpr size_t kMostVoices = 32;

  struct Job;

  std::optional<qtts::Status> Collect(const std::string& key);
  void Start(const std::string& key, const std::shared_ptr<const qtts::Engine>& engine, const Settings& settings);

  const std::function<void()> on_done_;
  qtts::LruCache<std::shared_ptr<const qtts::ClonedVoice>> made_{kMostVoices};
  std::unique_ptr<Job> job_;                    // what is being made
  std::vector<std::unique_ptr<Job>> given_up_;  // whose threads may still run
};

}  // namespace gstqtts

#endif  // GST_QTTS_VOICES_H_
