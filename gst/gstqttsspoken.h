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
#include "gstqttstext.h"
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
  std::shared_ptr<qtts::Stream> stream;  // null until the engine has started it
  // If the stream was made ahead: the frames read before the turn of the utterance came, and the request to repeat if
  // it then turns out that no slot was free.
  std::deque<qtts::Frame> made;
  std::optional<qtts::Request> repeat;
  uint64_t seed = 0;
  Clock::time_point start;
  std::chrono::nanoseconds first_frame_latency{0};
  TextPosition position;  // of the text that the stream was given
  std::shared_ptr<qtts::TextPreparer>
      preparer;  // of the text to come, for the streaming thread; null: it passes through
  int sample_rate = 0;
  uint64_t frames = 0;  // committed
  uint64_t samples = 0;
  uint64_t last_running_time = 0;  // of the last frame
  uint64_t last_samples = 0;       // of the last frame
  qtts::TextMap source_map;        // from the text to what was written
  size_t told = 0;                 // end of the last word that was told, as it was written
  size_t marks_told = 0;
  std::string more;           // text not yet prepared and appended to the stream
  bool growing = false;       // the text of the stream has not ended
  bool awaited_text = false;  // since the last frame

  // The utterance that is to be spoken.
  void Begin(Utterance next);
  // More text, for the stream to be given by the streaming thread.
  void Append(std::string_view text);
  // The same of a document.
  void Append(Utterance more_of_it);
  // A frame leaves the element, to be heard at `running_time`. Returns the reports for it.
  std::vector<Report> Commit(size_t frame_samples, uint64_t running_time);
  // The reports for its end, now. If it was spoken to its end, words that the estimated position did not reach begin
  // with its last frame.
  std::vector<Report> Finish(qtts::EndReason reason);
  // Length of its sound so far.
  double seconds() const { return static_cast<double>(samples) / sample_rate; }

 private:
  void AddWords(const std::vector<TextPosition::Word>& words, uint64_t running_time, std::vector<Report>* reports);
  void AddMarks(size_t position, uint64_t running_time, std::vector<Report>* reports);
  // Position of a character of the text in what reports call the text.
  size_t WrittenPosition(size_t position) const;
};

// kFinished for an utterance that made no sound; nothing for a part of a document that has others.
std::optional<Report> FinishedUnspoken(const Utterance& utterance);

}  // namespace gstqtts

#endif  // GST_QTTS_SPOKEN_H_
