// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TEXT_PADS_H_
#define GST_QTTS_TEXT_PADS_H_

#include <gst/base/gstbasesrc.h>
#include <gst/gst.h>

#include <functional>
#include <vector>

#include "gstqttstextpad.h"
#include "gstqttswordtrack.h"
#include "qtts/mutex.h"

namespace gstqtts {

// The request pads `text_%u`. Whatever passes the src pad comes here, and each pad mirrors it.
//
// Owned by the element. Thread-safe. The mutex is not held while events or buffers are pushed.
class TextPads {
 public:
  explicit TextPads(GstBaseSrc* element) : element_(element) {}
  TextPads(const TextPads&) = delete;
  TextPads& operator=(const TextPads&) = delete;

  // Implements GstElementClass::request_new_pad and ::release_pad, in any state. `name` may be null.
  GstPad* RequestPad(GstPadTemplate* templ, const gchar* name) QTTS_EXCLUDES(mutex_);
  void ReleasePad(GstPad* pad) QTTS_EXCLUDES(mutex_);

  // Implements GstChildProxy: the pads, for those who set properties by name ("text_0::granularity" of gst-launch-1.0).
  GObject* RefChild(guint index) const QTTS_EXCLUDES(mutex_);
  guint children() const QTTS_EXCLUDES(mutex_);

  // Tells that a run of the element begins or ends.
  void SetRunning(bool running) QTTS_EXCLUDES(mutex_);
  // Returns how far ahead words have to be known where the sound is not live.
  TextAhead WantedAhead() const QTTS_EXCLUDES(mutex_);

  // Takes an event that passes the src pad.
  void TakeEvent(GstEvent* event) QTTS_EXCLUDES(mutex_);
  // Takes words that were told; until `known`, a timestamp of the sound, all are.
  void TakeWords(const Told& told, GstClockTime known) QTTS_EXCLUDES(mutex_);

 private:
  static gboolean OnEvent(GstPad* pad, GstObject* parent, GstEvent* event);
  static gboolean OnQuery(GstPad* pad, GstObject* parent, GstQuery* query);

  void ForEach(const std::function<void(TextStream&)>& function) QTTS_EXCLUDES(mutex_);
  void CatchUp(TextStream& stream) const;

  GstBaseSrc* const element_;

  mutable qtts::Mutex mutex_;
  std::vector<GstPad*> pads_ QTTS_GUARDED_BY(mutex_);
  guint next_number_ QTTS_GUARDED_BY(mutex_) = 0;
  bool running_ QTTS_GUARDED_BY(mutex_) = false;
};

}  // namespace gstqtts

#endif  // GST_QTTS_TEXT_PADS_H_
