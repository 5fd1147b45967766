// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_RUNNING_H_
#define QTTS_SCHEDULER_RUNNING_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alignment/speech_aligner.h"
#include "backend/backend.h"
#include "base/log.h"
#include "scheduler/part_ahead.h"
#include "scheduler/stream_state.h"
#include "scheduler/views.h"

namespace qtts {

struct Running;
using RunningPtr = std::shared_ptr<Running>;

// A stream, its slot and the progress of the part that is spoken; or a part of a stream that is made ahead of its turn,
// with a slot of its own. Frames are of that part unless a name says `all`.
struct Running {
  explicit Running(std::shared_ptr<StreamState> s) : stream(std::move(s)), aligner(stream->MakeAligner()) {}

  const std::shared_ptr<StreamState> stream;

  // Under the inbox's lock.
  uint64_t arrival = 0;
  bool changed = false;  // in the inbox
  RunningPtr next_changed;

  // Used by the scheduler's thread alone.
  size_t place = 0;  // in StreamLists::running
  bool known = false;
  bool removed = false;
  std::optional<Prompt> prompt;  // while the stream waits for a slot
  std::optional<StreamClock::time_point> slot_deadline;
  int part = 0;                // number of the part that is spoken
  int64_t earlier_frames = 0;  // of the parts before it
  int64_t max_new_tokens = 0;  // of this part
  SlotId slot = 0;
  bool open = false;
  bool begun = false;         // a piece of the prompt was run
  bool prefilled = false;     // the whole prompt was run
  bool ready = false;         // in StreamLists::ready
  std::vector<int32_t> text;  // id n precedes frame n + 1
  bool text_complete = false;
  int32_t pad_text_id = 0;
  size_t text_tokens = 0;  // of the text that has come
  LogClock::time_point opened;
  int64_t prompt_rows = 0;
  int64_t own_rows = 0;                    // of the prompt, without the rows common to the voice's prompts
  int64_t submitted = 0;                   // frames of the part submitted to the backend
  int64_t room = 0;                        // frames that may be submitted before the next PagedContexts::Reserve()
  bool parked = false;                     // in Parking::parked_
  bool starved = false;                    // in Parking::starved_
  int64_t delivered = 0;                   // frames of the part
  std::vector<Frame> held_frames;          // the first frames, until StepPolicy::FirstFramesTogether() of them are made
  std::unique_ptr<SpeechAligner> aligner;  // null: the model has no alignment head
  std::deque<TextWindow> windows;          // of the frames in flight
  StreamClock::time_point first_sound;
  bool end_logged = false;

  std::unique_ptr<PartAhead> ahead;  // null: the stream itself
  // Parts that are made ahead, or were, by their numbers (Request::parallel_parts); and the one of them whose turn has
  // come, which stands for a slot of the stream's own.
  std::map<int, RunningPtr> parts_ahead;
  RunningPtr part_in_turn;
  bool no_part_behind = false;  // no further part is complete: until something of the stream changes
  bool ahead_failed = false;    // one failed that was made ahead: until the next part begins

  // Returns the positions that the next frame attends to.
  int64_t positions() const { return prompt_rows + submitted + 1; }
  bool real_time() const { return stream->request().real_time; }
  // Returns the frames of the utterance.
  int64_t all_submitted() const { return earlier_frames + submitted; }
  int64_t all_delivered() const { return earlier_frames + delivered; }
  // Returns true if the reader has a frame and plays it.
  bool plays() const { return all_delivered() > 0 && held_frames.empty(); }
  size_t in_flight() const { return static_cast<size_t>(submitted - delivered); }
  StreamView View() const {
    int32_t text_id = 0;
    const auto unread = static_cast<int64_t>(ahead ? ahead->results.size() : stream->unread());
    return {.real_time = real_time(),
            .plays = plays(),
            .has_text = NextText(&text_id),
            .at_limit = submitted >= max_new_tokens,
            .submitted = all_submitted(),
            .delivered = all_delivered(),
            .in_flight = submitted - delivered,
            .unread = unread,
            .lead = ahead ? ahead->max_frames : static_cast<int64_t>(stream->lead_frames()),
            .first_sound = first_sound,
            .play_time = stream->play_time().value_or((all_delivered() - unread) * kFrameTime)};
  }
  // Returns true if fewer than `frames` frames wait for the reader.
  bool HasRoom(int64_t frames) const {
    if (ahead) return static_cast<int64_t>(ahead->results.size()) < frames;
    return stream->HasRoom(static_cast<size_t>(frames));
  }
  bool is_ahead() const { return ahead && !ahead->in_turn; }
  // Returns true if parts of it may be made ahead.
  bool looks_ahead() const {
    const Request& request = stream->request();
    return !ahead && request.parallel_parts > 1 && request.parts.max > 0 && !request.real_time;
  }
  // Returns the number of positions in the context.
  int64_t context() const { return prompt_rows + submitted; }
  // Returns true if the next frame's text is known: sets the id before it (FrameStep::text_id).
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

  // Returns the number of frames that the rest of the utterance may have, as max_new_tokens of its next part. The model
  // makes a frame at least.
  int64_t MaxNewTokens() const {
    const Request& request = stream->request();
    if (request.max_frames == 0) return request.settings.max_new_tokens;
    return std::min(request.settings.max_new_tokens, std::max<int64_t>(request.max_frames - earlier_frames, 1) + 1);
  }
  // Returns true if no further part may follow.
  bool ReachedMaxFrames() const {
    const int64_t max_frames = stream->request().max_frames;
    return max_frames > 0 && all_delivered() >= max_frames;
  }
  // Adds text of the part that has become known.
  void AddText(const TextPart::News& news) {
    text.insert(text.end(), news.text.begin(), news.text.end());
    text_complete = news.text_complete;
    pad_text_id = news.pad_text_id;
    text_tokens = news.text_tokens;
    if (!aligner) return;
    if (news.prompt) aligner->SetPrompt(static_cast<int64_t>(news.prompt->rows.size()), news.prompt->text_begin);
    aligner->AddText(news.token_ends, news.words);
    if (news.text_complete) aligner->FinishText();
  }
  // Sets the prompt, without which the part can't begin.
  void SetPrompt(Prompt part_prompt) {
    prompt = std::move(part_prompt);
    prompt_rows = static_cast<int64_t>(prompt->rows.size());
    max_new_tokens = MaxNewTokens();
  }
  // Forgets the part that was spoken.
  void BeginNextPart() {
    ++part;
    earlier_frames += delivered;
    prompt.reset();
    slot_deadline.reset();
    begun = prefilled = parked = starved = text_complete = no_part_behind = ahead_failed = false;
    text.clear();
    windows.clear();
    text_tokens = 0;
    prompt_rows = own_rows = submitted = room = delivered = 0;
  }

  // Returns true if the model has missed the end of the part.
  bool Deliver(Frame frame) {
    const bool held_missed_end = ReleaseHeldFrames();
    if (frame.index == 0) first_sound = StreamClock::now();
    return stream->Deliver(std::move(frame), aligner ? &aligner->report() : nullptr) || held_missed_end;
  }
  bool ReleaseHeldFrames() {
    bool missed_end = false;
    for (Frame& frame : std::exchange(held_frames, {})) missed_end = Deliver(std::move(frame)) || missed_end;
    return missed_end;
  }

  // Returns the window of scores that the next frame asks for.
  TextWindow NextWindow() {
    windows.push_back(aligner ? aligner->WindowOf(submitted) : TextWindow());
    return windows.back();
  }
  // Aligns the text with the next frame, and adds the decided words to it. Returns true if the speech has run away.
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
