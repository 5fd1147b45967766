// SPDX-License-Identifier: LGPL-2.1-or-later
#include "peer.h"

#include <gst/sdp/sdp.h>
#define GST_USE_UNSTABLE_API
#include <gst/webrtc/webrtc.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

namespace {

// A frame of 80 ms becomes four packets, which webrtcbin sends at the pace at which they are heard. Between utterances
// nothing is sent: the browser then plays the first packet at once, where in flowing silence it would wait behind what
// its jitter buffer holds. For this the packets must be dated by the sound in them, pauses included: without
// perfect-timestamp, opusenc gives the first packet after a pause the time before it, so that it looks late by the
// whole pause, and the jitter buffer grows with each.
constexpr const char* kPipeline =
    "qttssrc name=speech is-live=true idle-mode=wait trim-leading-silence=true ! audio/x-raw,format=S16LE "
    "! opusenc audio-type=voice bitrate=32000 inband-fec=true packet-loss-percentage=5 perfect-timestamp=true "
    "! rtpopuspay name=payloader pt=96 ssrc=1 ! webrtcbin name=webrtc bundle-policy=max-bundle";

// Opus looks ahead: a packet is dated by so much before the sound that completed it.
constexpr GstClockTime kLookahead = 6500 * GST_USECOND;

constexpr const char* kCodec =
    "application/"
    "x-rtp,media=audio,encoding-name=OPUS,payload="
    "96,clock-rate=48000,encoding-params=(string)2,"
    "useinbandfec=(string)1,ssrc=(uint)1";

constexpr size_t kMaxCharacters = 5000;  // of a text; the page shows it
constexpr size_t kMaxInstructCharacters = 500;
constexpr size_t kMaxWaiting = 64;                   // texts
constexpr size_t kMaxSoundBytes = size_t{16} << 20;  // of a browser: 5½ minutes of speech
constexpr int kMaxCandidates = 100;                  // a browser has one for each of its addresses

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
  gchar** list = nullptr;
  g_object_get(element, property, &list, nullptr);
  std::vector<std::string> strings(list, list + g_strv_length(list));
  g_strfreev(list);
  return strings;
}

// Empty where the property is unset.
std::string GetStringProperty(GstElement* element, const char* property) {
  gchar* value = nullptr;
  g_object_get(element, property, &value, nullptr);
  std::string string = value == nullptr ? "" : value;
  g_free(value);
  return string;
}

guint64 GetNumber(const GstStructure* structure, const char* field) {
  guint64 value = 0;
  gst_structure_get_uint64(structure, field, &value);
  return value;
}

std::string GetString(const Peer::Json& message, const char* key) {
  const auto value = message.find(key);
  return value != message.end() && value->is_string() ? value->get<std::string>() : std::string();
}

// 0 if there is no such number.
guint64 GetId(const Peer::Json& message) {
  const auto value = message.find("id");
  return value != message.end() && value->is_number_unsigned() ? value->get<guint64>() : 0;
}

// Unicode characters; `text` is UTF-8, as all that was parsed from JSON.
size_t CountCharacters(const std::string& text) { return static_cast<size_t>(g_utf8_strlen(text.c_str(), -1)); }

bool IsBlank(const std::string& text) {
  for (const char* c = text.c_str(); *c != '\0'; c = g_utf8_find_next_char(c, nullptr)) {
    if (!g_unichar_isspace(g_utf8_get_char(c))) return false;
  }
  return true;
}

// The folder's name; of a snapshot in the cache of huggingface_hub that of the model. Empty for the bundled voice.
std::string ModelName(const std::string& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) return {};
  if (path.parent_path().filename() != "snapshots") return path.filename().string();
  const std::string name = path.parent_path().parent_path().filename().string();
  const size_t dashes = name.rfind("--");
  return dashes == std::string::npos ? name : name.substr(dashes + 2);
}

// Returns the use of an instruction for the model in this folder: "voice" describes the voice, "style" the manner;
// empty: none. The engine decides the same way; the element has no property for it.
std::string InstructKind(const std::string& folder) {
  gchar* contents = nullptr;
  if (!g_file_get_contents((folder + "/config.json").c_str(), &contents, nullptr, nullptr)) return {};
  const auto config = Peer::Json::parse(contents, nullptr, false);
  g_free(contents);
  if (!config.is_object()) return {};
  const std::string type = GetString(config, "tts_model_type");
  if (type == "voice_design") return "voice";
  const std::string size = GetString(config, "tts_model_size");
  return type == "custom_voice" && std::string("0b6").find(size) == std::string::npos ? "style" : "";
}

// The folder of the model that the element has in READY.
std::string ModelFolder(GstElement* speech) {
  GstStructure* stats = nullptr;
  g_object_get(speech, "stats", &stats, nullptr);
  const gchar* folder = gst_structure_get_string(stats, "model");
  std::string result = folder != nullptr ? folder : "";
  gst_structure_free(stats);
  return result;
}

// Samples of 16 bits, as a file.
std::string MakeWav(const std::string& samples, guint32 rate) {
  std::string wav;
  const auto put = [&wav](guint32 value, int bytes) {
    for (int i = 0; i < bytes; ++i) wav.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  };
  const auto size = static_cast<guint32>(samples.size());
  wav.reserve(44 + samples.size());
  wav += "RIFF";
  put(36 + size, 4);
  wav += "WAVEfmt ";
  put(16, 4);
  put(1, 2);  // PCM
  put(1, 2);  // channel
  put(rate, 4);
  put(2 * rate, 4);
  put(2, 2);
  put(16, 2);
  wav += "data";
  put(size, 4);
  return wav + samples;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Peer::Peer(const PeerOptions& options, Send send, SendBytes send_bytes, Fail fail)
    : send_(std::move(send)),
      send_bytes_(std::move(send_bytes)),
      fail_(std::move(fail)),
      model_name_(ModelName(options.model_path)) {
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
  gst_util_set_object_arg(G_OBJECT(speech_), "trim-leading-silence", options.keep_silence ? "false" : "true");
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
  pad = gst_element_get_static_pad(speech_, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnSamples, this, nullptr);
  gst_object_unref(pad);
  g_signal_connect(webrtc_, "on-ice-candidate", G_CALLBACK(OnIceCandidate), nullptr);

  watch_ = std::make_unique<BusWatch>(pipeline_, [this](GstMessage* message) { HandleMessage(message); });
}

Peer::~Peer() {
  if (pipeline_ == nullptr) return;
  watch_.reset();
  gst_element_set_state(pipeline_, GST_STATE_NULL);
  gst_object_unref(webrtc_);
  gst_object_unref(speech_);
  gst_object_unref(pipeline_);
}

void Peer::Start() {
  if (pipeline_ == nullptr) return;
  // Errors come on the bus.
  if (gst_element_set_state(pipeline_, GST_STATE_READY) == GST_STATE_CHANGE_FAILURE) return;
  speakers_ = GetStrings(speech_, "speakers");
  languages_ = GetStrings(speech_, "languages");
  instruct_kind_ = InstructKind(ModelFolder(speech_));
  send_({{"type", "model"},
         {"name", model_name_},
         {"speakers", speakers_},
         {"speaker", GetStringProperty(speech_, "default-speaker")},
         {"languages", languages_},
         {"instruct", instruct_kind_},
         {"characters", kMaxCharacters}});
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
    Interrupt();
  } else if (type == "remove") {
    Remove(message);
  } else if (type == "sound") {
    SendSound(message);
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

std::string Peer::Refusal(const Json& message) const {
  const std::string text = GetString(message, "text");
  if (text.find('\0') != std::string::npos) return "The text has a NUL character in it.";
  if (CountCharacters(text) > kMaxCharacters) return "The text is too long. Say less at once.";
  if (IsBlank(text)) return "The text was not accepted: it is blank.";
  const std::string speaker = GetString(message, "speaker");
  const std::string language = GetString(message, "language");
  if (!speaker.empty() && !Contains(speakers_, speaker)) return "The model has no speaker of this name.";
  if (!language.empty() && language != "auto" && !Contains(languages_, language)) {
    return "The model does not speak this language.";
  }
  const std::string instruct = GetString(message, "instruct");
  if (!instruct.empty() && instruct_kind_.empty()) return "The model takes no instruction.";
  if (instruct.find('\0') != std::string::npos) return "The instruction has a NUL character in it.";
  if (CountCharacters(instruct) > kMaxInstructCharacters) return "The instruction is too long.";
  if (waiting_.size() >= kMaxWaiting) return "The text was not accepted: too much is waiting to be spoken.";
  return {};
}

void Peer::Speak(const Json& message) {
  const std::string refusal = Refusal(message);
  if (!refusal.empty()) {
    send_({{"type", "error"}, {"text", refusal}, {"about", "speak"}});
    return;
  }
  waiting_.push_back({++last_id_, message});
  send_({{"type", "accepted"}, {"id", last_id_}, {"text", GetString(message, "text")}});
  SpeakNext();
}

void Peer::SpeakNext() {
  while (speaking_.id == 0 && !waiting_.empty()) {
    const Text next = std::move(waiting_.front());
    waiting_.pop_front();
    // A setting that is not named keeps the value that the element has.
    GstStructure* settings = gst_structure_new_empty("settings");
    for (const char* name : {"speaker", "language", "instruct"}) {
      const std::string value = GetString(next.message, name);
      if (!value.empty()) gst_structure_set(settings, name, G_TYPE_STRING, value.c_str(), nullptr);
    }
    {
      const std::lock_guard<std::mutex> lock(samples_mutex_);
      samples_.clear();
    }
    g_signal_emit_by_name(speech_, "speak", GetString(next.message, "text").c_str(), settings, &utterance_id_);
    gst_structure_free(settings);
    if (utterance_id_ != 0) {
      speaking_ = next;
    } else {
      SendError("The element did not accept the text.");
      SendFinished(next.id, "error");
    }
  }
}

// One that is being spoken by now, or is over, is left alone: the browser could not know.
void Peer::Remove(const Json& message) {
  const guint64 id = GetId(message);
  if (id == 0) {
    SendError("What is to be removed needs the \"id\" of a text.");
    return;
  }
  const auto text =
      std::find_if(waiting_.begin(), waiting_.end(), [id](const Text& waiting) { return waiting.id == id; });
  if (text == waiting_.end()) return;
  waiting_.erase(text);
  SendFinished(id, "removed");
}

void Peer::Interrupt() {
  for (const Text& text : std::exchange(waiting_, {})) SendFinished(text.id, "interrupted");
  guint64 frames = 0;
  g_signal_emit_by_name(speech_, "interrupt", &frames);
}

// Each is sent once, and then is the browser's to keep: asking again and again costs nothing.
void Peer::SendSound(const Json& message) {
  const guint64 id = GetId(message);
  const auto sound = std::find_if(sounds_.begin(), sounds_.end(), [id](const Sound& kept) { return kept.id == id; });
  const bool found = id != 0 && sound != sounds_.end();
  send_({{"type", "sound"}, {"id", id}, {"bytes", found ? sound->wav.size() : 0}});
  if (!found) return;
  send_bytes_(sound->wav);
  sounds_.erase(sound);
}

// Keeps the sound of the text that is over now.
void Peer::KeepSound() {
  std::string samples;
  {
    const std::lock_guard<std::mutex> lock(samples_mutex_);
    samples.swap(samples_);
  }
  if (samples.empty() || samples.size() > kMaxSoundBytes) return;
  GstPad* pad = gst_element_get_static_pad(speech_, "src");
  GstCaps* caps = gst_pad_get_current_caps(pad);
  gst_object_unref(pad);
  if (caps == nullptr) return;
  gint rate = 0;
  gst_structure_get_int(gst_caps_get_structure(caps, 0), "rate", &rate);
  gst_caps_unref(caps);
  sounds_.push_back({speaking_.id, MakeWav(samples, static_cast<guint32>(rate))});
  size_t bytes = 0;
  for (const Sound& sound : sounds_) bytes += sound.wav.size();
  while (bytes > kMaxSoundBytes) {
    bytes -= sounds_.front().wav.size();
    sounds_.pop_front();
  }
}

// One sample more than is kept tells that it was too much.
GstPadProbeReturn Peer::OnSamples(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
  auto* self = static_cast<Peer*>(user_data);
  GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) return GST_PAD_PROBE_OK;
  {
    const std::lock_guard<std::mutex> lock(self->samples_mutex_);
    if (self->samples_.size() <= kMaxSoundBytes) {
      self->samples_.append(reinterpret_cast<const char*>(map.data), map.size);
    }
  }
  gst_buffer_unmap(buffer, &map);
  return GST_PAD_PROBE_OK;
}

void Peer::HandleMessage(GstMessage* message) {
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
      fail_(ProblemText(message));
      break;
    case GST_MESSAGE_WARNING:
      SendError(ProblemText(message));
      break;
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
  } else if (speaking_.id != 0 && GetNumber(structure, "id") == utterance_id_) {
    HandleUtterance(structure);
  }
}

// About the text that the element has.
void Peer::HandleUtterance(const GstStructure* structure) {
  const guint64 id = speaking_.id;
  if (gst_structure_has_name(structure, "qtts-utterance-started")) {
    send_({{"type", "started"},
           {"id", id},
           {"synthesis", static_cast<double>(GetNumber(structure, "first-frame-latency")) / 1e6}});
  } else if (gst_structure_has_name(structure, "qtts-text-progress")) {
    send_({{"type", "progress"},
           {"id", id},
           {"offset", GetNumber(structure, "offset-chars")},
           {"length", GetNumber(structure, "length-chars")},
           {"delay", MillisecondsUntil(GetNumber(structure, "running-time"))}});
  } else if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
    KeepSound();
    const bool kept = !sounds_.empty() && sounds_.back().id == id;
    speaking_ = {};
    send_({{"type", "finished"},
           {"id", id},
           {"reason", gst_structure_get_string(structure, "reason")},
           {"spoken", GetNumber(structure, "text-spoken-chars")},
           {"sound", kept}});
    SpeakNext();
  }
}

// Until the moment at which something is heard; 0 if that has passed.
double Peer::MillisecondsUntil(GstClockTime running_time) const {
  const GstClockTime now = gst_element_get_current_running_time(pipeline_);
  if (!GST_CLOCK_TIME_IS_VALID(now) || running_time <= now) return 0;
  return static_cast<double>(running_time - now) / static_cast<double>(GST_MSECOND);
}
