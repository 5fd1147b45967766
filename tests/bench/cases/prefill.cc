// SPDX-License-Identifier: LGPL-2.1-or-later
// Delays while the prompt of a long text goes through the model: of interrupts, flushes and state changes of its own
// element, of the first speech after them, and of a live element beside it on the same engine.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cases.h"

namespace qtts::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostMilliseconds = 50;
constexpr char kShort[] = "This is short.";
constexpr char kWaiting[] = "qttssrc name=speech device=cpu speak-anything=true idle-mode=wait ! fakesink async=false";

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

// An element and the time of what stops its speech, in milliseconds.
class Stopper : public Speaker {
 public:
  using Speaker::Speaker;

  double TimeSet(GstState state) {
    return Time([&] { Set(state); });
  }
  double TimeInterrupt() {
    guint64 frames = 0;
    return Time([&] { g_signal_emit_by_name(element(), "interrupt", &frames); });
  }
  double TimeFlush() {
    return Time([&] {
      gst_element_send_event(element(), gst_event_new_flush_start());
      gst_element_send_event(element(), gst_event_new_flush_stop(TRUE));
    });
  }
  double TimeFirstSpeech() {
    const int before = buffers();
    return Time([&] {
      Speak(kShort);
      Await([&] { return buffers() != before; });
    });
  }

 private:
  template <typename Call>
  static double Time(const Call& call) {
    const auto start = Clock::now();
    call();
    return MillisecondsSince(start);
  }
};

// Everything that stops speech, at random times of the prompt.
bool BenchStops(const std::string& name, const std::string& text, int rounds, const Case& options) {
  std::mt19937 random(std::random_device{}());
  Figures figures;
  for (int round = 0; round < rounds; ++round) {
    Stopper element(kWaiting, options.model);
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
bool BenchLiveBeside(const std::string& name, const std::string& text, int rounds, const Case& options) {
  Stopper live("qttssrc name=speech device=cpu is-live=true ! fakesink", options.model);
  live.Set(GST_STATE_PLAYING);
  live.TimeFirstSpeech();
  Stopper other(kWaiting, options.model);
  other.Set(GST_STATE_PLAYING);
  Figures figures;
  const guint64 before = live.Stat("underruns");
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 4; ++i) live.Speak("Everything that is said here has to come in time, whatever others say.");
    const int frames = other.buffers();
    const auto start = Clock::now();
    other.Speak(text);
    while (other.buffers() == frames && MillisecondsSince(start) < 10000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    figures.Add("first speech of the long text", MillisecondsSince(start));
    while (live.Stat("queued-utterances") > 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    other.TimeInterrupt();
  }
  const guint64 underruns = live.Stat("underruns") - before;
  figures.Print("live beside this: " + name);
  std::printf("  underruns of the live element: %u, in %d frames\n", static_cast<unsigned>(underruns), live.buffers());
  return underruns == 0;
}

}  // namespace

bool BenchPrefill(const Case& options) {
  gst_init(nullptr, nullptr);
  const int rounds = options.number;
  const std::string english = "The quick brown fox jumps over the lazy dog, and nobody knows why it would. ";
  bool met = true;
  for (const auto& [name, text] :
       {std::pair("4,000 characters of English", Repeat(english, 4000)),
        std::pair("4,000 of \". \"", Repeat(". ", 8000)), std::pair("10,000 of \". \"", Repeat(". ", 20000))}) {
    met = BenchStops(name, text, rounds, options) && met;
    met = BenchLiveBeside(name, text, std::max(1, rounds / 8), options) && met;
  }
  std::puts(met ? "met" : "NOT met");
  return met;
}

}  // namespace qtts::bench
