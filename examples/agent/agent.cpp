// SPDX-License-Identifier: LGPL-2.1-or-later
// The voice of an agent. Standard input is what a language model writes, a line a turn; it is spoken while it
// comes. When somebody speaks meanwhile (a microphone, or a file in its place), the agent stops within a frame
// of 80 ms, drops the rest of the turn and tells which words were really said: a model should go on from these.
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <optional>
#include <random>
#include <string>

#include "../program.h"

namespace {

struct Options {
  std::string output;  // WAV file; empty: the loudspeaker
  std::string listen;  // a file in the place of the microphone
  bool microphone = false;
  bool vad = false;        // webrtcdsp tells what is a voice, not the level
  double threshold = -35;  // dB of full scale
  std::string properties;  // more of qttssrc
  // How a language model writes; all 0: standard input is passed on as it comes.
  double rate = 0;  // tokens a second
  int jitter = 0;   // up to so many ms more before each token
  int stall = 0;    // ms before every tenth token
};

bool HaveElement(const char* name) {
  GstElementFactory* factory = gst_element_factory_find(name);
  if (factory == nullptr) return false;
  gst_object_unref(factory);
  return true;
}

// Whether sound flows through a pipeline with autoaudiosink or autoaudiosrc. Where there is no device they warn, and
// take a fake one, or fail when they are used.
bool HaveDevice(const char* launch_line) {
  GstElement* pipeline = gst_parse_launch(launch_line, nullptr);
  if (pipeline == nullptr) return false;
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  GstBus* bus = gst_element_get_bus(pipeline);
  constexpr GstClockTime kPatience = 3 * GST_SECOND;  // a device that is slow is one
  GstMessage* message = gst_bus_timed_pop_filtered(
      bus, kPatience, static_cast<GstMessageType>(GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS));
  const bool have = message == nullptr || GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS;
  if (message != nullptr) gst_message_unref(message);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(bus);
  gst_object_unref(pipeline);
  return have;
}

// Where a file is written until it is whole: beside it. A pipe or a device is written itself.
std::string PartialName(const std::string& output) {
  if (g_file_test(output.c_str(), G_FILE_TEST_EXISTS) && !g_file_test(output.c_str(), G_FILE_TEST_IS_REGULAR)) {
    return output;
  }
  gchar* folder = g_path_get_dirname(output.c_str());
  const std::string name = std::string(folder) + "/.qttssrc-" + std::to_string(g_random_int());
  g_free(folder);
  return name;
}

std::string Quote(const std::string& value) {
  gchar* escaped = g_strescape(value.c_str(), nullptr);
  const std::string quoted = "\"" + std::string(escaped) + "\"";
  g_free(escaped);
  return quoted;
}

// One turn is one utterance: it grows with the tokens, however late they are, and ends with the line.
// Silence between turns keeps the loudspeaker running, and the time in a file right.
std::string LaunchLine(const Options& options, const std::string& file) {
  const bool cancel_echo = options.microphone && options.output.empty() && HaveElement("webrtcdsp");
  std::string line =
      "appsrc name=tokens format=time caps=text/x-raw,format=utf8 "
      "! qttssrc name=speech is-live=true idle-mode=silence segmentation=stream newline-ends=true "
      "trim-leading-silence=true "
      "utterance-timeout=18446744073709551615 max-text-length=1000000 " +
      options.properties + " ! audioconvert ! audioresample ! audio/x-raw,format=S16LE";
  line += cancel_echo ? ",rate=48000 ! webrtcechoprobe name=echo " : " ";
  line += options.output.empty() ? "! autoaudiosink " : "! wavenc ! filesink location=" + Quote(file) + " ";

  if (options.microphone) {
    line += "autoaudiosrc ";
  } else if (!options.listen.empty()) {
    line += "filesrc location=" + Quote(options.listen) + " ! decodebin ";
  } else {
    return line;
  }
  line +=
      "! audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate=48000,channels=1 "
      "! audiobuffersplit output-buffer-duration=1/50 ";
  // A file is heard in time, 20 ms after 20 ms: its own buffers, which are longer, would be heard before their time.
  if (!options.microphone) line += "! clocksync ";
  if (options.vad || cancel_echo) {
    line += std::string("! webrtcdsp gain-control=false voice-detection=") + (options.vad ? "true" : "false") +
            (cancel_echo ? " probe=echo " : " echo-cancel=false ");
  }
  return line + "! level interval=20000000 ! fakesink async=false sync=false";
}

class Agent {
 public:
  explicit Agent(Options options) : options_(std::move(options)) {}
  int Run();

 private:
  struct Turn {
    std::string text;
    gint64 first_token = 0;  // monotonic time, microseconds
  };

  static gboolean OnInput(gint fd, GIOCondition condition, gpointer user_data);
  static gboolean OnToken(gpointer user_data);
  static GstPadProbeReturn OnSpeechEvent(GstPad* pad, GstPadProbeInfo* info, gpointer user_data);

  int RunPipeline(const std::string& file);
  void Stop(int status);

  std::string NextToken();
  void ScheduleToken();
  void Feed(const std::string& text);
  void HandleMessage(GstMessage* message);
  void HandleElementMessage(const GstStructure* structure);
  void BargeIn(const char* how);
  void TurnFinished(const GstStructure* structure);
  bool Paced() const { return options_.rate > 0; }

  const Options options_;
  std::optional<MainLoop> loop_;
  GstElement* pipeline_ = nullptr;
  GstElement* speech_ = nullptr;
  GstElement* tokens_ = nullptr;

  std::string incoming_;  // read and not fed yet
  bool input_ended_ = false;
  bool dropping_ = false;  // the rest of this line
  bool in_turn_ = false;   // some of this line was fed
  int token_count_ = 0;
  std::minstd_rand random_;
  std::deque<Turn> turns_;  // fed and not finished, oldest first
  bool speaking_ = false;
  int status_ = 0;
  int stop_status_ = 0;  // to exit with after a signal
};

int Agent::Run() {
  if (options_.output.empty() &&
      !HaveDevice("audiotestsrc wave=silence num-buffers=1 ! audioconvert ! audioresample ! autoaudiosink")) {
    g_printerr("No loudspeaker was found; --output FILE writes a WAV file.\n");
    return 1;
  }
  if (options_.microphone && !HaveDevice("autoaudiosrc ! fakesink num-buffers=1")) {
    g_printerr("No microphone was found; --listen FILE takes a file for it.\n");
    return 1;
  }
  const std::string file = options_.output.empty() ? "" : PartialName(options_.output);
  int status = RunPipeline(file);
  if (file != options_.output) {
    if (status == 0 && g_rename(file.c_str(), options_.output.c_str()) != 0) {
      g_printerr("%s: cannot be written.\n", options_.output.c_str());
      status = 1;
    }
    if (status != 0) g_unlink(file.c_str());
  }
  if (status == 0 && !options_.output.empty()) std::printf("wrote %s\n", options_.output.c_str());
  return stop_status_ != 0 ? stop_status_ : status;
}

int Agent::RunPipeline(const std::string& file) {
  pipeline_ = LaunchPipeline(LaunchLine(options_, file));
  if (pipeline_ == nullptr) return 1;
  speech_ = gst_bin_get_by_name(GST_BIN(pipeline_), "speech");
  tokens_ = gst_bin_get_by_name(GST_BIN(pipeline_), "tokens");
  GstPad* pad = gst_element_get_static_pad(speech_, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, OnSpeechEvent, pipeline_, nullptr);
  gst_object_unref(pad);
  std::optional<BusWatch> watch;
  watch.emplace(pipeline_, [this](GstMessage* message) { HandleMessage(message); });
  loop_.emplace([this](int status) { Stop(status); });
  // Left alone, the pipeline would go by the clock of the microphone, which with some sound servers stands still until
  // somebody reads, and nothing would be heard in time.
  GstClock* clock = gst_system_clock_obtain();
  gst_pipeline_use_clock(GST_PIPELINE(pipeline_), clock);
  gst_object_unref(clock);

  // If it cannot be started, an error is on its way.
  if (gst_element_set_state(pipeline_, GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE) {
    g_unix_fd_add(STDIN_FILENO, static_cast<GIOCondition>(G_IO_IN | G_IO_HUP), OnInput, this);
    if (Paced()) ScheduleToken();
  }
  loop_->Run();

  gst_element_set_state(pipeline_, GST_STATE_NULL);
  watch.reset();
  gst_object_unref(tokens_);
  gst_object_unref(speech_);
  gst_object_unref(pipeline_);
  return status_;
}

// --- the language model

gboolean Agent::OnInput(gint fd, GIOCondition /*condition*/, gpointer user_data) {
  auto* self = static_cast<Agent*>(user_data);
  char data[4096];
  const ssize_t size = read(fd, data, sizeof(data));
  if (size > 0) {
    self->incoming_.append(data, static_cast<size_t>(size));
  } else {
    self->input_ended_ = true;
  }
  if (!self->Paced()) {
    while (!self->incoming_.empty()) self->Feed(self->NextToken());
    if (self->input_ended_) gst_app_src_end_of_stream(GST_APP_SRC(self->tokens_));
  }
  return self->input_ended_ ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

// A word with the space before it, or a piece of a long one; the end of a line is a token too.
std::string Agent::NextToken() {
  size_t size = 1;
  if (incoming_[0] != '\n') {
    while (size < incoming_.size() && size < 6 && incoming_[size] != ' ' && incoming_[size] != '\n') ++size;
  }
  const std::string token = incoming_.substr(0, size);
  incoming_.erase(0, size);
  return token;
}

void Agent::ScheduleToken() {
  double delay = 1000 / options_.rate;
  if (options_.jitter > 0) delay += std::uniform_int_distribution<int>(0, options_.jitter)(random_);
  if (token_count_ % 10 == 9) delay += options_.stall;
  g_timeout_add(static_cast<guint>(delay), OnToken, this);
}

gboolean Agent::OnToken(gpointer user_data) {
  auto* self = static_cast<Agent*>(user_data);
  if (!self->incoming_.empty()) {
    self->Feed(self->NextToken());
    ++self->token_count_;
  } else if (self->input_ended_) {
    gst_app_src_end_of_stream(GST_APP_SRC(self->tokens_));
    return G_SOURCE_REMOVE;
  }
  self->ScheduleToken();
  return G_SOURCE_REMOVE;
}

void Agent::Feed(const std::string& text) {
  const bool ends_turn = text == "\n";
  if (!dropping_ && (in_turn_ || text.find_first_not_of(" \t\r\n") != std::string::npos)) {
    if (!in_turn_) turns_.push_back({"", g_get_monotonic_time()});
    in_turn_ = true;
    turns_.back().text += text;
    gst_app_src_push_buffer(GST_APP_SRC(tokens_), gst_buffer_new_memdup(text.data(), text.size()));
  }
  if (ends_turn) dropping_ = in_turn_ = false;
}

// --- events

GstPadProbeReturn Agent::OnSpeechEvent(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user_data) {
  if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_EOS) {
    auto* pipeline = static_cast<GstElement*>(user_data);
    gst_element_post_message(pipeline,
                             gst_message_new_application(GST_OBJECT(pipeline), gst_structure_new_empty("all-said")));
  }
  return GST_PAD_PROBE_OK;
}

// The file is finished first; who asks twice does not want to wait for that.
void Agent::Stop(int status) {
  if (stop_status_ != 0) {
    status_ = 1;
    loop_->Quit();
  }
  stop_status_ = status;
  gst_element_send_event(pipeline_, gst_event_new_eos());
}

void Agent::HandleMessage(GstMessage* message) {
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
      g_printerr("%s\n", ProblemText(message).c_str());
      status_ = 1;
      loop_->Quit();
      break;
    case GST_MESSAGE_WARNING:
      g_printerr("%s\n", ProblemText(message).c_str());
      break;
    case GST_MESSAGE_APPLICATION:  // all was said: stop listening, so that files are closed properly
      gst_element_send_event(pipeline_, gst_event_new_eos());
      break;
    case GST_MESSAGE_EOS:
      loop_->Quit();
      break;
    case GST_MESSAGE_LATENCY:
      gst_bin_recalculate_latency(GST_BIN(pipeline_));
      break;
    case GST_MESSAGE_ELEMENT:
      HandleElementMessage(gst_message_get_structure(message));
      break;
    default:
      break;
  }
}

void Agent::HandleElementMessage(const GstStructure* structure) {
  if (gst_structure_has_name(structure, "qtts-utterance-started")) {
    speaking_ = true;
    std::printf("speaking, %.0f ms after the first token\n",
                static_cast<double>(g_get_monotonic_time() - turns_.front().first_token) / 1000);
  } else if (gst_structure_has_name(structure, "qtts-utterance-finished")) {
    TurnFinished(structure);
  } else if (options_.vad && gst_structure_has_name(structure, "voice-activity")) {
    gboolean has_voice = FALSE;
    gst_structure_get_boolean(structure, "stream-has-voice", &has_voice);
    if (has_voice) BargeIn("a voice");
  } else if (!options_.vad && gst_structure_has_name(structure, "level")) {
    const auto* rms = static_cast<const GValueArray*>(g_value_get_boxed(gst_structure_get_value(structure, "rms")));
    if (g_value_get_double(&rms->values[0]) > options_.threshold) BargeIn("something loud");
  }
}

void Agent::BargeIn(const char* how) {
  if (!speaking_) return;
  speaking_ = false;
  dropping_ = in_turn_;
  in_turn_ = false;
  const gint64 begin = g_get_monotonic_time();
  guint64 frames = 0;
  g_signal_emit_by_name(speech_, "interrupt", &frames);
  std::printf("interrupted by %s, within %.1f ms, after %.2f s of speech\n", how,
              static_cast<double>(g_get_monotonic_time() - begin) / 1000, static_cast<double>(frames) * 0.08);
}

// The oldest turn is over. Positions count characters from its first that is no white space.
void Agent::TurnFinished(const GstStructure* structure) {
  if (turns_.empty()) return;
  speaking_ = false;
  guint64 spoken = 0;
  gst_structure_get_uint64(structure, "text-spoken-chars", &spoken);
  gchar* text = g_strstrip(g_utf8_make_valid(turns_.front().text.c_str(), -1));
  const glong length = g_utf8_strlen(text, -1);
  gchar* rest = g_utf8_offset_to_pointer(text, std::min(static_cast<glong>(spoken), length));
  // The mark behind a word that was said belongs to it. A word that was cut short was not said.
  if (rest > text && rest[-1] != ' ') {
    while (g_unichar_ispunct(g_utf8_get_char(rest)) != FALSE) rest = g_utf8_next_char(rest);
  }
  while (rest > text && *rest != '\0' && *rest != ' ') --rest;
  if (rest > text) std::printf("said: %.*s\n", static_cast<int>(rest - text), text);
  if (*rest != '\0') std::printf("not said: %s\n", g_strchug(rest));
  g_free(text);
  turns_.pop_front();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a line is told when it happens, to a pipe too
  g_autofree gchar* output = nullptr;
  g_autofree gchar* listen = nullptr;
  g_autofree gchar* properties = nullptr;
  gboolean microphone = FALSE;
  gboolean vad = FALSE;
  Options options;
  const GOptionEntry entries[] = {
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output, "WAV file to speak into; else the loudspeaker", "FILE"},
      {"microphone", 'm', 0, G_OPTION_ARG_NONE, &microphone, "Stop when somebody speaks into the microphone", nullptr},
      {"listen", 'l', 0, G_OPTION_ARG_FILENAME, &listen, "Stop when somebody speaks in this file", "FILE"},
      {"threshold", 't', 0, G_OPTION_ARG_DOUBLE, &options.threshold, "What is louder is somebody, -35 unless given",
       "DB"},
      {"vad", 'v', 0, G_OPTION_ARG_NONE, &vad, "Only a voice is somebody (needs webrtcdsp)", nullptr},
      {"rate", 'r', 0, G_OPTION_ARG_DOUBLE, &options.rate, "Feed standard input so many tokens a second", "TOKENS"},
      {"jitter", 'j', 0, G_OPTION_ARG_INT, &options.jitter, "With --rate: each up to so much later", "MS"},
      {"stall", 's', 0, G_OPTION_ARG_INT, &options.stall, "With --rate: every tenth so much later", "MS"},
      {"properties", 'p', 0, G_OPTION_ARG_STRING, &properties, "More for qttssrc, like 'speaker=ryan seed=1'", "LIST"},
      {},
  };
  if (!ParseOptions(&argc, &argv, entries, "- speak what a language model writes to standard output")) return 2;
  if (output != nullptr) options.output = output;
  if (listen != nullptr) options.listen = listen;
  if (properties != nullptr) options.properties = properties;
  options.microphone = microphone != FALSE;
  options.vad = vad != FALSE;
  if (listen != nullptr && !g_file_test(listen, G_FILE_TEST_IS_REGULAR)) {
    g_printerr("%s: no such file to listen to.\n", listen);
    return 2;
  }
  if (options.microphone && listen != nullptr) {
    g_printerr("Either --microphone or --listen.\n");
    return 2;
  }
  if ((options.jitter != 0 || options.stall != 0) && options.rate <= 0) {
    g_printerr("--jitter and --stall need --rate.\n");
    return 2;
  }
  if (options.rate < 0 || options.jitter < 0 || options.stall < 0) {
    g_printerr("--rate, --jitter and --stall are not negative.\n");
    return 2;
  }
  return Agent(std::move(options)).Run();
}
