// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_VOICES_H_
#define GST_QTTS_VOICES_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "gstqttssettings.h"
#include "qtts/engine.h"

namespace gstqtts {

// The cloned voices that settings name, by file or by recording. A voice is made when an utterance
// first asks for it, which takes a second or two for a recording and a few milliseconds for a file, and
// kept with those used last. A file that has changed since is read again.
//
// Owned by the streaming thread; not thread-safe.
class VoiceStore {
 public:
  // Null if the settings name no voice. `cancelled` is polled while a recording is read; then the status
  // is kCancelled.
  qtts::Result<std::shared_ptr<const qtts::ClonedVoice>> Get(const qtts::Engine& engine, const Settings& settings,
                                                             const std::function<bool()>& cancelled);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const qtts::ClonedVoice> voice;
  };

  std::deque<Entry> entries_;  // the last used first
};

}  // namespace gstqtts

#endif  // GST_QTTS_VOICES_H_
