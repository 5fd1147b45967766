// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_EXAMPLES_PROGRAM_H_
#define QTTS_EXAMPLES_PROGRAM_H_

#include <glib-unix.h>
#include <gst/gst.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>

// The parts that programs around a pipeline have in common: command line, main loop and bus. Copy it with a program.

// Parses GStreamer's options and these. False after a wrong one, which is told; the program then exits with 2.
inline bool ParseOptions(int* argc, char*** argv, const GOptionEntry* entries, const char* summary) {
  GOptionContext* context = g_option_context_new(summary);
  g_option_context_add_main_entries(context, entries, nullptr);
  g_option_context_add_group(context, gst_init_get_option_group());
  GError* error = nullptr;
  const bool parsed = g_option_context_parse(context, argc, argv, &error) != FALSE;
  g_option_context_free(context);
  if (!parsed) {
    g_printerr("%s\n", error->message);
    g_error_free(error);
  }
  return parsed;
}

// The text of an error or warning message; empty for others.
inline std::string ProblemText(GstMessage* message) {
  GError* error = nullptr;
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) gst_message_parse_error(message, &error, nullptr);
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) gst_message_parse_warning(message, &error, nullptr);
  const std::string text = error != nullptr ? error->message : "";
  g_clear_error(&error);
  return text;
}

// Makes a pipeline; null after an error, which is told.
inline GstElement* LaunchPipeline(const std::string& line) {
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch(line.c_str(), &error);
  if (error == nullptr) return pipeline;
  g_printerr("%s\n", error->message);
  g_error_free(error);
  gst_clear_object(&pipeline);
  return nullptr;
}

// Calls `on_message` on the main loop for each message of a pipeline, while it lives.
class BusWatch {
 public:
  BusWatch(GstElement* pipeline, std::function<void(GstMessage*)> on_message)
      : bus_(gst_element_get_bus(pipeline)), on_message_(std::move(on_message)) {
    gst_bus_add_watch(bus_, OnMessage, this);
  }
  ~BusWatch() {
    gst_bus_remove_watch(bus_);
    gst_object_unref(bus_);
  }
  BusWatch(const BusWatch&) = delete;
  BusWatch& operator=(const BusWatch&) = delete;

 private:
  static gboolean OnMessage(GstBus* /*bus*/, GstMessage* message, gpointer user_data) {
    const auto on_message = static_cast<BusWatch*>(user_data)->on_message_;  // which may end this watch
    on_message(message);
    return G_SOURCE_CONTINUE;
  }

  GstBus* bus_;
  std::function<void(GstMessage*)> on_message_;
};

// Runs until Quit(). SIGINT and SIGTERM call `on_signal` with the status that a shell expects of a program that ends by
// them, 130 or 143; without one, they quit.
class MainLoop {
 public:
  explicit MainLoop(std::function<void(int status)> on_signal = {}) : on_signal_(std::move(on_signal)) {
    g_unix_signal_add(SIGINT, OnInterrupt, this);
    g_unix_signal_add(SIGTERM, OnTerminate, this);
  }
  ~MainLoop() { g_main_loop_unref(loop_); }
  MainLoop(const MainLoop&) = delete;
  MainLoop& operator=(const MainLoop&) = delete;

  void Run() { g_main_loop_run(loop_); }
  void Quit() { g_main_loop_quit(loop_); }

 private:
  static gboolean OnInterrupt(gpointer user_data) { return static_cast<MainLoop*>(user_data)->Stop(128 + SIGINT); }
  static gboolean OnTerminate(gpointer user_data) { return static_cast<MainLoop*>(user_data)->Stop(128 + SIGTERM); }
  gboolean Stop(int status) {
    if (on_signal_) {
      on_signal_(status);
    } else {
      Quit();
    }
    return G_SOURCE_CONTINUE;
  }

  GMainLoop* loop_ = g_main_loop_new(nullptr, FALSE);
  std::function<void(int status)> on_signal_;
};

#endif  // QTTS_EXAMPLES_PROGRAM_H_
