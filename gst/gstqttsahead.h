// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_AHEAD_H_
#define GST_QTTS_AHEAD_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gstqttsretry.h"
#include "qtts/frame.h"
#include "qtts/request.h"

namespace qtts {
class Stream;
}

namespace gstqtts {

// Speech of an utterance that the engine makes while the utterance waits in the queue (property "parallel"). When the
// turn of the utterance comes, the Player continues with the stream and the frames read so far.
//
// Not thread-safe: used by the streaming thread alone, except `turn_came`.
struct AheadSpeech {
  uint64_t id = 0;
  qtts::Request request;                 // as it would be in its turn
  std::shared_ptr<qtts::Stream> stream;  // null: the engine has not taken the utterance, see `retry`
  bool retry = false;                    // ask again when a slot is free. If not set, ask in its turn
  bool ended = false;                    // `frames` has all frames that are left, and `end` the end
  std::optional<SpeechEnd> end;
  Retries retries;
  uint64_t seed = 0;  // of `frames`
  std::chrono::steady_clock::time_point start;
  std::chrono::nanoseconds first_frame_latency{0};
  std::deque<qtts::Frame> frames;
  // Flag: once it is set, each change of the stream wakes the streaming thread. Shared with the stream's callback.
  std::shared_ptr<std::atomic<bool>> turn_came = std::make_shared<std::atomic<bool>>(false);

  bool running() const { return stream != nullptr && !ended; }
};

// The speech that is made ahead, in the order of the queue.
//
// Owned by the Player. The list is guarded by the Monitor, since interrupts and flushes empty it. The speech in it
// belongs to the streaming thread, which reads the streams without the mutex.
class AheadList {
 public:
  using Clock = std::chrono::steady_clock;
  using Speeches = std::vector<std::shared_ptr<AheadSpeech>>;

  // Sets the number of utterances that are made at once, with the current one. 1: none is made ahead.
  void SetParallel(int parallel) { parallel_ = parallel; }

  // Returns true if an engine of `slots` slots may make one more ahead.
  bool HasRoom(int slots) const { return running_ + 1 < std::min(parallel_, slots); }
  // Returns the newest utterance that was considered. They are considered in their order, each once.
  uint64_t last_id() const { return last_id_; }
  // Returns the first speech to ask for again; null if there is none.
  std::shared_ptr<AheadSpeech> FindRetry() const;
  // Adds speech with a larger id than all before.
  void Add(std::shared_ptr<AheadSpeech> speech);
  // Returns true, for the first utterance of the queue, if the engine makes it already.
  bool IsMaking(uint64_t id) const;
  // Removes and returns its speech; null if it has none.
  std::shared_ptr<AheadSpeech> Take(uint64_t id);
  // Removes all. The caller must release them without the mutex.
  Speeches TakeAll();

  // Returns the time at which the streams are to be read next; nothing while there is nothing to read.
  std::optional<Clock::time_point> next_read() const;
  // Begins a read: a copy of the list, for ReadAhead() without the mutex.
  Speeches BeginRead();
  // Ends it. `all_read`: the result of ReadAhead().
  void EndRead(bool all_read);
  // Counts the streams that run. To be called after a change of the speech in the list.
  void Count();
  // Returns the maximum size of the frames that are read ahead, in bytes.
  size_t max_bytes() const { return static_cast<size_t>(parallel_) * kBytesEach; }

  // Returns the callback for a stream of `speech`. Calls `announce` for each change once the turn of the utterance has
  // come, and until then for the first change since the last read: many streams wake the streaming thread once a step.
  std::function<void()> NewCallback(const AheadSpeech& speech, std::function<void()> announce) const;

 private:
  static constexpr size_t kBytesEach = size_t{1} << 20U;  // 11 s of sound
  // Short enough that no stream fills its queue of frames meanwhile, long enough that reading them costs little.
  static constexpr std::chrono::milliseconds kBetweenReads{5};
  // The same if max_bytes() is reached.
  static constexpr std::chrono::milliseconds kBetweenReadsFull{20};

  int parallel_ = 1;
  int running_ = 0;
  uint64_t last_id_ = 0;
  std::deque<std::shared_ptr<AheadSpeech>> speeches_;
  bool full_ = false;  // the last read left frames
  Clock::time_point last_read_;
  const std::shared_ptr<std::atomic<bool>> readable_ = std::make_shared<std::atomic<bool>>(false);
};

// Reads the frames that the streams of `speeches` have, in order, until `max_bytes` are held. Returns false if it left
// frames.
bool ReadAhead(const AheadList::Speeches& speeches, size_t max_bytes);

}  // namespace gstqtts

#endif  // GST_QTTS_AHEAD_H_
