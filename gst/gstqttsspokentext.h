// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPOKEN_TEXT_H_
#define GST_QTTS_SPOKEN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gstqttsmonitor.h"
#include "gstqttsspoken.h"
#include "gstqttstext.h"

namespace gstqtts {

// The Intake's view of the current utterance, which belongs to the Player: the Intake may only let its text grow.
//
// Owned by the Intake. Guarded by the Monitor.
class SpokenText {
 public:
  explicit SpokenText(std::optional<SpokenUtterance>& spoken) : spoken_(spoken) {}

  // Returns true while an utterance is being spoken.
  bool exists() const QTTS_REQUIRES(monitor_held) { return spoken_.has_value(); }
  // Returns true if it is the utterance with this id, which is not 0.
  bool Is(uint64_t id) const QTTS_REQUIRES(monitor_held) { return spoken_ && id != 0 && spoken_->utterance.id == id; }
  // Returns true if more text of it may come.
  bool grows() const QTTS_REQUIRES(monitor_held) { return spoken_ && spoken_->utterance.more_text; }

  // Functions that require that it exists:
  std::string_view text() const QTTS_REQUIRES(monitor_held) { return spoken_->utterance.text; }
  void Append(std::string_view text) QTTS_REQUIRES(monitor_held) { spoken_->Append(text); }
  void Append(Utterance more_of_it) QTTS_REQUIRES(monitor_held) { spoken_->Append(std::move(more_of_it)); }
  // Returns the metas of its text, for its next frame.
  std::vector<std::shared_ptr<void>>* metas() QTTS_REQUIRES(monitor_held) { return &spoken_->utterance.metas; }
  // Ends its text.
  void End() QTTS_REQUIRES(monitor_held) { spoken_->utterance.more_text = false; }

 private:
  std::optional<SpokenUtterance>& spoken_ QTTS_GUARDED_BY(monitor_held);
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPOKEN_TEXT_H_
