// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_EXAMPLES_WEBRTC_PEER_H_
#define QTTS_EXAMPLES_WEBRTC_PEER_H_

#include <gst/gst.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

struct PeerOptions {
  std::string model_path;   // empty: the bundled voice
  std::string device;       // empty: the element's default
  std::string stun_server;  // stun://host:port; empty: none, enough on one network
};

// One browser: a pipeline of its own, from a qttssrc to a webrtcbin. All elements with the same model
// share one engine, so a peer costs little.
//
// Used on the thread of the main loop alone. What happens on GStreamer's threads comes to it as messages
// on the pipeline's bus, which end with the pipeline. `send` is called for each message to the browser, and `fail`
// with a text to show when nothing more can be spoken: all that is left to do with the peer is to let go of it, later
// on the main loop.
class Peer {
 public:
  using Json = nlohmann::json;
  using Send = std::function<void(const Json&)>;
  using Fail = std::function<void(const std::string& text)>;

  Peer(const PeerOptions& options, Send send, Fail fail);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Tells the browser what the model offers, and offers it a track.
  void Start();

  // Does what the browser asks for; a message that makes no sense is answered with an error.
  void Receive(const Json& message);

 private:
  static gboolean OnMessage(GstBus* bus, GstMessage* message, gpointer user_data);
  void HandleMessage(GstMessage* message);
  void HandleStructure(const GstStructure* structure);
  double MillisecondsUntil(GstClockTime running_time) const;
  void SendError(const std::string& text) { send_({{"type", "error"}, {"text", text}}); }
  void SetAnswer(const std::string& sdp);
  void AddCandidate(const std::string& candidate);
  void Speak(const Json& message);

  Send send_;
  Fail fail_;
  GstElement* pipeline_ = nullptr;
  GstElement* speech_ = nullptr;
  GstElement* webrtc_ = nullptr;
  std::vector<std::string> speakers_;
  std::vector<std::string> languages_;
  bool answered_ = false;
  int candidates_ = 0;
};

#endif  // QTTS_EXAMPLES_WEBRTC_PEER_H_
