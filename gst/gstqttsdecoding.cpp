// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsdecoding.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gstqtts {
namespace {

// Bytes that are read at once where an element asks for no number of them.
constexpr guint kDefaultRead = 64U << 10;
// Decoded buffers that wait. One of Vorbis in 255 channels has 8 MiB.
constexpr guint kMaxWaiting = 4;

// Creates an element of GStreamer's core or of gst-plugins-base, whatever its rank is.
GstElement* Add(GstElement* pipeline, const char* factory) {
  GstElement* element = gst_element_factory_make(factory, nullptr);
  if (element != nullptr) gst_bin_add(GST_BIN(pipeline), element);
  return element;
}

bool IsSound(const GstCaps* caps) {
  return gst_caps_is_empty(caps) == FALSE && gst_caps_is_any(caps) == FALSE &&
         g_str_has_prefix(gst_structure_get_name(gst_caps_get_structure(caps, 0)), "audio/") != FALSE;
}

}  // namespace

Decoding::Decoding(const RecordingFile& file, const IdentifiedContainer& identified, std::vector<HiddenBytes> hidden)
    : file_(file),
      identified_(identified),
      hidden_(std::move(hidden)),
      pipeline_(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr)))),
      bus_(gst_element_get_bus(pipeline_.get())) {}

Decoding::~Decoding() { gst_element_set_state(pipeline_.get(), GST_STATE_NULL); }

qtts::Status Decoding::Start() {
  QTTS_RETURN_IF_ERROR(AddEnds());
  if (const Codec* codec = FindCodec(identified_.container)) {
    const ObjectReference<GstPad> pad(gst_element_get_static_pad(source_, "src"));
    QTTS_RETURN_IF_ERROR(Link(pad.get(), *codec));
  } else {
    QTTS_RETURN_IF_ERROR(AddDemuxer(FindDemuxer(identified_.container)));
  }
  gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING);
  return qtts::Status::Ok();
}

qtts::Status Decoding::problem() const {
  const qtts::MutexLock lock(mutex_);
  return linked_ || !all_known_ ? qtts::Status::Ok() : problem_;
}

// --- the source

void Decoding::OnNeedData(GstAppSrc* source, guint length, gpointer decoding) {
  auto& self = *static_cast<Decoding*>(decoding);
  const guint size = length == 0 || length == ~0U ? kDefaultRead : length;
  GstBuffer* buffer = gst_buffer_new_allocate(nullptr, size, nullptr);
  GstMapInfo map;
  size_t done = 0;
  const uint64_t offset = self.identified_.begin + self.position_;
  if (buffer != nullptr && gst_buffer_map(buffer, &map, GST_MAP_WRITE) != FALSE) {
    done = self.file_.Read(offset, map.data, map.size);
    HideBytes(self.hidden_, offset, map.data, done);
    gst_buffer_unmap(buffer, &map);
  }
  if (done == 0) {
    gst_clear_buffer(&buffer);
    gst_app_src_end_of_stream(source);
    return;
  }
  gst_buffer_set_size(buffer, static_cast<gssize>(done));
  self.position_ += done;
  gst_app_src_push_buffer(source, buffer);
}

gboolean Decoding::OnSeekData(GstAppSrc* /*source*/, guint64 offset, gpointer decoding) {
  static_cast<Decoding*>(decoding)->position_ = offset;
  return TRUE;
}

// --- the elements

qtts::Status Decoding::AddEnds() {
  source_ = Add(pipeline_.get(), "appsrc");
  convert_ = Add(pipeline_.get(), "audioconvert");
  sink_ = Add(pipeline_.get(), "appsink");
  if (source_ == nullptr || convert_ == nullptr || sink_ == nullptr) {
    return qtts::Status::Unsupported(
        "recordings cannot be decoded. One of GStreamer's elements appsrc, audioconvert and appsink is missing, which "
        "Debian has in gstreamer1.0-plugins-base: apt install gstreamer1.0-plugins-base");
  }
  const uint64_t size = file_.size() - std::min(file_.size(), identified_.begin);
  g_object_set(source_, "format", GST_FORMAT_BYTES, "stream-type", GST_APP_STREAM_TYPE_RANDOM_ACCESS, "size",
               static_cast<gint64>(size), nullptr);
  GstAppSrcCallbacks callbacks = {};
  callbacks.need_data = OnNeedData;
  callbacks.seek_data = OnSeekData;
  gst_app_src_set_callbacks(GST_APP_SRC(source_), &callbacks, this, nullptr);
  // Rate and channels stay as they are: the engine converts them as the official package does.
  GstCaps* floats =
      gst_caps_new_simple("audio/x-raw", "format", G_TYPE_STRING, G_BYTE_ORDER == G_LITTLE_ENDIAN ? "F32LE" : "F32BE",
                          "layout", G_TYPE_STRING, "interleaved", nullptr);
  g_object_set(sink_, "caps", floats, "sync", FALSE, "max-buffers", kMaxWaiting, nullptr);
  gst_caps_unref(floats);
  gst_element_link(convert_, sink_);
  return qtts::Status::Ok();
}

qtts::Status Decoding::AddDemuxer(std::span<const AllowedElement> demuxer) {
  QTTS_ASSIGN_OR_RETURN(GstElement * element, MakeElement(demuxer, ContainerName(identified_.container)));
  gst_bin_add(GST_BIN(pipeline_.get()), element);
  gst_element_link(source_, element);
  g_signal_connect(element, "pad-added", G_CALLBACK(OnPadAdded), this);
  g_signal_connect(element, "no-more-pads", G_CALLBACK(OnNoMorePads), this);
  // wavparse has its only pad from the beginning.
  if (const ObjectReference<GstPad> pad(gst_element_get_static_pad(element, "src")); pad != nullptr) {
    Offer(pad.get());
    const qtts::MutexLock lock(mutex_);
    all_known_ = true;
  }
  return qtts::Status::Ok();
}

void Decoding::OnPadAdded(GstElement* /*demuxer*/, GstPad* pad, gpointer decoding) {
  if (gst_pad_get_direction(pad) == GST_PAD_SRC) static_cast<Decoding*>(decoding)->Offer(pad);
}

void Decoding::OnNoMorePads(GstElement* /*demuxer*/, gpointer decoding) {
  auto& self = *static_cast<Decoding*>(decoding);
  const qtts::MutexLock lock(self.mutex_);
  self.all_known_ = true;
  if (self.problem_.ok() && self.without_caps_ == 0) self.problem_ = NoRecordingError("holds no sound");
}

void Decoding::Offer(GstPad* pad) {
  if (GstCaps* caps = gst_pad_get_current_caps(pad)) {
    Take(pad, caps);
    gst_caps_unref(caps);
    return;
  }
  {
    const qtts::MutexLock lock(mutex_);
    ++without_caps_;
  }
  // Emitted before the caps go downstream: then it is not too late to link the pad.
  g_signal_connect(pad, "notify::caps", G_CALLBACK(OnCaps), this);
}

void Decoding::OnCaps(GstPad* pad, GParamSpec* /*property*/, gpointer decoding) {
  GstCaps* caps = gst_pad_get_current_caps(pad);
  if (caps == nullptr) return;  // the pad is being shut down
  g_signal_handlers_disconnect_by_func(pad, reinterpret_cast<gpointer>(OnCaps), decoding);
  auto& self = *static_cast<Decoding*>(decoding);
  self.Take(pad, caps);
  gst_caps_unref(caps);
  const qtts::MutexLock lock(self.mutex_);
  --self.without_caps_;
}

// Runs on the demuxer's only thread: no two at once.
void Decoding::Take(GstPad* pad, const GstCaps* caps) {
  if (!IsSound(caps)) return;
  {
    const qtts::MutexLock lock(mutex_);
    if (linked_) return;
  }
  const Codec* codec = FindCodec(caps);
  qtts::Status status = codec != nullptr ? Link(pad, *codec)
                                         : NoRecordingError(std::string("its sound is coded as ") +
                                                            gst_structure_get_name(gst_caps_get_structure(caps, 0)) +
                                                            ", which is not read");
  const qtts::MutexLock lock(mutex_);
  linked_ = status.ok();
  if (problem_.ok()) problem_ = std::move(status);
}

qtts::Status Decoding::Link(GstPad* pad, const Codec& codec) {
  std::vector<GstElement*> elements;
  for (const auto choices : {codec.parser, codec.decoders}) {
    if (choices.empty()) continue;
    QTTS_ASSIGN_OR_RETURN(GstElement * element, MakeElement(choices, codec.name));
    gst_bin_add(GST_BIN(pipeline_.get()), element);
    elements.push_back(element);
  }
  elements.push_back(convert_);
  for (size_t i = 0; i + 1 < elements.size(); ++i) gst_element_link(elements[i], elements[i + 1]);
  // Downstream first: no element pushes into one that is not ready yet.
  for (size_t i = elements.size(); i-- > 0;) gst_element_sync_state_with_parent(elements[i]);
  const ObjectReference<GstPad> sink(gst_element_get_static_pad(elements.front(), "sink"));
  if (GST_PAD_LINK_FAILED(gst_pad_link(pad, sink.get()))) {
    return NoRecordingError(std::string("its ") + codec.name + " is of no form that can be decoded");
  }
  return qtts::Status::Ok();
}

}  // namespace gstqtts
