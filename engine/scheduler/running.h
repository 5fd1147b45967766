// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_RUNNING_H_
#define QTTS_SCHEDULER_RUNNING_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alignment/speech_aligner.h"
#include "base/log.h"
#include "scheduler/scheduler.h"

// Part of the scheduler, for its sources only.
namespace qtts {

inline constexpr std::chrono::milliseconds kFrameTime{80};
// The part of a frame's time that steps may take. The rest is a reserve for what the model of a step's time lacks.
inline constexpr double kMostBusySeconds = 0.072;

struct Scheduler::Running {
  explicit Running(std::shared_ptr<StreamState> s) : stream(std::move(s)), aligner(stream->MakeAligner()) {}

  const std::shared_ptr<StreamState> stream;

  // Under the scheduler's lock.
  uint64_t arrival = 0;
  bool changed = false;  // in changed_list_
  RunningPtr next_changed;

  // Used by the scheduler's thread alone.
  size_t place = 0;  // in running_
  bool known = false;
  bool removed = false;
  std::optional<Prompt> prompt;  // while the stream waits for a slot
  std::optional<Clock::time_point> slot_deadline;
  int part = 0;                // number of the part that is spoken
  int64_t earlier_frames = 0;  // of the parts before it
  int64_t max_new_tokens = 0;  // of this part
  SlotId slot = 0;
  bool open = false;
  bool begun = false;         // a piece of the prompt was run
  bool prefilled = false;     // the whole prompt was run
  bool ready = false;         // in ready_
  std::vector<int32_t> text;  // id n precedes frame n + 1
  bool text_complete = false;
  int32_t pad_text_id = 0;
  size_t text_tokens = 0;  // of the text that has come
  LogClock::time_point opened;
  int64_t prompt_rows = 0;
  int64_t own_rows = 0;                    // of the prompt, without the rows common to the voice's prompts
  int64_t submitted = 0;                   // frames of the part submitted to the backend
  int64_t room = 0;                        // frames that may be submitted before the next Backend::Reserve()
  bool parked = false;                     // in parked_
  bool starved = false;                    // in starved_
  int64_t delivered = 0;                   // frames of the part
  std::vector<Frame> held_frames;          // the first ones, until the last of Scheduler::FirstFramesTogether() is made
  std::unique_ptr<SpeechAligner> aligner;  // null: the model has no alignment head
  std::deque<TextWindow> windows;          // of the frames in flight
  Clock::time_point first_sound;
  bool end_logged = false;

  // Positions that the next frame attends to.
  int64_t positions() const { return prompt_rows + submitted + 1; }
  bool real_time() const { return stream->request().real_time; }
  // Frames of the utterance.
  int64_t all_submitted() const { return earlier_frames + submitted; }
  int64_t all_delivered() const { return earlier_frames + delivered; }
  // True if the reader has a frame and plays it.
  bool plays() const { return all_delivered() > 0 && held_frames.empty(); }
  size_t in_flight() const { return static_cast<size_t>(submitted - delivered); }
  // True if the next frame's text is known: sets the id before it (FrameStep::text_id).
  bool NextText(int32_t* id) const {
    if (submitted == 0) {
      *id = kNoText;
    } else if (const auto entry = static_cast<size_t>(submitted - 1); entry < text.size()) {
      *id = text[entry];
    } else {
      // Padding means the end of the text to the model, so it must not stand in for late text.
      if (!text_complete) return false;
      *id = pad_text_id;
    }
    return true;
  }

  // Number of frames that the rest of the utterance may have, as max_new_tokens of its next part. The model makes a
  // frame at least.
  int64_t MaxNewTokens() const {
    const Request& request = stream->request();
    if (request.max_frames == 0) return request.settings.max_new_tokens;
    return std::min(request.settings.max_new_tokens, std::max<int64_t>(request.max_frames - earlier_frames, 1) + 1);
  }
  // True if no further part may follow.
  bool ReachedMaxFrames() const {
    const int64_t max_frames = stream->request().max_frames;
    return max_frames > 0 && all_delivered() >= max_frames;
  }
  // Forgets the part that was spoken.
  void BeginNextPart() {
    ++part;
    earlier_frames += delivered;
    prompt.reset();
    slot_deadline.reset();
    begun = prefilled = parked = starved = text_complete = false;
    text.clear();
    windows.clear();
    text_tokens = 0;
    prompt_rows = own_rows = submitted = room = delivered = 0;
  }

  // Returns true if the model has missed the end of the part.
  bool Deliver(Frame frame) {
    const bool held_missed_end = ReleaseHeldFrames();
    if (frame.index == 0) first_sound = Clock::now();
    return stream->Deliver(std::move(frame), aligner ? &aligner->report() : nullptr) || held_missed_end;
  }
  bool ReleaseHeldFrames() {
    bool missed_end = false;
    for (Frame& frame : std::exchange(held_frames, {})) missed_end = Deliver(std::move(frame)) || missed_end;
    return missed_end;
  }

  // The window of scores that the next frame asks for.
  TextWindow NextWindow() {
    windows.push_back(aligner ? aligner->WindowOf(submitted) : TextWindow());
    return windows.back();
  }
  // Follows the text through the next frame, and gives it the words that are decided. Returns true if the speech has
  // run away.
  bool Align(const TextScores& scores, Frame* frame) {
    if (windows.empty()) return false;
    const TextWindow window = windows.front();
    windows.pop_front();
    if (!aligner) return false;
    frame->words = aligner->AddFrame(window, scores, frame->pcm);
    return stream->request().runaway_guard && aligner->runaway();
  }

  void LogEnd(EndReason reason, int64_t frames) {
    if (std::exchange(end_logged, true) || !LogEnabled(LogLevel::kDebug)) return;
    Log(LogLevel::kDebug,
        "slot " + std::to_string(slot) + ": " + EndReasonName(reason) + " after " + std::to_string(frames) + " frames");
  }
  // Ends the stream after `frames` frames. Logs first, so that the log has the end before the reader is notified.
  void End(EndReason reason, Status status, int64_t frames) {
    LogEnd(reason, frames);
    ReleaseHeldFrames();
    if (!aligner) return stream->End(reason, std::move(status));
    std::vector<SpokenWord> words = aligner->Finish();
    stream->End(reason, std::move(status), std::move(words), &aligner->report());
  }
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_RUNNING_H_
