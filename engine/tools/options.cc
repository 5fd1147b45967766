// SPDX-License-Identifier: LGPL-2.1-or-later
#include "options.h"

#include <glib.h>

#include <memory>
#include <utility>

#include "qtts/voice.h"

namespace qtts {
namespace {

constexpr char kSummary[] =
    "Commands:\n"
    "  inspect DIR          what a model folder holds: type, sizes, speakers, languages, memory\n"
    "  tokenize DIR         token ids of each line of standard input, one line each\n"
    "  prompt DIR           the rows the talker is given for --text\n"
    "  codes DIR            the codes of --text, one line of code groups per 80 ms frame\n"
    "  voice make DIR       a voice for Base checkpoints from the WAV --audio, to the file --output\n"
    "  voice show FILE      what a voice file holds\n"
    "  decode DIR [FILE]    codes, as `codes` prints them, from FILE or standard input to the WAV --output";

constexpr char kDescription[] =
    "Sampling options default to what the model's generation_config.json says.\n"
    "Exit status: 0 done, 1 it failed (one line on standard error, or an \"error\" object with --json), 2 wrong "
    "usage.\n"
    "\n"
    "Examples:\n"
    "  qtts-tool inspect /models/Qwen3-TTS-12Hz-0.6B-CustomVoice\n"
    "  qtts-tool codes DIR --text \"Hello.\" --seed 7 | qtts-tool decode DIR --output hello.wav\n"
    "  qtts-tool voice make DIR --audio me.wav --reference-text \"What me.wav says.\" --output me.safetensors\n"
    "  qtts-tool codes DIR --text \"Hello.\" --voice me.safetensors";

// GLib allocates what it stores; this hands it over.
void Take(gchar* from, std::string* to) {
  if (from) *to = from;
  g_free(from);
}

}  // namespace

Result<ToolOptions> ParseOptions(int argc, char** argv, std::string* help) {
  ToolOptions o;
  gboolean json = FALSE;
  gboolean greedy = FALSE;
  gchar *pattern = nullptr, *text = nullptr, *speaker = nullptr, *language = nullptr, *instruct = nullptr,
        *layout = nullptr, *voice = nullptr, *audio = nullptr, *reference_text = nullptr, *output = nullptr,
        *format = nullptr;
  gboolean pad_reference = FALSE;
  const GOptionEntry entries[] = {
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON", nullptr},
      {"pattern", 0, 0, G_OPTION_ARG_STRING, &pattern, "Pre-tokenization: native (default) or patched", "NAME"},
      {"text", 0, 0, G_OPTION_ARG_STRING, &text, "What to speak", "TEXT"},
      {"speaker", 0, 0, G_OPTION_ARG_STRING, &speaker, "Preset speaker; default: the model's first", "NAME"},
      {"language", 0, 0, G_OPTION_ARG_STRING, &language, "Language by name or tag, or auto (default)", "NAME"},
      {"instruct", 0, 0, G_OPTION_ARG_STRING, &instruct, "How to speak, or the voice's description", "TEXT"},
      {"layout", 0, 0, G_OPTION_ARG_STRING, &layout, "Prompt layout: auto (default), streaming or non-streaming",
       "NAME"},
      {"greedy", 0, 0, G_OPTION_ARG_NONE, &greedy, "Take the likeliest code always, in all code groups", nullptr},
      {"seed", 0, 0, G_OPTION_ARG_INT64, &o.seed, "Random seed (default 0)", "N"},
      {"temperature", 0, 0, G_OPTION_ARG_DOUBLE, &o.temperature, "Of code group 0", "X"},
      {"top-k", 0, 0, G_OPTION_ARG_INT, &o.top_k, "Of code group 0; 0 = all", "N"},
      {"top-p", 0, 0, G_OPTION_ARG_DOUBLE, &o.top_p, "Of code group 0", "X"},
      {"repetition-penalty", 0, 0, G_OPTION_ARG_DOUBLE, &o.repetition_penalty, "Of code group 0; 1 = off", "X"},
      {"max-frames", 0, 0, G_OPTION_ARG_INT64, &o.max_frames, "Stop after N frames of 80 ms", "N"},
      {"threads", 0, 0, G_OPTION_ARG_INT, &o.threads, "CPU threads; 0 = one per core", "N"},
      {"voice", 0, 0, G_OPTION_ARG_FILENAME, &voice, "Voice to speak with, for Base checkpoints", "FILE"},
      {"audio", 0, 0, G_OPTION_ARG_FILENAME, &audio, "WAV file with the voice to clone", "FILE"},
      {"reference-text", 0, 0, G_OPTION_ARG_STRING, &reference_text,
       "What --audio says; without it only the timbre is cloned", "TEXT"},
      {"pad-reference", 0, 0, G_OPTION_ARG_NONE, &pad_reference,
       "Half a second of silence behind --audio, against its last sounds being repeated", nullptr},
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output, "WAV or voice file to write", "FILE"},
      {"format", 0, 0, G_OPTION_ARG_STRING, &format, "Samples of the WAV file: s16 (default) or f32", "NAME"},
      {nullptr, 0, 0, G_OPTION_ARG_NONE, nullptr, nullptr, nullptr}};
  const std::unique_ptr<GOptionContext, decltype(&g_option_context_free)> context(
      g_option_context_new("COMMAND DIR - look into Qwen3-TTS checkpoints and run their parts"), g_option_context_free);
  g_option_context_add_main_entries(context.get(), entries, nullptr);
  g_option_context_set_summary(context.get(), kSummary);
  g_option_context_set_description(context.get(), kDescription);
  g_option_context_set_help_enabled(context.get(), FALSE);
  g_set_prgname("qtts-tool");  // Else the manual, written before anything is parsed, has no name in it.
  gchar* manual = g_option_context_get_help(context.get(), TRUE, nullptr);
  Take(manual, help);

  GError* error = nullptr;
  const bool parsed = g_option_context_parse(context.get(), &argc, &argv, &error);
  o.json = json;
  o.greedy = greedy;
  o.pad_reference = pad_reference;
  Take(pattern, &o.pattern);
  Take(text, &o.text);
  Take(speaker, &o.speaker);
  Take(language, &o.language);
  Take(instruct, &o.instruct);
  Take(layout, &o.layout);
  Take(voice, &o.voice);
  Take(audio, &o.audio);
  Take(reference_text, &o.reference_text);
  Take(output, &o.output);
  Take(format, &o.format);
  if (!parsed) {
    Status status = Status::InvalidArgument(error->message);
    g_error_free(error);
    return status;
  }
  if (argc > 1) o.command = argv[1];
  for (int i = 2; i < argc; ++i) o.arguments.emplace_back(argv[i]);
  return o;
}

Result<Request> MakeRequest(const ToolOptions& options, const GenerationSettings& defaults) {
  Request request;
  request.text = options.text;
  request.speaker = options.speaker;
  request.language = options.language;
  request.instruct = options.instruct;
  if (options.layout == "streaming") {
    request.layout = PromptLayout::kStreaming;
  } else if (options.layout == "non-streaming") {
    request.layout = PromptLayout::kNonStreaming;
  } else if (!options.layout.empty() && options.layout != "auto") {
    return Status::InvalidArgument("--layout " + options.layout + ": must be auto, streaming or non-streaming");
  }
  request.seed = static_cast<uint64_t>(options.seed);
  if (!options.voice.empty()) {
    QTTS_ASSIGN_OR_RETURN(ClonedVoice voice, LoadVoice(options.voice));
    request.voice = std::make_shared<const ClonedVoice>(std::move(voice));
  }
  request.settings = defaults;
  if (options.greedy) request.settings.talker.do_sample = request.settings.predictor.do_sample = false;
  if (options.temperature >= 0) request.settings.talker.temperature = static_cast<float>(options.temperature);
  if (options.top_k >= 0) request.settings.talker.top_k = options.top_k;
  if (options.top_p >= 0) request.settings.talker.top_p = static_cast<float>(options.top_p);
  if (options.repetition_penalty >= 0)
    request.settings.repetition_penalty = static_cast<float>(options.repetition_penalty);
  // An utterance of N ids has N - 1 frames (spec 6).
  if (options.max_frames >= 0) request.settings.max_new_tokens = options.max_frames + 1;
  return request;
}

}  // namespace qtts
