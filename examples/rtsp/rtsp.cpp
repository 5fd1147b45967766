// SPDX-License-Identifier: LGPL-2.1-or-later
// An RTSP server with one voice, which everybody hears who listens. Its text comes over a TCP port of this
// machine, a line each:
//   TEXT         speaks it                       ok ID   or   error WHY
//   /interrupt   stops what is being spoken      ok      or   error WHY
//   /voice NAME  changes the voice               ok      or   error WHY
// Between texts there is silence, so that players stay tuned.
#include <gio/gio.h>
#include <gst/gst.h>
#include <gst/rtsp-server/rtsp-server.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "../program.h"

namespace {

constexpr const char* kLaunch =
    "( qttssrc name=speech is-live=true idle-mode=silence ! audio/x-raw,format=S16LE "
    "! opusenc audio-type=voice bitrate=32000 ! rtpopuspay name=pay0 )";

struct Station {
  std::string model_path;
  std::string device;
  std::vector<std::string> voices;

  std::mutex mutex;  // the server and each control connection have threads of their own
  std::string voice;
  GstElement* speech = nullptr;  // while somebody listens
};

void Configure(const Station& station, GstElement* speech) {
  if (!station.model_path.empty()) g_object_set(speech, "model-path", station.model_path.c_str(), nullptr);
  if (!station.device.empty()) gst_util_set_object_arg(G_OBJECT(speech), "device", station.device.c_str());
}

// Finds out whether the model can be used, and its voices.
bool Inspect(Station* station) {
  GstElement* speech = gst_element_factory_make("qttssrc", nullptr);
  if (speech == nullptr) {
    g_printerr("There is no element qttssrc. Name the folder of the plugin in GST_PLUGIN_PATH.\n");
    return false;
  }
  Configure(*station, speech);
  GstBus* bus = gst_bus_new();
  gst_element_set_bus(speech, bus);
  const bool usable = gst_element_set_state(speech, GST_STATE_READY) != GST_STATE_CHANGE_FAILURE;
  if (usable) {
    gchar** voices = nullptr;
    g_object_get(speech, "speakers", &voices, nullptr);
    station->voices.assign(voices, voices + g_strv_length(voices));
    g_strfreev(voices);
  } else {
    GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
    g_printerr("%s\n", ProblemText(message).c_str());
    gst_message_unref(message);
  }
  gst_element_set_bus(speech, nullptr);
  gst_element_set_state(speech, GST_STATE_NULL);
  gst_object_unref(bus);
  gst_object_unref(speech);
  return usable;
}

// The last listener went.
void OnUnprepared(GstRTSPMedia* /*media*/, gpointer user_data) {
  auto* station = static_cast<Station*>(user_data);
  const std::lock_guard lock(station->mutex);
  gst_clear_object(&station->speech);
}

// The first listener came: the pipeline was made and is about to be started.
void OnMediaConfigure(GstRTSPMediaFactory* /*factory*/, GstRTSPMedia* media, gpointer user_data) {
  auto* station = static_cast<Station*>(user_data);
  GstElement* bin = gst_rtsp_media_get_element(media);
  GstElement* speech = gst_bin_get_by_name(GST_BIN(bin), "speech");
  gst_object_unref(bin);
  Configure(*station, speech);
  g_signal_connect(media, "unprepared", G_CALLBACK(OnUnprepared), station);
  const std::lock_guard lock(station->mutex);
  if (!station->voice.empty()) g_object_set(speech, "speaker", station->voice.c_str(), nullptr);
  gst_clear_object(&station->speech);
  station->speech = speech;
}

std::string ChangeVoice(Station* station, const std::string& voice) {
  if (std::find(station->voices.begin(), station->voices.end(), voice) == station->voices.end()) {
    std::string known;
    for (const std::string& name : station->voices) known += " " + name;
    return "error no such voice; there are:" + known;
  }
  const std::lock_guard lock(station->mutex);
  station->voice = voice;
  if (station->speech != nullptr) g_object_set(station->speech, "speaker", voice.c_str(), nullptr);
  return "ok";
}

// Does what a line says; the answer.
std::string Obey(Station* station, const std::string& line) {
  const std::string voice_command = "/voice ";
  if (line.compare(0, voice_command.size(), voice_command) == 0) {
    return ChangeVoice(station, line.substr(voice_command.size()));
  }
  if (line[0] == '/' && line != "/interrupt") return "error no such command; there are: /interrupt, /voice NAME";
  GstElement* speech = nullptr;
  {
    const std::lock_guard lock(station->mutex);
    if (station->speech == nullptr) return "error nobody listens";
    speech = GST_ELEMENT(gst_object_ref(station->speech));
  }
  std::string answer = "ok";
  if (line == "/interrupt") {
    guint64 frames = 0;
    g_signal_emit_by_name(speech, "interrupt", &frames);
  } else {
    guint64 id = 0;
    g_signal_emit_by_name(speech, "speak", line.c_str(), nullptr, &id);
    answer = id != 0 ? "ok " + std::to_string(id) : "error not accepted: the text is blank, or too much is waiting";
  }
  gst_object_unref(speech);
  return answer;
}

// A control connection, on a thread of its own.
gboolean OnControl(GThreadedSocketService* /*service*/, GSocketConnection* connection, GObject* /*source*/,
                   gpointer user_data) {
  GDataInputStream* input = g_data_input_stream_new(g_io_stream_get_input_stream(G_IO_STREAM(connection)));
  g_data_input_stream_set_newline_type(input, G_DATA_STREAM_NEWLINE_TYPE_ANY);
  GOutputStream* output = g_io_stream_get_output_stream(G_IO_STREAM(connection));
  gchar* line = nullptr;
  // Lines that are not UTF-8 end the connection.
  while ((line = g_data_input_stream_read_line_utf8(input, nullptr, nullptr, nullptr)) != nullptr) {
    g_strstrip(line);
    const std::string answer = *line == '\0' ? "error empty line" : Obey(static_cast<Station*>(user_data), line);
    g_free(line);
    if (!g_output_stream_printf(output, nullptr, nullptr, nullptr, "%s\n", answer.c_str())) break;
  }
  g_object_unref(input);
  return TRUE;
}

// Only programs of this machine may say what is spoken.
GSocketService* NewControl(int port, Station* station) {
  GSocketService* service = g_threaded_socket_service_new(16);
  GInetAddress* loopback = g_inet_address_new_loopback(G_SOCKET_FAMILY_IPV4);
  GSocketAddress* address = g_inet_socket_address_new(loopback, static_cast<guint16>(port));
  GError* error = nullptr;
  if (!g_socket_listener_add_address(G_SOCKET_LISTENER(service), address, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_TCP,
                                     nullptr, nullptr, &error)) {
    g_printerr("Cannot listen on port %d: %s\n", port, error->message);
    g_error_free(error);
    g_clear_object(&service);
  } else {
    g_signal_connect(service, "run", G_CALLBACK(OnControl), station);
    g_socket_service_start(service);
  }
  g_object_unref(address);
  g_object_unref(loopback);
  return service;
}

GstRTSPServer* NewServer(const char* address, int port, Station* station) {
  GstRTSPMediaFactory* factory = gst_rtsp_media_factory_new();
  gst_rtsp_media_factory_set_launch(factory, kLaunch);
  gst_rtsp_media_factory_set_shared(factory, TRUE);
  g_signal_connect(factory, "media-configure", G_CALLBACK(OnMediaConfigure), station);

  GstRTSPServer* server = gst_rtsp_server_new();
  gst_rtsp_server_set_address(server, address);
  gst_rtsp_server_set_service(server, std::to_string(port).c_str());
  GstRTSPMountPoints* mounts = gst_rtsp_server_get_mount_points(server);
  gst_rtsp_mount_points_add_factory(mounts, "/speech", factory);
  g_object_unref(mounts);
  if (gst_rtsp_server_attach(server, nullptr) == 0) {
    g_printerr("Cannot listen on port %d of %s.\n", port, address);
    g_clear_object(&server);
  }
  return server;
}

}  // namespace

int main(int argc, char** argv) {
  gint port = 8554;
  gint control_port = 8555;
  g_autofree gchar* address = g_strdup("127.0.0.1");
  g_autofree gchar* model_path = nullptr;
  g_autofree gchar* device = nullptr;
  const GOptionEntry entries[] = {
      {"port", 'p', 0, G_OPTION_ARG_INT, &port, "Port of the RTSP server, 8554 unless given", "PORT"},
      {"address", 'a', 0, G_OPTION_ARG_STRING, &address, "Address to listen on; 0.0.0.0 lets other machines in", "IP"},
      {"control-port", 'c', 0, G_OPTION_ARG_INT, &control_port, "Port for lines of text, 8555 unless given", "PORT"},
      {"model-path", 'm', 0, G_OPTION_ARG_FILENAME, &model_path, "Folder of a checkpoint; else the bundled voice",
       "DIR"},
      {"device", 'd', 0, G_OPTION_ARG_STRING, &device, "auto, cpu or cuda", "DEVICE"},
      {},
  };
  if (!ParseOptions(&argc, &argv, entries, "- speak to everybody who listens")) return 2;

  for (const gint number : {port, control_port}) {
    if (number < 1 || number > 65535) {
      g_printerr("%d: a port is a number from 1 to 65535.\n", number);
      return 2;
    }
  }
  // Never destroyed: the threads of control connections may still use it when main() returns.
  static Station& station = *new Station();
  if (model_path != nullptr) station.model_path = model_path;
  if (device != nullptr) station.device = device;
  if (!Inspect(&station)) return 1;
  GSocketService* control = NewControl(control_port, &station);
  if (control == nullptr) return 1;
  GstRTSPServer* server = NewServer(address, port, &station);
  if (server == nullptr) {
    g_object_unref(control);
    return 1;
  }
  g_print("Listen to rtsp://%s:%d/speech, send lines of text to port %d\n", address, port, control_port);

  MainLoop().Run();
  g_socket_service_stop(control);
  g_object_unref(control);
  g_object_unref(server);
  return 0;
}
