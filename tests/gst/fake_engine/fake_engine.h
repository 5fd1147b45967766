// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_FAKE_ENGINE_H_
#define QTTS_TESTS_GST_FAKE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qtts/end_reason.h"
#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "qtts/voice.h"
#include "qtts/words.h"

// qtts::Engine and qtts::Stream for tests of the element, linked instead of the real engine. There is no model. Each
// character of a text is one frame, whose first samples identify the character. A script sets errors and delays.
//
// It is deliberately awkward within the limits of the interface: callbacks come with the stream's lock held, so an
// element that calls a stream under its own lock deadlocks at once.

namespace qtts::fake {

// A model with two speakers and two languages.
ModelInfo DefaultInfo();

// By default nothing fails and nothing is late.
struct Script {
  ModelInfo info = DefaultInfo();  // result of Inspect() and Engine::info(), except the path

  Status inspect = {};  // answer of Inspect()
  Status load = {};     // answer of Acquire()
  std::chrono::milliseconds load_time{0};
  bool load_ignores_cancel = false;

  Status start = {};             // answer of Start() …
  std::string start_match = {};  // … to texts that contain this (empty: all)
  std::vector<std::string> warnings = {};
  int leading_silence = 0;  // samples of an utterance's first frame that are silent, its label among them
  char32_t silent = 0;      // character whose frames are silent, 0: none

  Status clone = {};  // answer of CloneVoice()
  std::vector<std::string> clone_warnings = {};
  std::optional<double> voice_loudness = {};  // of every cloned voice

  int64_t fail_at_frame = -1;      // the stream fails instead of making this frame, with …
  Status failure = {};             // …
  std::string failure_match = {};  // … if its text contains this (empty: all)

  // Words are measured, where `info` has an alignment head: each lasts as long as its characters, and is known so many
  // frames after its last one. Those that are not known with the last frame are known at the end.
  int word_lag = 2;
  // Ends and reports of utterances by their number: 0, 1, … since Reset(). Else the text was spoken as a whole.
  std::map<int64_t, EndReason> reasons = {};
  std::map<int64_t, SpeechReport> reports = {};

  int slots = 64;                             // utterances at once; more wait
  std::string busy = "All slots are taken.";  // error of an utterance that has waited for its max_wait
  Occupancy occupancy = {};                   // pages and steps of Engine::occupancy()

  std::chrono::milliseconds frame_time{0};
  bool beside_host = false;      // answer of Engine::beside_host()
  int gpu = -1;                  // answer of Engine::gpu()
  std::string passed_over = {};  // answer of Engine::passed_over(), when the engine is loaded
};

// Makes the model measure words.
void AddAlignment(Script* script);

// Begins a test: this script, counters at zero, gates open. No engine may exist.
void Reset(const Script& script = {});
// Changes the script from now on.
void SetScript(const Script& script);

// Limits further frames to `frames`, over all streams; negative: no limit.
void AllowFrames(int64_t frames);

// While held, loads go on.
void HoldLoads(bool hold);
// While held, CloneVoice() does not return.
void HoldClones(bool hold);

struct Counters {
  int inspections = 0;
  int loads = 0;  // begun
  int cancelled_loads = 0;
  int clones = 0;       // begun by CloneVoice()
  int voice_loads = 0;  // by LoadVoice(), whose answer for a file that exists has its path as text
  int live_engines = 0;
  int live_streams = 0;
  int64_t frames = 0;                     // made
  int64_t stalled_reads = 0;              // TryRead() where only more text could bring a frame
  std::chrono::nanoseconds play_time{0};  // the last one that SetPlayTime() was told
};
Counters GetCounters();

// Options of the last load.
EngineOptions LastOptions();

// Requests accepted or refused by Start(), in order.
std::vector<Request> Requests();

// The recording and the options of the last CloneVoice().
Recording LastRecording();
CloneOptions LastCloneOptions();

// Label encoded in the samples of a frame.
struct Label {
  char32_t character = 0;
  int64_t utterance = 0;  // 0, 1, … since Reset()
  int64_t frame = 0;      // within the utterance
};
// The number of samples that have it.
constexpr int kLabelSamples = 6;
Label ReadLabel(const float* pcm);
Label ReadLabel(const int16_t* pcm);

}  // namespace qtts::fake

#endif  // QTTS_TESTS_GST_FAKE_ENGINE_H_
