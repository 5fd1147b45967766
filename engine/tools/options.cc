// SPDX-License-Identifier: LGPL-2.1-or-later
#include "options.h"

#include <glib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "qtts/utf8.h"
#include "qtts/voice.h"

namespace qtts {
namespace {

constexpr char kDescription[] =
    "Sampling options default to the model's generation_config.json.\n"
    "Exit status: 0 done, 1 it failed (one line on standard error, or an \"error\" object with --json), 2 wrong "
    "usage.";

constexpr char kExamples[] =
    "\n\nqtts-tool COMMAND --help is the manual of one command.\n"
    "\n"
    "Examples:\n"
    "  qtts-tool speak \"Hello.\" --output hello.wav\n"
    "  qtts-tool speak DIR - --speaker ryan --output - < story.txt | aplay\n"
    "  qtts-tool text \"It's $5 (now).\"\n"
    "  qtts-tool inspect /models/Qwen3-TTS-12Hz-0.6B-CustomVoice\n"
    "  qtts-tool codes DIR --text \"Hello.\" --seed 7 | qtts-tool decode DIR --output hello.wav\n"
    "  qtts-tool voice make DIR --audio me.wav --reference-text \"What me.wav says.\" --output me.safetensors\n"
    "  qtts-tool codes DIR --text \"Hello.\" --voice me.safetensors";

enum CommandBit : unsigned {
  kInspect = 1U << 0U,
  kTokenize = 1U << 1U,
  kPrompt = 1U << 2U,
  kCodes = 1U << 3U,
  kDecode = 1U << 4U,
  kMakeVoice = 1U << 5U,
  kShowVoice = 1U << 6U,
  kSpeak = 1U << 7U,
  kText = 1U << 8U,
  kCheck = 1U << 9U,
  kAlign = 1U << 10U,
  kLoudness = 1U << 11U,
  kDesignVoice = 1U << 12U,
  kMixVoice = 1U << 13U,
  kAll = (1U << 14U) - 1,
};

struct Command {
  std::string_view name;
  const char* operands;
  size_t min_operands, max_operands;
  unsigned bit;
  const char* does;
  const char* missing = "name a model folder";  // the error for fewer operands
};

constexpr Command kCommands[] = {
    {"speak", "[DIR] TEXT", 0, 2, kSpeak,
     "the speech of TEXT, or of standard input for -, to --output; without DIR with the bundled voice"},
    {"text", "[DIR] TEXT", 1, 2, kText,
     "the utterances of TEXT, or of standard input for -, what each step of the preparation for the model makes of "
     "them, and which characters each word stands for",
     "name a text, as in 'text [DIR] \"It is $5.\"'; the text - is standard input"},
    {"inspect", "DIR", 1, 1, kInspect, "the content of a model folder: type, sizes, speakers, languages, memory"},
    {"check", "DIR", 1, 1, kCheck,
     "a report to compare: the model, token ids, prompt, greedy codes and samples of a fixed request on the CPU in "
     "F32, and on a named --device"},
    {"tokenize", "DIR", 1, 1, kTokenize, "token ids of each line of standard input, one line each"},
    {"prompt", "DIR", 1, 1, kPrompt, "the rows of the talker's prompt for --text"},
    {"codes", "DIR", 1, 1, kCodes, "the codes of --text, one line of code groups per 80 ms frame"},
    {"align", "DIR", 1, 1, kAlign,
     "the attention head that follows the text, which word times need, with its offset, and a table of all heads; "
     "--write keeps it in DIR/qttssrc.json. With --text and --codes, the word times and the coverage of an utterance "
     "that was spoken before"},
    {"loudness", "DIR", 1, 1, kLoudness,
     "the loudness of each preset speaker, in LUFS, of a sample that it speaks; --write keeps it in DIR/qttssrc.json, "
     "for the element's target-loudness"},
    {"voice make", "DIR", 1, 1, kMakeVoice,
     "a voice for Base checkpoints from the WAV --audio, to the file --output, with the loudness of a sample that it "
     "speaks"},
    {"voice design", "DIR DESCRIPTION", 2, 2, kDesignVoice,
     "a designed voice that stays the same, for VoiceDesign checkpoints: a take of it, to the file --output",
     "name a model folder and describe the voice, as in 'voice design DIR \"a calm old man\" --output calm.voice'"},
    {"voice mix", "FILE:WEIGHT…", 2, 64, kMixVoice,
     "a voice between others, for Base checkpoints: the mean of their x-vectors by weight, to the file --output",
     "name two voices or more, as in 'voice mix a.voice:2 b.voice:1 --output c.voice'"},
    {"voice show", "FILE", 1, 1, kShowVoice, "the content of a voice file", "name a voice file"},
    {"decode", "DIR [FILE]", 1, 2, kDecode,
     "codes, as `codes` prints them, from FILE or standard input to the WAV --output"},
};

const Command* FindCommand(std::string_view name) {
  const auto* const found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : found;
}

// Destination of an option's value. Its type is the option's type: switch, bytes (name or path), text, or number.
struct Text {
  std::string ToolOptions::*to;
};
using Target =
    std::variant<bool ToolOptions::*, std::string ToolOptions::*, Text, std::optional<int64_t> ToolOptions::*,
                 std::optional<double> ToolOptions::*, const SamplingNumber*>;

struct Option {
  const char* name;
  char letter;
  unsigned commands;  // commands that take this option
  Target target;
  const char* does;
  const char* value;
};

constexpr unsigned kGenerating = kCodes | kSpeak;
constexpr unsigned kMeasuring = kMakeVoice | kLoudness;
constexpr unsigned kPreparing = kText | kSpeak;
constexpr unsigned kSpeaking = kPrompt | kGenerating | kAlign;
constexpr unsigned kRunning = kGenerating | kDesignVoice;  // the whole model
constexpr unsigned kWritingVoice = kMakeVoice | kDesignVoice | kMixVoice;

// Returns the options of the text and of how it is spoken, in the manual's order.
std::vector<Option> SpeechOptions() {
  using O = ToolOptions;
  return {
      {"json", 0, kAll, &O::json, "Print JSON", nullptr},
      {"pattern", 0, kTokenize | kSpeaking | kCheck, &O::pattern, "Pre-tokenization: native (default) or patched",
       "NAME"},
      {"text", 0, kSpeaking | kDesignVoice, Text{&O::text},
       "Text to speak; of `voice design` what the take says, about six seconds", "TEXT"},
      {"speaker", 0, kSpeaking, Text{&O::speaker}, "Preset speaker; default: the model's own", "NAME"},
      {"normalize", 0, kPreparing, &O::normalize,
       "Numbers and the like in words: model (default: as the model's description says), none or spoken", "NAME"},
      {"lexicon", 0, kPreparing, &O::lexicon,
       "Spoken forms of words: W3C PLS with aliases, or lines of two columns separated by a tab", "FILE[:FILE]"},
      {"emoji", 0, kPreparing, &O::emoji, "silent (default) or names, in English", "NAME"},
      {"markup", 0, kPreparing, &O::markup,
       "What the text is: auto (default: SSML if it begins with <speak>), none, ssml, markdown or subtitle", "NAME"},
      {"markup-rules", 0, kPreparing, &O::markup_rules,
       "Of Markdown: code, table, image, link and html, each skip (default), name or read, as in code=name,table=read",
       "RULES"},
      {"language", 0, kSpeaking | kText | kDesignVoice, Text{&O::language},
       "Language by name or tag, or auto (default)", "NAME"},
      {"instruct", 0, kSpeaking, Text{&O::instruct}, "How to speak, or the voice's description", "TEXT"},
      {"layout", 0, kSpeaking | kDesignVoice, &O::layout, "Prompt layout: auto (default), streaming or non-streaming",
       "NAME"},
      {"voice", 0, kSpeaking, &O::voice, "Voice to speak with, for Base checkpoints; a designed one for VoiceDesign",
       "FILE"},
      {"style", 0, kSpeaking | kWritingVoice, Text{&O::style},
       "Manner of a take, such as calm: of `voice` the one to speak with, else the one that the made take gets",
       "NAME"},
      {"greedy", 0, kRunning, &O::greedy, "Always take the most likely code, in all code groups", nullptr},
      {"seed", 0, kRunning | kAlign | kMeasuring, &O::seed, "Random seed (default 0)", "N"},
      {"max-frames", 0, kRunning, &O::max_frames, "Stop after N frames of 80 ms", "N"},
      {"part-length", 0, kSpeak, &O::part_length,
       "Characters after which a longer text is split at the end of a sentence, clause or word; 0 = never; default: as "
       "the model needs it",
       "N"},
      {"rate", 0, kSpeak, &O::rate, "Rate of the speech with its pitch as it is, 0.25 to 4 (default 1)", "N"},
  };
}

// Returns the options of voices that are made.
std::vector<Option> VoiceOptions() {
  using O = ToolOptions;
  return {
      {"audio", 0, kMakeVoice, &O::audio, "WAV file with the voice to clone", "FILE"},
      {"reference-text", 0, kMakeVoice, Text{&O::reference_text},
       "Transcript of --audio; without it only the timbre is cloned", "TEXT"},
      {"pad-reference", 0, kMakeVoice, &O::pad_reference,
       "Append half a second of silence to --audio, so that speech does not repeat its last sounds", nullptr},
      {"prepare", 0, kMakeVoice, &O::prepare,
       "Trim the silence around --audio, make its end quiet, normalise its level and, without --reference-text, cut it "
       "to "
       "15 s at a pause; says what was done",
       nullptr},
      {"add-to", 0, kMakeVoice | kDesignVoice, &O::add_to,
       "Voice file that gets the take as one more manner, which --style names; --output keeps that file as it is",
       "FILE"},
      {"takes", 0, kDesignVoice, &O::takes,
       "Number of takes to choose among, with seeds one apart; files get numbers: calm.1.voice, calm.2.voice", "N"},
      {"wav", 0, kDesignVoice, &O::wav, "Also write the take's sound, to listen to", "FILE"},
  };
}

// Returns the options of the engine and of files.
std::vector<Option> EngineAndFileOptions() {
  using O = ToolOptions;
  return {
      {"device", 0, kRunning | kDecode | kInspect | kCheck | kAlign | kMeasuring, &O::device,
       "auto (default: the GPU if it can hold the model), cpu or cuda; of `inspect` cuda: its path, a frame's time, "
       "voices that fit",
       "NAME"},
      {"precision", 0, kRunning | kDecode | kInspect | kCheck | kAlign | kMeasuring, &O::precision,
       "auto (default: bf16 on the GPU, f32 on the CPU), bf16, f32 or int8, which needs less memory and is less exact; "
       "on the CPU alone int4; of `decode` on the GPU, auto and bf16 are products of tensor cores with sums in F32",
       "NAME"},
      {"codec-precision", 0, kRunning | kDecode, &O::codec_precision,
       "exact (default) or, on the GPU alone, fast: a third of the codec's multiplications, less exact", "NAME"},
      {"threads", 0, kRunning | kDecode | kMeasuring | kCheck | kAlign, &O::threads,
       "CPU threads; 0 (default) = the fastest number, measured at load", "N"},
      {"voices", 0, kGenerating | kInspect, &O::voices,
       "Utterances that the engine can speak at once, 1 to 4096 (default 64): sizes the memory of a GPU", "N"},
      {"against", 0, kCheck, &O::against,
       "Compare with this report, of `check --json` or tests/golden/official-check.py; exit status 1 if they differ",
       "FILE"},
      {"output", 'o', kSpeak | kDecode | kWritingVoice, &O::output,
       "File to write: WAV, or a voice; of `speak` .wav, .raw (samples alone: mono, little-endian), or - for a WAV to "
       "standard output while it is being made",
       "FILE"},
      {"codes", 0, kAlign, &O::codes, "Codes of an utterance, as `codes` prints them; needs its --text", "FILE"},
      {"write", 0, kAlign | kLoudness, &O::write, "Write the result into the model's qttssrc.json", nullptr},
      {"words", 0, kSpeak | kAlign, &O::words,
       "Also write when each word begins and ends, and what was spoken of the text, to a file: .vtt, .srt, .json or "
       ".TextGrid; needs a model with an alignment head",
       "FILE"},
      {"format", 0, kSpeak | kDecode, &O::format, "Samples of the file: s16 (default) or f32", "NAME"},
      {"raw", 0, kSpeak, &O::raw, "No WAV header on standard output", nullptr},
      {"help", 'h', kAll, &O::help, "The manual", nullptr},
      {"version", 'V', kAll, &O::version, "The version", nullptr},
  };
}

// Returns all options, in the manual's order.
std::vector<Option> MakeOptions() {
  std::vector<Option> options = SpeechOptions();
  for (const std::vector<Option>& more : {VoiceOptions(), EngineAndFileOptions()}) {
    options.insert(options.end(), more.begin(), more.end());
  }
  static std::array<std::string, kSamplingNumberCount> descriptions;
  auto at = std::ranges::find(options, std::string_view("max-frames"), &Option::name);
  for (size_t i = 0; i < kSamplingNumberCount; ++i) {
    const SamplingNumber& number = kSamplingNumbers[i];
    descriptions[i] = std::string(number.meaning) + "; " + number.special;
    at = options.insert(at, {number.name, 0, kRunning, &number, descriptions[i].c_str(), number.whole() ? "N" : "X"});
    ++at;
  }
  return options;
}

std::span<const Option> Options() {
  static const std::vector<Option> options = MakeOptions();
  return options;
}

constexpr size_t kSwitch = 0;  // index in Target

// Returns "--seed N".
std::string Shown(const Option& option) {
  return "--" + std::string(option.name) + (option.value == nullptr ? "" : " " + std::string(option.value));
}

template <typename Number>
Status ParseNumber(const Option& option, std::string_view value, std::optional<Number>* to) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool valid = error == std::errc() && end == value.data() + value.size();
  if constexpr (std::is_floating_point_v<Number>) valid = valid && std::isfinite(number);
  if (!valid) {
    return Status::InvalidArgument(Shown(option) + ": \"" + std::string(value) + "\" is not a " +
                                   (std::is_integral_v<Number> ? "whole number" : "number"));
  }
  *to = number;
  return Status::Ok();
}

// User data of GLib's parser callback.
struct Parse {
  ToolOptions options;
  std::vector<const Option*> given;
};

Status Store(const Option& option, std::string_view value, ToolOptions* to) {
  if (const auto* flag = std::get_if<bool ToolOptions::*>(&option.target)) {
    to->*(*flag) = true;
  } else if (const auto* bytes = std::get_if<std::string ToolOptions::*>(&option.target)) {
    to->*(*bytes) = value;
  } else if (const auto* text = std::get_if<Text>(&option.target)) {
    std::string& stored = to->*(text->to);
    stored = RepairUtf8(value);
    if (stored != value) {
      to->warnings.push_back(Shown(option) +
                             ": bytes that are not UTF-8 were replaced by U+FFFD; arguments are UTF-8 "
                             "in every locale");
    }
  } else if (const auto* whole = std::get_if<std::optional<int64_t> ToolOptions::*>(&option.target)) {
    return ParseNumber(option, value, &(to->*(*whole)));
  } else if (const auto* real = std::get_if<std::optional<double> ToolOptions::*>(&option.target)) {
    return ParseNumber(option, value, &(to->*(*real)));
  } else if (const auto* number = std::get_if<const SamplingNumber*>(&option.target)) {
    std::optional<double>& stored = to->sampling[static_cast<size_t>(*number - kSamplingNumbers)];
    if (!(*number)->whole()) return ParseNumber(option, value, &stored);
    std::optional<int64_t> number_of_codes;
    QTTS_RETURN_IF_ERROR(ParseNumber(option, value, &number_of_codes));
    stored = static_cast<double>(*number_of_codes);
  }
  return Status::Ok();
}

gboolean OnOption(const gchar* name, const gchar* value, gpointer data, GError** error) {
  auto* const parse = static_cast<Parse*>(data);
  const std::string_view given = name;
  const auto options = Options();
  const auto option = std::ranges::find_if(options, [given](const Option& candidate) {
    return given.starts_with("--") ? given.substr(2) == candidate.name : given.substr(1)[0] == candidate.letter;
  });
  parse->given.push_back(&*option);
  const Status status = Store(*option, value == nullptr ? "" : value, &parse->options);
  if (status.ok()) return TRUE;
  g_set_error_literal(error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE, status.message().c_str());
  return FALSE;
}

// GLib's parser of all options, or of those of some commands, for their manual.
struct Parser {
  Parser(unsigned commands, const std::string& parameters, Parse* parse)
      : context(g_option_context_new(parameters.c_str()), g_option_context_free) {
    for (const Option& option : Options()) {
      if ((option.commands & commands) == 0) continue;
      GOptionEntry entry = {};
      entry.long_name = option.name;
      entry.short_name = option.letter;
      // Raw bytes: GLib would convert other types from the locale's charset, and no locale is set.
      entry.flags = option.target.index() == kSwitch ? G_OPTION_FLAG_NO_ARG : G_OPTION_FLAG_FILENAME;
      entry.arg = G_OPTION_ARG_CALLBACK;
      entry.arg_data = reinterpret_cast<gpointer>(OnOption);
      entry.description = option.does;
      entry.arg_description = option.value;
      entries.push_back(entry);
    }
    entries.push_back({});
    GOptionGroup* const group = g_option_group_new("main", "", "", parse, nullptr);
    g_option_group_add_entries(group, entries.data());
    g_option_context_set_main_group(context.get(), group);
    g_option_context_set_help_enabled(context.get(), FALSE);
  }

  std::unique_ptr<GOptionContext, decltype(&g_option_context_free)> context;
  std::vector<GOptionEntry> entries;
};

// Returns "auto, cpu or cuda".
std::string DeviceNames() {
  std::string names;
  for (const DeviceEntry& device : kDevices) {
    if (&device != std::begin(kDevices)) names += &device == std::end(kDevices) - 1 ? " or " : ", ";
    names += device.name;
  }
  return names;
}

}  // namespace

Status NotAllowed(const char* option, const std::string& value, std::string_view allowed) {
  return Status::InvalidArgument("--" + std::string(option) + " \"" + value + "\": must be " + std::string(allowed));
}

std::string Manual(const std::string& command) {
  const Command* const one = FindCommand(command);
  unsigned commands = one == nullptr ? kAll : one->bit;
  std::string summary;
  std::string parameters;
  if (one != nullptr) {
    parameters = command + " " + one->operands;
    summary = "Prints " + std::string(one->does) + ".";
    if ((one->bit & (kWritingVoice | kDecode | kSpeak)) != 0) summary.replace(0, 6, "Writes");
  } else {
    parameters = "COMMAND … - speak with Qwen3-TTS checkpoints, inspect them and run their parts";
    summary = "Commands:";
    for (const Command& each : kCommands) {
      if (command == "voice" && !each.name.starts_with("voice ")) continue;
      std::string line = std::string(each.name) + " " + each.operands;
      constexpr glong kColumn = 29;
      const glong width = g_utf8_strlen(line.c_str(), -1);
      line.append(static_cast<size_t>(std::max(kColumn - width, glong{1})), ' ');
      summary += "\n  " + line + each.does;
    }
    if (command == "voice") commands = kWritingVoice | kShowVoice;
  }
  const Parser parser(commands, parameters, nullptr);
  const std::string description = std::string(kDescription) + (one == nullptr ? kExamples : "");
  g_option_context_set_summary(parser.context.get(), summary.c_str());
  g_option_context_set_description(parser.context.get(), description.c_str());
  g_set_prgname("qtts-tool");  // The manual is written before parsing, when GLib does not know the program's name.
  const std::unique_ptr<gchar, decltype(&g_free)> manual(g_option_context_get_help(parser.context.get(), TRUE, nullptr),
                                                         g_free);
  return manual.get();
}

Result<ToolOptions> ParseOptions(int argc, char** argv) {
  Parse parse;
  GError* error = nullptr;
  const Parser parser(kAll, "", &parse);
  const bool parsed = g_option_context_parse(parser.context.get(), &argc, &argv, &error);
  const std::string problem = parsed ? "" : error->message;
  g_clear_error(&error);
  ToolOptions& options = parse.options;
  if (options.version) return std::move(options);
  if (!parsed && !options.help) return Status::InvalidArgument(problem);
  // If parsing failed after --help, options are still in argv.
  std::vector<std::string> words;
  bool options_end = false;
  for (int i = 1; i < argc; ++i) {
    if (!options_end && std::string_view(argv[i]) == "--") {
      options_end = true;
    } else if (parsed || argv[i][0] != '-') {
      words.emplace_back(argv[i]);
    }
  }
  size_t taken = words.empty() ? 0 : 1;
  if (taken > 0) options.command = words[0];
  if (options.command == "voice" && words.size() > 1) {
    options.command += " " + words[1];
    taken = 2;
  }
  const Command* const command = FindCommand(options.command);
  if (options.help && (command != nullptr || options.command.empty() || words[0] == "voice")) {
    if (command == nullptr && !words.empty()) options.command = words[0];
    return std::move(options);
  }
  if (options.command.empty()) return Status::InvalidArgument("no command");
  if (command == nullptr) {
    if (words[0] == "voice")
      return Status::InvalidArgument(
          "voice: say 'voice make DIR', 'voice design DIR DESCRIPTION', 'voice mix FILE:WEIGHT…' or 'voice show FILE'");
    return Status::InvalidArgument("unknown command " + options.command);
  }
  for (const Option* const option : parse.given) {
    if ((option->commands & command->bit) == 0) {
      return Status::InvalidArgument(options.command + " takes no --" + option->name);
    }
  }
  options.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(taken), words.end());
  if (options.arguments.size() > command->max_operands) {
    return Status::InvalidArgument(options.command + ": \"" + options.arguments[command->max_operands] +
                                   "\" is one argument too many; put quotation marks around a text of several words");
  }
  if (options.arguments.size() < command->min_operands) {
    return Status::InvalidArgument(options.command + ": " + command->missing);
  }
  return std::move(options);
}

Result<TokenizerPattern> PatternOf(const ToolOptions& options) {
  if (options.pattern.empty() || options.pattern == "native") return TokenizerPattern::kNative;
  if (options.pattern == "patched") return TokenizerPattern::kPatched;
  return NotAllowed("pattern", options.pattern, "native or patched");
}

Result<WavFormat> SampleFormatOf(const ToolOptions& options) {
  if (options.format.empty() || options.format == "s16") return WavFormat::kS16;
  if (options.format == "f32") return WavFormat::kF32;
  return NotAllowed("format", options.format, "s16 or f32");
}

Result<EngineOptions> MakeEngineOptions(const ToolOptions& options, const std::string& path) {
  EngineOptions engine;
  engine.model_path = path;
  QTTS_ASSIGN_OR_RETURN(engine.tokenizer_pattern, PatternOf(options));
  if (!options.device.empty()) {
    const auto* const found = std::ranges::find(kDevices, options.device, &DeviceEntry::name);
    if (found == std::end(kDevices)) return NotAllowed("device", options.device, DeviceNames());
    engine.device = static_cast<Device>(found - std::begin(kDevices));
  }
  if (!options.precision.empty()) {
    constexpr Precision kAll[] = {Precision::kAuto, Precision::kBF16, Precision::kF32, Precision::kInt8,
                                  Precision::kInt4};
    const auto* const found = std::ranges::find(kAll, options.precision, PrecisionName);
    if (found == std::end(kAll)) return NotAllowed("precision", options.precision, "auto, bf16, f32, int8 or int4");
    engine.precision = *found;
  }
  if (options.codec_precision == "fast") {
    engine.codec_precision = CodecPrecision::kFast;
  } else if (!options.codec_precision.empty() && options.codec_precision != "exact") {
    return NotAllowed("codec-precision", options.codec_precision, "exact or fast");
  }
  if (options.threads.has_value()) {
    constexpr int64_t kMost = 1024;
    if (*options.threads < 0 || *options.threads > kMost) {
      return NotAllowed("threads", std::to_string(*options.threads),
                        "0 (measured at load) to " + std::to_string(kMost));
    }
    if (IsGpu(engine.device)) {
      return Status::InvalidArgument("--threads is about the CPU: leave it out, or choose another --device than " +
                                     std::string(DeviceName(engine.device)));
    }
    engine.threads = static_cast<int>(*options.threads);
  }
  if (options.voices.has_value()) {
    if (*options.voices < 1 || *options.voices > kMostVoices) {
      return NotAllowed("voices", std::to_string(*options.voices), "1 to " + std::to_string(kMostVoices));
    }
    engine.voices = static_cast<int>(*options.voices);
  }
  return engine;
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
    return NotAllowed("layout", options.layout, "auto, streaming or non-streaming");
  }
  request.seed = static_cast<uint64_t>(options.seed.value_or(0));
  if (!options.voice.empty()) {
    QTTS_ASSIGN_OR_RETURN(ClonedVoice voice, LoadVoice(options.voice, options.style, options.instruct));
    // The instruction has chosen the take.
    if (options.style.empty() && !voice.style.empty() && !voice.designed()) request.instruct.clear();
    request.voice = std::make_shared<const ClonedVoice>(std::move(voice));
  } else if (!options.style.empty() && options.command != "voice design") {
    return Status::InvalidArgument("--style names a take of a voice file: give the file with --voice");
  }
  request.settings = defaults;
  if (VoiceKindOf(request.voice.get()) == VoiceKind::kDesigned) {
    request.settings.predictor.temperature = kDesignedPredictorTemperature;
  }
  for (size_t i = 0; i < kSamplingNumberCount; ++i) {
    if (!options.sampling[i]) continue;
    const SamplingNumber& number = kSamplingNumbers[i];
    const double value = *options.sampling[i];
    if (!number.MayBeSet(value)) {
      return NotAllowed(number.name, number.Text(value), number.Range() + " (" + number.special + ")");
    }
    number.SetFromUser(value, &request.settings);
  }
  if (options.greedy) request.settings.talker.do_sample = request.settings.predictor.do_sample = false;
  if (options.part_length) {
    constexpr int64_t kMax = 1000000;
    if (*options.part_length < 0 || *options.part_length > kMax) {
      return NotAllowed("part-length", std::to_string(*options.part_length), "0 to " + std::to_string(kMax));
    }
    request.parts = PartBounds::Of(static_cast<size_t>(*options.part_length));
  }
  if (options.max_frames) {
    if (*options.max_frames < 1 || *options.max_frames == std::numeric_limits<int64_t>::max()) {
      return NotAllowed("max-frames", std::to_string(*options.max_frames), "1 or more");
    }
    // An utterance of N ids has N - 1 frames (spec 6).
    request.max_frames = *options.max_frames;
    request.settings.max_new_tokens = *options.max_frames + 1;
  }
  return request;
}

}  // namespace qtts
