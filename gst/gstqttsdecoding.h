// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_DECODING_H_
#define GST_QTTS_DECODING_H_

#include <gst/app/gstappsink.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gstqttscodecs.h"
#include "gstqttscontainer.h"
#include "gstqttsrecordingfile.h"
#include "qtts/mutex.h"
#include "qtts/status.h"

namespace gstqtts {

struct UnrefObject {
  void operator()(gpointer object) const { gst_object_unref(object); }
};
template <typename T>
using ObjectReference = std::unique_ptr<T, UnrefObject>;

// A pipeline that decodes the first track with sound of one file into interleaved floats:
//
//   appsrc ! [demuxer !] [parser !] [decoder !] audioconvert ! appsink
//
// Demuxer, parser and decoder are those of the allow-list (gstqttscodecs.h) for the file's content; nothing is plugged
// by caps or rank. appsrc reads the file through its descriptor: no element gets a path.
class Decoding {
 public:
  // `file` has to outlive it. No element sees the `hidden` bytes.
  Decoding(const RecordingFile& file, const IdentifiedContainer& identified, std::vector<HiddenBytes> hidden);
  ~Decoding();  // waits until no thread uses `file`
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // Starts to decode. Errors: kUnsupported, naming the package, if an element is missing.
  qtts::Status Start();

  GstAppSink* sink() const { return GST_APP_SINK(sink_); }
  GstBus* bus() const { return bus_.get(); }

  // Returns ok while sound may still come. Otherwise kUnsupported: the reason why none of the file's tracks is decoded.
  qtts::Status problem() const QTTS_EXCLUDES(mutex_);

 private:
  static void OnNeedData(GstAppSrc* source, guint length, gpointer decoding);
  static gboolean OnSeekData(GstAppSrc* source, guint64 offset, gpointer decoding);
  static void OnPadAdded(GstElement* demuxer, GstPad* pad, gpointer decoding);
  static void OnCaps(GstPad* pad, GParamSpec* property, gpointer decoding);
  static void OnNoMorePads(GstElement* demuxer, gpointer decoding);

  qtts::Status AddEnds();
  qtts::Status AddDemuxer(std::span<const AllowedElement> demuxer);
  // Decodes `pad` once its caps are known, if they name an allowed codec and no other pad is decoded.
  void Offer(GstPad* pad) QTTS_EXCLUDES(mutex_);
  void Take(GstPad* pad, const GstCaps* caps) QTTS_EXCLUDES(mutex_);
  // Adds the elements for `codec` between `pad` and audioconvert.
  qtts::Status Link(GstPad* pad, const Codec& codec);

  const RecordingFile& file_;
  const IdentifiedContainer identified_;
  const std::vector<HiddenBytes> hidden_;
  ObjectReference<GstElement> pipeline_;
  ObjectReference<GstBus> bus_;
  GstElement* source_ = nullptr;  // these are the pipeline's
  GstElement* convert_ = nullptr;
  GstElement* sink_ = nullptr;
  uint64_t position_ = 0;  // of the next bytes, from identified_.begin on; of the thread that pulls

  mutable qtts::Mutex mutex_;
  bool linked_ QTTS_GUARDED_BY(mutex_) = false;     // a track is being decoded
  bool all_known_ QTTS_GUARDED_BY(mutex_) = false;  // no more tracks come
  int without_caps_ QTTS_GUARDED_BY(mutex_) = 0;    // tracks whose codec is not known yet
  qtts::Status problem_ QTTS_GUARDED_BY(mutex_);    // of the first track with sound that cannot be decoded
};

}  // namespace gstqtts

#endif  // GST_QTTS_DECODING_H_
