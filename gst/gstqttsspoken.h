// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPOKEN_H_
#define GST_QTTS_SPOKEN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttsposition.h"
#include "gstqttsreport.h"
#include "gstqttsretry.h"
#include "gstqttsshaper.h"
#include "gstqttstext.h"
#include "gstqttstimeline.h"
#include "gstqttswordtrack.h"
#include "qtts/frame.h"
#include "qtts/request.h"

namespace qtts {
class Stream;
}

namespace gstqtts {

// The current utterance, from leaving the queue until it is finished: its text, its engine stream, and the progress of
// the speech.
//
// At most one, owned by the Speech. The Player begins it and hands its frames out; the Intake makes it grow. Not
// thread-safe: guarded by the Monitor.
struct SpokenUtterance {
  using Clock = std::chrono::steady_clock;

  Utterance utterance;
  // The longest speech that waits for its end, in frames: two minutes, 12 MB.
  static constexpr size_t kMaxHeldFrames = 1500;
  // Number of frames that are read ahead if the engine measures words: about as many as it takes to know a word's
  // place. A word is then told at the moment of its sound.
  static constexpr size_t kFramesAhead = 12;
  // A word that the engine has not measured so long after its estimated beginning is told as an estimate.
  static constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(2);
  static constexpr size_t kPatienceFrames = 25;

  std::shared_ptr<qtts::Stream> stream;  // null until the engine has started it
  // Frames that were read and have not been handed out, and how the stream ended after them.
  std::deque<qtts::Frame> made;
  std::optional<SpeechEnd> end;
  bool device_lost = false;  // when it ended
  // The frames are kept until the end of the utterance, which may be made again.
  bool holding = false;
  Retries retries;
  // The request, if the engine may be asked again: for a retry, or (`asked_ahead`) because the utterance was asked for
  // ahead of its turn and got no slot.
  std::optional<qtts::Request> request;
  bool asked_ahead = false;
  uint64_t seed = 0;
  Clock::time_point start;
  std::chrono::nanoseconds first_frame_latency{0};
  TextPosition position;     // of the text that the stream was given
  qtts::TextMap source_map;  // from the text to the document; empty: see Utterance::sentence
  size_t told_source = 0;    // end of the last word that was told, as it was written
  size_t marks_told = 0;
  bool measured = false;  // the engine measures words
  WordTrack track;        // for the messages
  WordTrack text_track;   // for the text pads, if they are told ahead
  TextAhead ahead = TextAhead::kNone;
  bool spread = false;  // the text pads have the words of the whole text, spread over its known length
  size_t scanned = 0;   // frames in `made` whose words are in `track`
  SoundPlaces places;
  std::shared_ptr<qtts::TextPreparer>
      preparer;  // of the text to come, for the streaming thread; null: it passes through
  int sample_rate = 0;
  uint64_t handed_out = 0;              // samples of frames that were taken from `made`
  std::shared_ptr<SoundShaper> shaper;  // of the sound that was taken; the streaming thread's; null before the first
  bool fit = false;                     // the speech is to be fitted into a slot: it waits for its end
  std::optional<double> rate;           // the rate that stays: words were told by it, ahead of their sound
  uint64_t frames = 0;                  // committed, as all below
  uint64_t samples = 0;
  uint64_t lateness = 0;                   // nanoseconds by which it began after its cue
  double source_samples = 0;               // samples of the engine that they stand for
  std::chrono::nanoseconds last_frame{0};  // when it begins, within the utterance
  std::string more;                        // text not yet prepared and appended to the stream
  bool growing = false;                    // the text of the stream has not ended
  bool awaited_text = false;               // since the last frame

  // Begins the utterance that is to be spoken.
  void Begin(Utterance next);
  // Appends text, for the stream to be given by the streaming thread.
  void Append(std::string_view text);
  // Appends more of a document.
  void Append(Utterance more_of_it);
  // Returns the number of frames in `made` from which on no more are read.
  size_t frames_wanted() const;
  // Returns true if the first frame of `made` may be handed out.
  bool MayHandOut() const;
  // Returns the rate of the sound that is shaped next, where `usual` is that of speech without a rate of its own.
  double RateOf(double usual);
  // Adds the words of `made` and of the end to the track.
  void ScanFrames();
  // Commits sound that leaves the element, to be heard at `moment`. Returns the reports for it, and the words told in
  // `told`.
  std::vector<Report> Commit(const ShapedSound& sound, const Moment& moment, Told* told);
  // Ends it now. Returns the reports for its end. If it was spoken to its end, words that were not told yet begin with
  // its last frame.
  std::vector<Report> Finish(qtts::EndReason reason, Told* told);
  // Returns the length of its sound so far, as the engine made it.
  double seconds() const { return source_samples / sample_rate; }
  // Returns the nanoseconds for which its sound so far is heard.
  uint64_t heard() const { return sample_rate > 0 ? SampleTime(samples, sample_rate) : 0; }

 private:
  // A run of what was written.
  struct SourceRun {
    size_t begin = 0;
    size_t end = 0;
  };

  uint64_t id() const;
  SourceRun SourceOf(size_t first, size_t last) const;
  void AddMeasured(const std::vector<qtts::SpokenWord>& words);
  void AddMarks(size_t position_in_text, uint64_t running_time, std::vector<Report>* reports);
  void Tell(const TimedWord& word, bool estimated, std::vector<Report>* reports, Told* told);
  void TellTextPads(Told* told);
  void SpreadWords(Told* told);
  void TellMeasured(std::chrono::nanoseconds sounded, std::vector<Report>* reports, Told* told);
  void TellEstimated(double seconds, std::chrono::nanoseconds at, std::vector<Report>* reports, Told* told);
  ReportedText Reported(const TextPosition::Run& run) const;
  ReportedCoverage Coverage();
  size_t SpokenCharacters(bool* estimated);
};

// Returns kFinished for an utterance that made no sound; nothing for a part of a document that has others.
std::optional<Report> FinishedUnspoken(const Utterance& utterance);

}  // namespace gstqtts

#endif  // GST_QTTS_SPOKEN_H_
