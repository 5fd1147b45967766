// SPDX-License-Identifier: LGPL-2.1-or-later
#include "peer.h"

#include <gst/sdp/sdp.h>
#define GST_USE_UNSTABLE_API
#include <gst/webrtc/webrtc.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace {

// A frame of 80 ms becomes four packets, which webrtcbin sends at the pace at which they are heard. Between utterances
// nothing is sent: the browser then plays the first packet at once, where in flowing silence it would wait behind what
// its jitter buffer holds. For this the packets must be dated by the sound in them, pauses included: without
// perfect-timestamp, opusenc gives the first packet after a pause the time before it, so that it looks late by the
// whole pause, and the jitter buffer grows with each.
constexpr const char* kPipeline =
    "qttssrc name=speech is-live=true idle-mode=wait ! audio/x-raw,format=S16LE "
    "! opusenc audio-type=voice bitrate=32000 inband-fec=true packet-loss-percentage=5 perfect-timestamp=true "
    "! rtpopuspay name=payloader pt=96 ssrc=1 ! webrtcbin name=webrtc bundle-policy=max-bundle";

// Opus looks ahead: a packet is dated by so much before the sound that completed it.
constexpr GstClockTime kLookahead = 6500 * GST_USECOND;

constexpr const char* kCodec =
    "application/"
    "x-rtp,media=audio,encoding-name=OPUS,payload="
    "96,clock-rate=48000,encoding-params=(string)2,"
    "useinbandfec=(string)1,ssrc=(uint)1";

constexpr size_t kMaxTextBytes = 20000;
constexpr int kMaxCandidates = 100;  // a browser has one for each of its addresses

// Posts to the main loop what a thread of `webrtc` has to tell.
void Post(GstElement* webrtc, GstStructure* structure) {
  gst_element_post_message(webrtc, gst_message_new_application(GST_OBJECT(webrtc), structure));
}

void OnOffer(GstPromise* promise, gpointer user_data) {
  GstElement* webrtc = GST_ELEMENT(user_data);
  GstWebRTCSessionDescription* offer = nullptr;
  if (gst_promise_wait(promise) == GST_PROMISE_RESULT_REPLIED) {
    gst_structure_get(gst_promise_get_reply(promise), "offer", GST_TYPE_WEBRTC_SESSION_DESCRIPTION, &offer, nullptr);
  }
  gst_promise_unref(promise);
  if (offer == nullptr) return;  // the pipeline is being shut down
  g_signal_emit_by_name(webrtc, "set-local-description", offer, nullptr);
  gchar* sdp = gst_sdp_message_as_text(offer->sdp);
  Post(webrtc, gst_structure_new("offer", "sdp", G_TYPE_STRING, sdp, nullptr));
  g_free(sdp);
  gst_webrtc_session_description_free(offer);
}

void OnAnswered(GstPromise* promise, gpointer user_data) {
  const GstStructure* reply =
      gst_promise_wait(promise) == GST_PROMISE_RESULT_REPLIED ? gst_promise_get_reply(promise) : nullptr;
  GError* error = nullptr;
  if (reply != nullptr && gst_structure_get(reply, "error", G_TYPE_ERROR, &error, nullptr)) {
    Post(GST_ELEMENT(user_data), gst_structure_new("refused", "text", G_TYPE_STRING, error->message, nullptr));
    g_error_free(error);
  }
  gst_promise_unref(promise);
}

void OnIceCandidate(GstElement* webrtc, guint line, const gchar* candidate, gpointer /*user_data*/) {
  Post(webrtc,
       gst_structure_new("candidate", "line", G_TYPE_UINT, line, "candidate", G_TYPE_STRING, candidate, nullptr));
}

// webrtcbin sends later by the latency that it is told of. opusenc says 20 ms, a whole packet; but a frame is there at
// once, so that its first packet can leave at once, and the others at their distance.
GstPadProbeReturn OnQuery(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer /*user_data*/) {
  GstQuery* query = GST_PAD_PROBE_INFO_QUERY(info);
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return GST_PAD_PROBE_OK;
  gst_query_set_latency(query, TRUE, kLookahead, GST_CLOCK_TIME_NONE);
  return GST_PAD_PROBE_HANDLED;
}

std::vector<std::string> GetStrings(GstElement* element, const char* property) {
  GValue array = G_VALUE_INIT;
  g_object_get_property(G_OBJECT(element), property, &array);
  std::vector<std::string> strings;
  for (guint i = 0; i < gst_value_array_get_size(&array); ++i) {
    strings.emplace_back(g_value_get_string(gst_value_array_get_value(&array, i)));
  }
  g_value_unset(&array);
  return strings;
}

guint64 GetNumber(const GstStructure* structure, const char* field) {
  guint64 value = 0;
  gst_structure_get_uint64(structure, field, &value);
  return value;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string GetString(const Peer::Json& message, const char* key) {
  const auto value = message.find(key);
  return value != message.end() && value->is_string() ? value->get<std::string>() : std::string();
}

}  // namespace

Peer::Peer(const PeerOptions& options, Send send, Fail fail) : send_(std::move(send)), fail_(std::move(fail)) {
  GError* error = nullptr;
  pipeline_ = gst_parse_launch(kPipeline, &error);
  if (error != nullptr) {
    fail_(std::string("The server cannot make its pipeline: ") + error->message);
    g_error_free(error);
    gst_clear_object(&pipeline_);
    return;
  }
  speech_ = gst_bin_get_by_name(GST_BIN(pipeline_), "speech");
  webrtc_ = gst_bin_get_by_name(GST_BIN(pipeline_), "webrtc");
  if (!options.model_path.empty()) g_object_set(speech_, "model-path", options.model_path.c_str(), nullptr);
  if (!options.device.empty()) gst_util_set_object_arg(G_OBJECT(speech_), "device", options.device.c_str());
  if (!options.stun_server.empty()) g_object_set(webrtc_, "stun-server", options.stun_server.c_str(), nullptr);

  // Nobody asked for a hole in the router, nor for the HTTP servers that looking for one takes.
  GObject* ice = nullptr;
  g_object_get(webrtc_, "ice-agent", &ice, nullptr);
  GObject* agent = nullptr;
  g_object_get(ice, "agent", &agent, nullptr);
  g_object_set(agent, "upnp", FALSE, nullptr);
  g_object_unref(agent);
  g_object_unref(ice);

  GArray* transceivers = nullptr;
  g_signal_emit_by_name(webrtc_, "get-transceivers", &transceivers);
  // The codec is named here, as nothing flows before the first text.
  GstCaps* codec = gst_caps_from_string(kCodec);
  g_object_set(g_array_index(transceivers, GstWebRTCRTPTransceiver*, 0), "direction",
               GST_WEBRTC_RTP_TRANSCEIVER_DIRECTION_SENDONLY, "codec-preferences", codec, nullptr);
  gst_caps_unref(codec);
  g_array_unref(transceivers);
  GstElement* payloader = gst_bin_get_by_name(GST_BIN(pipeline_), "payloader");
  GstPad* pad = gst_element_get_static_pad(payloader, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_QUERY_UPSTREAM, OnQuery, nullptr, nullptr);
  gst_object_unref(pad);
  gst_object_unref(payloader);
  g_signal_connect(webrtc_, "on-ice-candidate", G_CALLBACK(OnIceCandidate), nullptr);

  GstBus* bus = gst_element_get_bus(pipeline_);
  gst_bus_add_watch(bus, OnMessage, this);
  gst_object_unref(bus);
}

Peer::~Peer() {
  if (pipeline_ == nullptr) return;
  GstBus* bus = gst_element_get_bus(pipeline_);
  gst_bus_remove_watch(bus);
  gst_object_unref(bus);
  gst_element_set_state(pipeline_, GST_STATE_NULL);
  gst_object_unref(webrtc_);
  gst_object_unref(speech_);
  gst_object_unref(pipeline_);
}

void Peer::Start() {
  if (pipeline_ == nullptr) return;
  // What goes wrong is told on the bus.
  if (gst_element_set_state(pipeline_, GST_STATE_READY) == GST_STATE_CHANGE_FAILURE) return;
  speakers_ = GetStrings(speech_, "speakers");
  languages_ = GetStrings(speech_, "languages");
  send_({{"type", "model"}, {"speakers", speakers_}, {"languages", languages_}});
  if (gst_element_set_state(pipeline_, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) return;
  // There is one track and it never changes, so one offer is made, without
  // waiting to be asked for it.
  GstPromise* promise = gst_promise_new_with_change_func(OnOffer, gst_object_ref(webrtc_), gst_object_unref);
  g_signal_emit_by_name(webrtc_, "create-offer", nullptr, promise);
}

void Peer::Receive(const Json& message) {
  if (pipeline_ == nullptr) return;
  const std::string type = GetString(message, "type");
  if (type == "answer") {
    SetAnswer(GetString(message, "sdp"));
  } else if (type == "candidate") {
    AddCandidate(GetString(message, "candidate"));
  } else if (type == "speak") {
    Speak(message);
  } else if (type == "interrupt") {
    guint64 frames = 0;
    g_signal_emit_by_name(speech_, "interrupt", &frames);
  } else if (type.empty()) {
    SendError("The server takes JSON objects with a \"type\".");
  } else {
    SendError("The server does not know the message \"" + type.substr(0, 40) + "\".");
  }
}

void Peer::SetAnswer(const std::string& sdp) {
  if (answered_) {
    SendError("The browser has answered already.");
    return;
  }
  GstSDPMessage* parsed = nullptr;
  if (sdp.empty() || gst_sdp_message_new_from_text(sdp.c_str(), &parsed) != GST_SDP_OK) {
    SendError("The answer of the browser is not a session description.");
    return;
  }
  if (gst_sdp_message_medias_len(parsed) != 1) {
    gst_sdp_message_free(parsed);
    SendError("The answer of the browser is not one to the offer: it has not the one track.");
    return;
  }
  answered_ = true;
  GstWebRTCSessionDescription* answer = gst_webrtc_session_description_new(GST_WEBRTC_SDP_TYPE_ANSWER, parsed);
  GstPromise* promise = gst_promise_new_with_change_func(OnAnswered, gst_object_ref(webrtc_), gst_object_unref);
  g_signal_emit_by_name(webrtc_, "set-remote-description", answer, promise);
  gst_webrtc_session_description_free(answer);
}

// All are of the first track, there is no other. An empty one says that there are no more.
void Peer::AddCandidate(const std::string& candidate) {
  if (candidate.empty()) return;
  if (candidates_ == kMaxCandidates) {
    SendError("The browser has more addresses than the server tries.");
    return;
  }
  ++candidates_;
  g_signal_emit_by_name(webrtc_, "add-ice-candidate", 0U, candidate.c_str());
}

void Peer::Speak(const Json& message) {
  const std::string text = GetString(message, "text");
  if (text.size() > kMaxTextBytes) {
    SendError("The text is too long. Say less at once.");
    return;
  }
  if (text.find('\0') != std::string::npos) {
    SendError("The text has a NUL character in it.");
    return;
  }
  // The element would refuse it too, with a warning.
  const std::string speaker = GetString(message, "speaker");
  const std::string language = GetString(message, "language");
  if (!speaker.empty() && !Contains(speakers_, speaker)) {
    SendError("The model has no speaker of this name.");
    return;
  }
  if (!language.empty() && language != "auto" && !Contains(languages_, language)) {
    SendError("The model does not speak this language.");
    return;
  }
  // A setting that is not named keeps the value that the element has.
  GstStructure* settings = gst_structure_new_empty("settings");
  for (const char* name : {"speaker", "language", "instruct"}) {
    const std::string value = GetString(message, name);
    if (!value.empty()) gst_structure_set(settings, name, G_TYPE_STRING, value.c_str(), nullptr);
  }
  guint64 id = 0;
  g_signal_emit_by_name(speech_, "speak", text.c_str(), settings, &id);
  gst_structure_free(settings);
  if (id == 0) {
    SendError("The text was not accepted: it is blank, or too much is waiting to be spoken.");
    return;
  }
  send_({{"type", "accepted"}, {"id", id}, {"text", text}});
}

gboolean Peer::OnMessage(GstBus* /*bus*/, GstMessage* message, gpointer user_data) {
  static_cast<Peer*>(user_data)->HandleMessage(message);
  return G_SOURCE_CONTINUE;
}

void Peer::HandleMessage(GstMessage* message) {
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
    case GST_MESSAGE_WARNING: {
      const bool is_error = GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR;
      GError* error = nullptr;
      if (is_error) {
        gst_message_parse_error(message, &error, nullptr);
      } else {
        gst_message_parse_warning(message, &error, nullptr);
      }
      if (is_error) {
        fail_(error->message);
      } else {
        SendError(error->message);
      }
      g_error_free(error);
      break;
    }
    case GST_MESSAGE_LATENCY:
      gst_bin_recalculate_latency(GST_BIN(pipeline_));
      break;
    case GST_MESSAGE_ELEMENT:
    case GST_MESSAGE_APPLICATION:
      HandleStructure(gst_message_get_structure(message));
      break;
    default:
      break;
  }
}

void Peer::HandleStructure(const GstStructure* structure) {
  if (gst_structure_has_name(structure, "offer")) {
    send_({{"type", "offer"}, {"sdp", gst_structure_get_string(structure, "sdp")}});
  } else if (gst_structure_has_name(structure, "refused")) {
    SendError(std::string("The answer of the browser was refused: ") + gst_structure_get_string(structure, "text"));
  } else if (gst_structure_has_name(structure, "candidate")) {
    guint line = 0;
    gst_structure_get_uint(structure, "line", &line);
    send_({{"type", "candidate"}, {"line", line}, {"candidate", gst_structure_get_string(structure, "candidate")}});
  } else if (gst_structure_has_name(structure, "qtts-utterance-started")) {
    send_({{"type", "started"},
           {"id", GetNumber(structure, "id")},
           {"synthesis", static_cast<double>(GetNumber(structure, "first-frame-latency")) / 1e6}});
  } else if (gst_structure_has_name(structure, "qtts-text-progress")) {
    send_({{"type", "progress"},
           {"id", GetNumber(structure, "id")},
           {"offset", GetNumber(structure, "offset-chars")},
           {"length", GetNumber(structure, "length-chars")},
           {"delay", MillisecondsUntil(GetNumber(structure, "running-time"))}});
  } else if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
    send_({{"type", "finished"},
           {"id", GetNumber(structure, "id")},
           {"reason", gst_structure_get_string(structure, "reason")},
           {"spoken", GetNumber(structure, "text-spoken-chars")}});
  }
}

// Until the moment at which something is heard; 0 if that has passed.
double Peer::MillisecondsUntil(GstClockTime running_time) const {
  const GstClockTime now = gst_element_get_current_running_time(pipeline_);
  if (!GST_CLOCK_TIME_IS_VALID(now) || running_time <= now) return 0;
  return static_cast<double>(running_time - now) / static_cast<double>(GST_MSECOND);
}
