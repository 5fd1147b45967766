// SPDX-License-Identifier: LGPL-2.1-or-later
// The element beside what takes long: other elements, long prompts, blocked pads, hours.
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>

#include "cases.h"

namespace qtts::bench {

Speaker::Speaker(const std::string& line, const std::string& model)
    : pipeline_(gst_parse_launch(line.c_str(), nullptr)) {
  if (pipeline_ == nullptr) Fail("no pipeline; run in `meson devenv`");
  element_ = gst_bin_get_by_name(GST_BIN(pipeline_), "speech");
  if (element_ == nullptr) Fail("no qttssrc; run in `meson devenv`");
  g_object_set(element_, "model-path", model.c_str(), nullptr);
  GstPad* const pad = gst_element_get_static_pad(element_, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, OnBuffer, this, nullptr);
  gst_object_unref(pad);
}

Speaker::~Speaker() {
  gst_element_set_state(pipeline_, GST_STATE_NULL);
  gst_object_unref(element_);
  gst_object_unref(pipeline_);
}

GstPadProbeReturn Speaker::OnBuffer(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
  if (!GST_BUFFER_FLAG_IS_SET(GST_PAD_PROBE_INFO_BUFFER(info), GST_BUFFER_FLAG_GAP)) {
    ++static_cast<Speaker*>(user)->buffers_;
  }
  return GST_PAD_PROBE_OK;
}

void Speaker::Set(GstState state) {
  if (gst_element_set_state(pipeline_, state) == GST_STATE_CHANGE_FAILURE) {
    Fail("an element does not start; are there enough threads and descriptors?");
  }
}

void Speaker::Speak(const std::string& text, const char* params) {
  GstStructure* const structure = params != nullptr ? gst_structure_from_string(params, nullptr) : nullptr;
  guint64 id = 0;
  g_signal_emit_by_name(element_, "speak", text.c_str(), structure, &id);
  if (structure != nullptr) gst_structure_free(structure);
  if (id == 0) Fail("the text was refused");
}

guint64 Speaker::Stat(const char* name) const {
  GstStructure* stats = nullptr;
  guint64 value = 0;
  g_object_get(element_, "stats", &stats, nullptr);
  gst_structure_get_uint64(stats, name, &value);
  gst_structure_free(stats);
  return value;
}

}  // namespace qtts::bench

namespace {

using qtts::bench::Case;

constexpr std::string_view kUsage =
    "usage: bench-cases CASE [NUMBER] [--model DIR]\n"
    "  elements   cost of NUMBER (1000) elements while they wait, and the time until they have spoken; each kind of\n"
    "             element in a process of its own. Fails if an element does.\n"
    "  interrupt  NUMBER (200) flushes with everything blocked (downstream, the engine, upstream), and interrupts of "
    "a\n"
    "             live stream. Fails if more than one frame of speech left after an interrupt had returned.\n"
    "  live       a live element over NUMBER (600) seconds of the system clock, which speaks every ten: breaks, drift\n"
    "             and lateness. Fails if a sample was lost or stamped wrong.\n"
    "  prefill    NUMBER (40) rounds of interrupts, flushes and state changes while the prompt of a long text goes\n"
    "             through the model, and a live element beside it. Fails if the 99th percentile of one of them is\n"
    "             above 50 ms, or if the live element had an underrun.\n"
    "The model is the bundled voice unless --model names another.\n";

struct Entry {
  std::string_view name;
  int number;
  bool (*run)(const Case& options);
};

constexpr Entry kCases[] = {
    {"elements", 1000, qtts::bench::BenchElements},
    {"interrupt", 200, qtts::bench::BenchInterrupt},
    {"live", 600, qtts::bench::BenchLive},
    {"prefill", 40, qtts::bench::BenchPrefill},
};

}  // namespace

int main(int argc, char** argv) {
  Case options{.model = QTTS_BENCH_VOICE};
  const Entry* chosen = nullptr;
  qtts::bench::Arguments(kUsage)
      .Positional([&](std::string_view word) {
        if (chosen != nullptr) {
          options.number = qtts::bench::Number<int>("NUMBER", word, 1);
          return;
        }
        for (const Entry& entry : kCases) {
          if (entry.name == word) chosen = &entry;
        }
        if (chosen == nullptr) qtts::bench::Fail("there is no case \"" + std::string(word) + "\"; see --help");
      })
      .Add("--model", &options.model)
      .Parse(argc, argv);
  if (chosen == nullptr) qtts::bench::Fail("the case is missing; see --help");
  if (options.number == 0) options.number = chosen->number;
  return chosen->run(options) ? 0 : 1;
}
