// SPDX-License-Identifier: LGPL-2.1-or-later
// Delays while the prompt of a long text goes through the model: of interrupts, flushes and state changes of its own
// element, of the first speech after them, and of a live element beside it on the same engine.
//
//   bench-prefill [ROUNDS]      (default 40; the bundled voice on the CPU)
//
// Exits with 1 if the 99th percentile of an interrupt, a flush or a state change is above 50 ms, or if the live element
// had an underrun.
#include <gst/gst.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostMilliseconds = 50;
constexpr char kShort[] = "This is short.";

[[noreturn]] void Fail(const char* message) {
  std::fprintf(stderr, "bench-prefill: %s\n", message);
  std::exit(1);
}

double Milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Figures {
  std::map<std::string, std::vector<double>> values;
  bool met = true;

  void Add(const std::string& what, double value) { values[what].push_back(value); }
  void Print(const std::string& title) {
    std::printf("%s\n", title.c_str());
    for (auto& [what, all] : values) {
      std::sort(all.begin(), all.end());
      const double p99 = all[(all.size() * 99 + 99) / 100 - 1];
      std::printf("  %-34s p50 %8.3f ms, p99 %8.3f ms, worst %8.3f ms (%zu)\n", what.c_str(), all[all.size() / 2], p99,
                  all.back(), all.size());
      if (what.find("first speech") == std::string::npos && p99 > kMostMilliseconds) met = false;
    }
  }
};

std::string Repeat(const std::string& unit, size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  text.resize(size);
  return text;
}

class Element {
 public:
  explicit Element(const std::string& line) : pipeline_(gst_parse_launch(line.c_str(), nullptr)) {
    if (pipeline_ == nullptr) Fail("no pipeline; is the plugin in GST_PLUGIN_PATH?");
    speech_ = gst_bin_get_by_name(GST_BIN(pipeline_), "speech");
    GstPad* pad = gst_element_get_static_pad(speech_, "src");
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, Count, this, nullptr);
    gst_object_unref(pad);
  }
  ~Element() {
    gst_element_set_state(pipeline_, GST_STATE_NULL);
    gst_object_unref(speech_);
    gst_object_unref(pipeline_);
  }
  Element(const Element&) = delete;
  Element& operator=(const Element&) = delete;

  GstElement* speech() const { return speech_; }
  int buffers() const { return buffers_; }
  void Set(GstState state) { gst_element_set_state(pipeline_, state); }
  double TimeSet(GstState state) {
    const auto start = Clock::now();
    Set(state);
    return Milliseconds(start);
  }
  void Speak(const std::string& text) {
    guint64 number = 0;
    g_signal_emit_by_name(speech_, "speak", text.c_str(), nullptr, &number);
    if (number == 0) Fail("a text was refused");
  }
  double TimeInterrupt() {
    const auto start = Clock::now();
    guint64 frames = 0;
    g_signal_emit_by_name(speech_, "interrupt", &frames);
    return Milliseconds(start);
  }
  double TimeFlush() {
    const auto start = Clock::now();
    gst_element_send_event(speech_, gst_event_new_flush_start());
    gst_element_send_event(speech_, gst_event_new_flush_stop(TRUE));
    return Milliseconds(start);
  }
  double TimeFirstSpeech() {
    const int before = buffers_;
    const auto start = Clock::now();
    Speak(kShort);
    while (buffers_ == before) {
      if (Milliseconds(start) > 120000) Fail("nothing was spoken for two minutes");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Milliseconds(start);
  }
  guint64 Stat(const char* name) const {
    GstStructure* stats = nullptr;
    guint64 value = 0;
    g_object_get(speech_, "stats", &stats, nullptr);
    gst_structure_get_uint64(stats, name, &value);
    gst_structure_free(stats);
    return value;
  }

 private:
  // Counts speech only.
  static GstPadProbeReturn Count(GstPad*, GstPadProbeInfo* info, gpointer user) {
    if (!GST_BUFFER_FLAG_IS_SET(GST_PAD_PROBE_INFO_BUFFER(info), GST_BUFFER_FLAG_GAP)) {
      ++static_cast<Element*>(user)->buffers_;
    }
    return GST_PAD_PROBE_OK;
  }

  GstElement* pipeline_;
  GstElement* speech_ = nullptr;
  std::atomic<int> buffers_ = 0;
};

// Everything that stops speech, at random times of the prompt.
bool BenchStops(const std::string& name, const std::string& text, int rounds) {
  std::mt19937 random(std::random_device{}());
  Figures figures;
  for (int round = 0; round < rounds; ++round) {
    Element element("qttssrc name=speech device=cpu speak-anything=true idle-mode=wait ! fakesink async=false");
    element.Set(GST_STATE_PLAYING);
    element.TimeFirstSpeech();  // the model is loaded
    const auto begin = [&] {
      element.Speak(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    };
    begin();
    figures.Add("interrupt", element.TimeInterrupt());
    figures.Add("first speech after an interrupt", element.TimeFirstSpeech());
    begin();
    figures.Add("flush", element.TimeFlush());
    figures.Add("first speech after a flush", element.TimeFirstSpeech());
    begin();
    figures.Add("PLAYING to PAUSED", element.TimeSet(GST_STATE_PAUSED));
    figures.Add("PAUSED to READY", element.TimeSet(GST_STATE_READY));
    element.Set(GST_STATE_PLAYING);
    begin();
    element.Set(GST_STATE_READY);
    figures.Add("READY to NULL, frees the engine", element.TimeSet(GST_STATE_NULL));
  }
  figures.Print("stopped while this is being taken: " + name);
  return figures.met;
}

// A live element speaks all the time while another one gets long texts.
bool BenchLiveBeside(const std::string& name, const std::string& text, int rounds) {
  Element live("qttssrc name=speech device=cpu is-live=true ! fakesink");
  live.Set(GST_STATE_PLAYING);
  live.TimeFirstSpeech();
  Element other("qttssrc name=speech device=cpu speak-anything=true idle-mode=wait ! fakesink async=false");
  other.Set(GST_STATE_PLAYING);
  Figures figures;
  const guint64 before = live.Stat("underruns");
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 4; ++i) live.Speak("Everything that is said here has to come in time, whatever others say.");
    const int frames = other.buffers();
    const auto start = Clock::now();
    other.Speak(text);
    while (other.buffers() == frames && Milliseconds(start) < 10000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    figures.Add("first speech of the long text", Milliseconds(start));
    while (live.Stat("queued-utterances") > 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    other.TimeInterrupt();
  }
  const guint64 underruns = live.Stat("underruns") - before;
  figures.Print("live beside this: " + name);
  std::printf("  underruns of the live element: %u, in %d frames\n", static_cast<unsigned>(underruns), live.buffers());
  return underruns == 0;
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  g_setenv("QTTS_VOICE_PATH", QTTS_BENCH_VOICE, FALSE);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  if (rounds < 1) Fail("how many rounds?");
  const std::string english = "The quick brown fox jumps over the lazy dog, and nobody knows why it would. ";
  bool met = true;
  for (const auto& [name, text] :
       {std::pair("4,000 characters of English", Repeat(english, 4000)),
        std::pair("4,000 of \". \"", Repeat(". ", 8000)), std::pair("10,000 of \". \"", Repeat(". ", 20000))}) {
    met = BenchStops(name, text, rounds) && met;
    met = BenchLiveBeside(name, text, std::max(1, rounds / 8)) && met;
  }
  std::puts(met ? "met" : "NOT met");
  return met ? 0 : 1;
}
