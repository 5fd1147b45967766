// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_STREAM_READER_H_
#define GST_QTTS_STREAM_READER_H_

#include <memory>
#include <optional>
#include <utility>

#include "gstqttsengineholder.h"
#include "gstqttsmonitor.h"
#include "gstqttsretry.h"
#include "gstqttsspoken.h"
#include "gstqttsstarter.h"

namespace gstqtts {

// Reads the engine's stream of the current utterance: gives it the text that has come, takes the frames that it has,
// and asks for the utterance again if it was faulty or found no slot.
//
// Owned by the Player. Used by the streaming thread with the monitor's mutex, which is released while the engine or the
// stream is called.
class StreamReader {
 public:
  StreamReader(std::shared_ptr<Monitor> monitor, std::optional<SpokenUtterance>& spoken, UtteranceStarter& starter,
               EngineHolder& holder)
      : monitor_(std::move(monitor)), spoken_(spoken), starter_(starter), holder_(holder) {}
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  // Reads as many frames as are wanted. Returns false if the utterance was interrupted meanwhile or is being made
  // again.
  bool Read() QTTS_REQUIRES(monitor_held);

 private:
  bool TakeEnd(SpeechEnd end, std::shared_ptr<qtts::Stream>* old) QTTS_REQUIRES(monitor_held);
  bool Repeat(SpeechEnd* end, std::shared_ptr<qtts::Stream>* old) QTTS_REQUIRES(monitor_held);

  const std::shared_ptr<Monitor> monitor_;
  std::optional<SpokenUtterance>& spoken_ QTTS_GUARDED_BY(monitor_held);
  UtteranceStarter& starter_;
  EngineHolder& holder_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_STREAM_READER_H_
