// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_EXAMPLES_WEBRTC_PEER_H_
#define QTTS_EXAMPLES_WEBRTC_PEER_H_

#include <gst/gst.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../program.h"

struct PeerOptions {
  std::string model_path;     // empty: the bundled voice
  std::string device;         // empty: the element's default
  bool keep_silence = false;  // at the beginning of utterances
  std::string stun_server;    // stun://host:port; empty: none, enough on one network
};

// One browser: a pipeline of its own, from a qttssrc to a webrtcbin. All elements with the same model
// share one engine, so a peer costs little.
//
// Used on the thread of the main loop alone. Events on GStreamer's threads come to it as messages on the pipeline's
// bus, which end with the pipeline. `send` is called for each message to the browser, and `fail` with a text to show
// when nothing more can be spoken: all that is left to do with the peer is to let go of it, later on the main loop.
// `send_bytes` is for what is not JSON.
//
// Texts wait here, and the element has one at a time: so one of them can be removed, and all samples that leave the
// element are of the one being spoken. They are kept, the last minutes of them, until the browser asks for them.
class Peer {
 public:
  using Json = nlohmann::json;
  using Send = std::function<void(const Json&)>;
  using SendBytes = std::function<void(const std::string&)>;
  using Fail = std::function<void(const std::string& text)>;

  Peer(const PeerOptions& options, Send send, SendBytes send_bytes, Fail fail);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Tells the browser what the model offers, and offers it a track.
  void Start();

  // Does what the browser asks for; a message that makes no sense is answered with an error.
  void Receive(const Json& message);

 private:
  struct Text {
    guint64 id = 0;  // told to the browser; 0: none
    Json message;
  };
  struct Sound {
    guint64 id = 0;
    std::string wav;
  };

  void HandleMessage(GstMessage* message);
  void HandleStructure(const GstStructure* structure);
  void HandleUtterance(const GstStructure* structure);
  double MillisecondsUntil(GstClockTime running_time) const;
  void SendError(const std::string& text) { send_({{"type", "error"}, {"text", text}}); }
  void SendFinished(guint64 id, const char* reason) {
    send_({{"type", "finished"}, {"id", id}, {"reason", reason}, {"spoken", 0}});
  }
  void SetAnswer(const std::string& sdp);
  void AddCandidate(const std::string& candidate);
  void Speak(const Json& message);
  // Why a text of the browser cannot be spoken; empty: it can.
  std::string Refusal(const Json& message) const;
  // Gives the element the next text, if it has none.
  void SpeakNext();
  void Remove(const Json& message);
  void Interrupt();
  void SendSound(const Json& message);
  void KeepSound();
  static GstPadProbeReturn OnSamples(GstPad* pad, GstPadProbeInfo* info, gpointer user_data);

  Send send_;
  SendBytes send_bytes_;
  Fail fail_;
  std::string model_name_;     // empty: the bundled voice
  std::string instruct_kind_;  // use of instructions for the model: "voice", "style", or none
  GstElement* pipeline_ = nullptr;
  GstElement* speech_ = nullptr;
  GstElement* webrtc_ = nullptr;
  std::unique_ptr<BusWatch> watch_;
  std::vector<std::string> speakers_;
  std::vector<std::string> languages_;
  bool answered_ = false;
  int candidates_ = 0;

  guint64 last_id_ = 0;
  std::deque<Text> waiting_;
  Text speaking_;             // the text that the element has
  guint64 utterance_id_ = 0;  // the element's, of that
  std::deque<Sound> sounds_;  // of texts that are over, the oldest first
  std::mutex samples_mutex_;
  std::string samples_;  // of the text being spoken; the streaming thread appends to it
};

#endif  // QTTS_EXAMPLES_WEBRTC_PEER_H_
