// SPDX-License-Identifier: LGPL-2.1-or-later
// Speaks each line of standard input as it comes, writes the samples (signed 16 bits, 24000 Hz, mono) to
// standard output and tells on standard error what happens: signals and messages in a GLib main loop, as in
// any application that has one. The exit status is 0 only if every line was spoken and written.
//   speak-cpp ["PROPERTIES"] | aplay -f S16_LE -r 24000
// PROPERTIES are further ones of the element, as gst-launch-1.0 takes them: "speaker=hugh seed=1".
#include <gst/app/gstappsink.h>
#include <gst/gst.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string>

namespace {

class Application {
 public:
  // `properties`: more of the element's, for the launch line. Returns the exit status.
  int Run(const std::string& properties);

 private:
  static GstFlowReturn OnSample(GstElement* out, gpointer user_data);
  static gboolean OnMessage(GstBus* bus, GstMessage* message, gpointer user_data);
  static gboolean OnInput(GIOChannel* input, GIOCondition condition, gpointer user_data);

  void Speak(const std::string& text);
  void PrintProblem(GstMessage* message);
  void OnElementMessage(const GstStructure* structure);
  void EndIfDone() {
    if (input_ended_ && waiting_.empty()) g_main_loop_quit(loop_);
  }

  GMainLoop* loop_ = nullptr;
  GstElement* speech_ = nullptr;
  std::set<guint64> waiting_;  // utterances that are not finished
  bool input_ended_ = false;
  std::atomic<int> status_ = 0;
};

int Application::Run(const std::string& properties) {
  GError* error = nullptr;
  const std::string line =
      "qttssrc name=speech idle-mode=wait " + properties +
      " ! appsink name=out sync=false emit-signals=true max-buffers=8 caps=audio/x-raw,format=S16LE";
  GstElement* pipeline = gst_parse_launch(line.c_str(), &error);
  if (error != nullptr) {
    g_printerr("%s\n", error->message);
    g_error_free(error);
    gst_clear_object(&pipeline);
    return 1;
  }
  speech_ = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  GstElement* out = gst_bin_get_by_name(GST_BIN(pipeline), "out");
  g_signal_connect(out, "new-sample", G_CALLBACK(OnSample), this);
  loop_ = g_main_loop_new(nullptr, FALSE);
  GstBus* bus = gst_element_get_bus(pipeline);
  gst_bus_add_watch(bus, OnMessage, this);
  GIOChannel* input = g_io_channel_unix_new(fileno(stdin));

  // Text is taken from the moment in which the element is started; the model may still be loading. If it cannot
  // be started, an error is on its way.
  if (gst_element_set_state(pipeline, GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE) {
    g_io_add_watch(input, static_cast<GIOCondition>(G_IO_IN | G_IO_HUP), OnInput, this);
  }
  g_main_loop_run(loop_);
  // Handles messages that were posted before the loop ended. The state NULL would drop them.
  while (GstMessage* message = gst_bus_pop(bus)) {
    OnMessage(bus, message, this);
    gst_message_unref(message);
  }

  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_bus_remove_watch(bus);
  g_io_channel_unref(input);
  gst_object_unref(bus);
  g_main_loop_unref(loop_);
  gst_object_unref(out);
  gst_object_unref(speech_);
  gst_object_unref(pipeline);
  return status_;
}

// On the streaming thread. One sample is one frame of 80 ms.
GstFlowReturn Application::OnSample(GstElement* out, gpointer user_data) {
  auto* self = static_cast<Application*>(user_data);
  GstSample* sample = gst_app_sink_pull_sample(GST_APP_SINK(out));
  if (sample == nullptr) return GST_FLOW_EOS;
  bool written = false;
  GstMapInfo map;
  if (gst_buffer_map(gst_sample_get_buffer(sample), &map, GST_MAP_READ)) {
    written = std::fwrite(map.data, 1, map.size, stdout) == map.size && std::fflush(stdout) == 0;
    if (!written) g_printerr("standard output: %s\n", g_strerror(errno));
    gst_buffer_unmap(gst_sample_get_buffer(sample), &map);
  }
  gst_sample_unref(sample);
  if (written) return GST_FLOW_OK;
  self->status_ = 1;
  g_main_loop_quit(self->loop_);
  return GST_FLOW_EOS;
}

gboolean Application::OnMessage(GstBus* /*bus*/, GstMessage* message, gpointer user_data) {
  auto* self = static_cast<Application*>(user_data);
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ELEMENT) {
    self->OnElementMessage(gst_message_get_structure(message));
  } else if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) {
    self->PrintProblem(message);
  } else if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    self->PrintProblem(message);
    self->status_ = 1;
    g_main_loop_quit(self->loop_);
  }
  return G_SOURCE_CONTINUE;
}

void Application::PrintProblem(GstMessage* message) {
  GError* error = nullptr;
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    gst_message_parse_error(message, &error, nullptr);
  } else {
    gst_message_parse_warning(message, &error, nullptr);
  }
  g_printerr("%s\n", error->message);
  g_error_free(error);
}

void Application::OnElementMessage(const GstStructure* structure) {
  guint64 id = 0;
  if (gst_structure_has_name(structure, "qtts-utterance-started")) {
    guint64 latency = 0;
    gst_structure_get(structure, "id", G_TYPE_UINT64, &id, "first-frame-latency", G_TYPE_UINT64, &latency, nullptr);
    g_printerr("%" G_GUINT64_FORMAT " started, first frame after %.1f ms\n", id, static_cast<double>(latency) / 1e6);
  } else if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
    guint64 samples = 0;
    gst_structure_get(structure, "id", G_TYPE_UINT64, &id, "samples", G_TYPE_UINT64, &samples, nullptr);
    const std::string reason = gst_structure_get_string(structure, "reason");
    g_printerr("%" G_GUINT64_FORMAT " finished: %s, %.2f s\n", id, reason.c_str(),
               static_cast<double>(samples) / 24000);
    if (reason != "complete") status_ = 1;
    waiting_.erase(id);
    EndIfDone();
  }
}

gboolean Application::OnInput(GIOChannel* input, GIOCondition /*condition*/, gpointer user_data) {
  auto* self = static_cast<Application*>(user_data);
  do {
    gchar* line = nullptr;
    const GIOStatus status = g_io_channel_read_line(input, &line, nullptr, nullptr, nullptr);
    if (status == G_IO_STATUS_AGAIN) return G_SOURCE_CONTINUE;
    if (status != G_IO_STATUS_NORMAL) {
      self->input_ended_ = true;
      self->EndIfDone();
      return G_SOURCE_REMOVE;
    }
    self->Speak(g_strstrip(line));
    g_free(line);
  } while ((g_io_channel_get_buffer_condition(input) & G_IO_IN) != 0);
  return G_SOURCE_CONTINUE;
}

void Application::Speak(const std::string& text) {
  if (text.empty()) return;
  // Settings of this utterance alone would be fields of a GstStructure, named like the properties:
  // gst_structure_new("settings", "speaker", G_TYPE_STRING, "ryan", nullptr).
  guint64 id = 0;
  g_signal_emit_by_name(speech_, "speak", text.c_str(), nullptr, &id);
  if (id == 0) {
    g_printerr("not accepted: %s\n", text.c_str());
    status_ = 1;
  } else {
    waiting_.insert(id);
  }
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const std::string properties = argc > 1 ? argv[1] : "";
  const bool help = properties == "--help" || properties == "-h";
  if (help || argc > 2) {
    (help ? g_print : g_printerr)("usage: %s [PROPERTIES] <lines >samples\n", argv[0]);
    return help ? 0 : 2;
  }
  return Application().Run(properties);
}
