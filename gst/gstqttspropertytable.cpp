// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttspropertytable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "gstqttsenumtypes.h"
#include "gstqttsparamspec.h"
#include "qtts/tempo.h"

namespace gstqtts {
namespace {

using qtts::EngineOptions;
using enum Change;

// --- values: an overload for each type of member

void Read(const GValue* value, std::string* string) {
  const gchar* content = g_value_get_string(value);
  *string = content != nullptr ? content : "";
}
void Read(const GValue* value, std::optional<std::string>* string) {
  const gchar* content = g_value_get_string(value);
  *string = content != nullptr ? std::optional<std::string>(content) : std::nullopt;
}
void Read(const GValue* value, bool* truth) { *truth = g_value_get_boolean(value) != FALSE; }
void Read(const GValue* value, int* number) { *number = g_value_get_int(value); }
void Read(const GValue* value, int64_t* number) { *number = g_value_get_int64(value); }
void Read(const GValue* value, uint32_t* number) { *number = g_value_get_uint(value); }
void Read(const GValue* value, uint64_t* number) { *number = g_value_get_uint64(value); }
void Read(const GValue* value, double* number) { *number = g_value_get_double(value); }
template <typename Enum>
requires std::is_enum_v<Enum>
void Read(const GValue* value, Enum* choice) { *choice = static_cast<Enum>(g_value_get_enum(value)); }

void Write(const std::string& string, GValue* value) {
  g_value_set_string(value, string.empty() ? nullptr : string.c_str());
}
void Write(const std::optional<std::string>& string, GValue* value) {
  g_value_set_string(value, string ? string->c_str() : nullptr);
}
void Write(bool truth, GValue* value) { g_value_set_boolean(value, truth ? TRUE : FALSE); }
void Write(int number, GValue* value) { g_value_set_int(value, number); }
void Write(int64_t number, GValue* value) { g_value_set_int64(value, number); }
void Write(uint32_t number, GValue* value) { g_value_set_uint(value, number); }
void Write(uint64_t number, GValue* value) { g_value_set_uint64(value, number); }
void Write(double number, GValue* value) { g_value_set_double(value, number); }
template <typename Enum>
requires std::is_enum_v<Enum>
void Write(Enum choice, GValue* value) { g_value_set_enum(value, static_cast<int>(choice)); }

// --- descriptions for GObject

struct Words {
  const gchar* name;
  const gchar* nick;
  const gchar* blurb;
};

template <typename T>
struct Range {
  T minimum;
  T maximum;
};

struct NoRange {};

// Strings are unset by default.
GParamSpec* NewSpec(const Words& words, const std::string& /*initial*/, NoRange /*range*/, GParamFlags flags) {
  return g_param_spec_string(words.name, words.nick, words.blurb, nullptr, flags);
}
GParamSpec* NewSpec(const Words& words, const std::optional<std::string>& /*initial*/, NoRange /*range*/,
                    GParamFlags flags) {
  return g_param_spec_string(words.name, words.nick, words.blurb, nullptr, flags);
}
GParamSpec* NewSpec(const Words& words, bool initial, NoRange /*range*/, GParamFlags flags) {
  return g_param_spec_boolean(words.name, words.nick, words.blurb, initial ? TRUE : FALSE, flags);
}
template <typename Enum>
requires std::is_enum_v<Enum> GParamSpec* NewSpec(const Words& words, Enum initial, NoRange /*range*/,
                                                  GParamFlags flags) {
  return g_param_spec_enum(words.name, words.nick, words.blurb, EnumType<Enum>(), static_cast<int>(initial), flags);
}
GParamSpec* NewSpec(const Words& words, int initial, Range<int> range, GParamFlags flags) {
  return g_param_spec_int(words.name, words.nick, words.blurb, range.minimum, range.maximum, initial, flags);
}
GParamSpec* NewSpec(const Words& words, int64_t initial, Range<int64_t> range, GParamFlags flags) {
  return g_param_spec_int64(words.name, words.nick, words.blurb, range.minimum, range.maximum, initial, flags);
}
GParamSpec* NewSpec(const Words& words, uint32_t initial, Range<uint32_t> range, GParamFlags flags) {
  return g_param_spec_uint(words.name, words.nick, words.blurb, range.minimum, range.maximum, initial, flags);
}
GParamSpec* NewSpec(const Words& words, uint64_t initial, Range<uint64_t> range, GParamFlags flags) {
  return g_param_spec_uint64(words.name, words.nick, words.blurb, range.minimum, range.maximum, initial, flags);
}
GParamSpec* NewSpec(const Words& words, double initial, Range<double> range, GParamFlags flags) {
  return NewRealParamSpec(words.name, words.nick, words.blurb, range.minimum, range.maximum, initial, flags);
}

// --- rows

// Place where a value is kept: a part of Properties, followed by a member of that part.
constexpr auto kEngine = &Properties::engine;
constexpr auto kUtterance = &Properties::utterance;
constexpr auto kTextOptions = &Properties::text_options;
constexpr auto kPacing = &Properties::pacing;

// Makes a property. `place` gives the member of a Properties.
template <typename Place, typename RangeOrNone>
Property MakeProperty(const Words& words, Change change, Place place, RangeOrNone range, Effect effect) {
  Property property;
  property.name = words.name;
  property.change = change;
  property.effect = effect;
  property.new_spec = [words, place, range](GParamFlags flags) {
    const Properties initial;
    return NewSpec(words, place(initial), range, flags);
  };
  property.set = [place](const GValue* value, Properties* properties) {
    auto& member = place(*properties);
    const auto before = member;
    Read(value, &member);
    return member != before;
  };
  property.get = [place](const Properties& properties, GValue* value) { Write(place(properties), value); };
  return property;
}

template <typename Part, typename T, typename RangeOrNone>
Property MakeRow(const Words& words, Change change, Part Properties::*part, T Part::*member, RangeOrNone range,
                 Effect effect) {
  Property property = MakeProperty(
      words, change, [ part, member ](auto& properties) -> auto& { return properties.*part.*member; }, range, effect);
  property.of_utterance = std::is_same_v<Part, Settings>;
  return property;
}

// Makes a row for a string, a truth or an enumeration.
template <typename Part, typename T>
Property Row(const gchar* name, const gchar* nick, Change change, Part Properties::*part, T Part::*member,
             const gchar* blurb, Effect effect = Effect::kNone) {
  return MakeRow({name, nick, blurb}, change, part, member, NoRange(), effect);
}

// Makes a row for a number.
template <typename Part, typename T>
Property Row(const gchar* name, const gchar* nick, Change change, Part Properties::*part, T Part::*member,
             Range<std::type_identity_t<T>> range, const gchar* blurb, Effect effect = Effect::kNone) {
  return MakeRow({name, nick, blurb}, change, part, member, range, effect);
}

template <typename T>
Property Row(const gchar* name, const gchar* nick, Change change, T Properties::*member, const gchar* blurb,
             Effect effect) {
  return MakeProperty(
      Words{name, nick, blurb}, change, [member](auto& properties) -> auto& { return properties.*member; }, NoRange(),
      effect);
}

// Returns a property whose value is kept elsewhere than in this table.
Property RowKeptElsewhere(const gchar* name, Change change, GParamSpec* (*new_spec)(GParamFlags)) {
  Property property;
  property.name = name;
  property.change = change;
  property.new_spec = new_spec;
  return property;
}

// Returns a property that is a GstStructure, with a member of Properties.
Property StructureRow(const Words& words, std::shared_ptr<const void> Properties::*member) {
  Property property;
  property.name = words.name;
  property.new_spec = [words](GParamFlags flags) {
    return g_param_spec_boxed(words.name, words.nick, words.blurb, GST_TYPE_STRUCTURE, flags);
  };
  property.set = [member](const GValue* value, Properties* properties) {
    auto* copy = static_cast<GstStructure*>(g_value_dup_boxed(value));
    const auto free = [](void* structure) {
      if (structure != nullptr) gst_structure_free(static_cast<GstStructure*>(structure));
    };
    properties->*member = copy != nullptr ? std::shared_ptr<const void>(copy, free) : nullptr;
    return true;
  };
  property.get = [member](const Properties& properties, GValue* value) {
    g_value_set_boxed(value, (properties.*member).get());
  };
  return property;
}

// Makes the row of a number of the sampling rules: the model's own value unless it is set.
Property SamplingRow(size_t index) {
  const qtts::SamplingNumber& number = qtts::kSamplingNumbers[index];
  Property property;
  property.name = number.name;
  property.of_utterance = true;
  property.new_spec = [&number](GParamFlags flags) {
    // Interned, since the class keeps its strings for ever.
    const gchar* blurb =
        g_intern_string((std::string(number.meaning) + " (-1 = as the model says, " + number.special + ")").c_str());
    if (number.whole()) {
      return g_param_spec_int(number.name, number.title, blurb, Settings::kModel, static_cast<int>(number.maximum),
                              Settings::kModel, flags);
    }
    const double minimum = number.MayBeSet(0) ? 0 : number.minimum;
    return NewModelValueParamSpec(number.name, number.title, blurb, minimum, number.maximum, flags);
  };
  property.set = [index](const GValue* value, Properties* properties) {
    const double set = G_VALUE_HOLDS_INT(value) ? g_value_get_int(value) : g_value_get_double(value);
    return std::exchange(properties->utterance.sampling[index], set) != set;
  };
  property.get = [index](const Properties& properties, GValue* value) {
    const double kept = properties.utterance.sampling[index];
    if (G_VALUE_HOLDS_INT(value)) {
      g_value_set_int(value, static_cast<int>(kept));
    } else {
      g_value_set_double(value, kept);
    }
  };
  return property;
}

// Makes the row of the rate of speech: of all that has none of its own, also while it is spoken, or of the utterance
// that a field of speak or qtts/set-voice is for.
Property RateRow() {
  Property property =
      Row("rate", "Rate", kPlaying, kPacing, &Pacing::rate, {qtts::Tempo::kMinRate, qtts::Tempo::kMaxRate},
          "Rate of the speech, with its pitch as it is: 2 is twice as fast, 0.5 half as fast. Sounds well "
          "from 0.5 to 2. A change holds at once, also for the utterance that is being spoken and for "
          "those that wait, unless they have a rate of their own. Silence between utterances and breaks "
          "keep their length. 1 changes no sample");
  property.of_utterance = true;
  property.set = [set = std::move(property.set)](const GValue* value, Properties* properties) {
    const bool changed = set(value, properties);
    properties->utterance.rate = properties->pacing.rate;
    return changed;
  };
  return property;
}

// A row: name, nick, when it may change, where it is kept and with which default, range of a number, description,
// effect.

// Returns the properties of the model and where it runs.
std::vector<Property> EngineProperties() {
  return {
      Row("model-path", "Model Path", kReady, kEngine, &EngineOptions::model_path,
          "Folder of a published Qwen3-TTS-12Hz checkpoint. Unset: the folder in the environment "
          "variable QTTS_VOICE_PATH, else the voice bundled with the element"),
      Row("device", "Device", kReady, kEngine, &EngineOptions::device, "Where the model runs"),
      Row("precision", "Precision", kReady, kEngine, &EngineOptions::precision, "Arithmetic of the model"),
      Row("codec-precision", "Codec Precision", kReady, kEngine, &EngineOptions::codec_precision,
          "Arithmetic of the codec on a GPU, which takes most of the time of many voices. On the CPU it follows "
          "\"precision\""),
      Row("cuda-device-id", "CUDA Device ID", kReady, kEngine, &EngineOptions::gpu, {-1, G_MAXINT},
          "GPU index in CUDA's order (-1 = of those that can hold the model, the one with the most free \"voices\": "
          "the "
          "elements of a process are spread over the GPUs)"),
      Row("voices", "Voices", kReady, kEngine, &EngineOptions::voices, {1, qtts::kMostVoices},
          "Number of utterances that the engine of the model can speak at once; more wait, see "
          "\"max-wait\". Sizes the memory that it takes on a GPU. All elements of a process with the same "
          "model share its engine, and the first one decides: \"slots\" in \"stats\" is the number in force"),
  };
}

// Returns the properties of the text that is spoken, and of its segments.
std::vector<Property> TextProperties() {
  return {
      Row("text", "Text", kPlaying, &Properties::text,
          "Text to speak. Each text set after the element has started, and before end-of-stream, is "
          "one more utterance",
          Effect::kSpeak),
      Row("segmentation", "Segmentation", kReady, kTextOptions, &TextOptions::segmentation,
          "How text from the sink pad is split into utterances. An utterance also ends with a gap, "
          "the event qtts/end-utterance, \"utterance-timeout\" and the end of the stream"),
      Row("newline-ends", "Newline Ends", kReady, kTextOptions, &TextOptions::newline_ends,
          "Whether the end of a line ends a sentence (\"segmentation\" sentence; otherwise an empty "
          "line does) or a growing utterance (stream). No effect for none"),
      Row("skip-footnote-marks", "Skip Footnote Marks", kReady, kTextOptions, &TextOptions::skip_footnote_marks,
          "Whether footnote marks are left out: [1], [12], [a] and raised numbers behind a word or an end mark. Where "
          "sentences are found: \"segmentation\" sentence, and auto with files and pipes"),
      Row("utterance-timeout", "Utterance Timeout", kReady, kTextOptions, &TextOptions::timeout, {0, G_MAXUINT64},
          "Time in nanoseconds without text from the sink pad after which a sentence or a growing "
          "utterance ends, if nothing else is left to speak (18446744073709551615 = never). No "
          "effect for \"segmentation\" none"),
      Row("max-text-length", "Maximum Text Length", kReady, kTextOptions, &TextOptions::max_chars, {1, G_MAXUINT},
          "Maximum length of an utterance from the sink pad in characters. Longer text becomes several utterances: it "
          "is "
          "split after a sentence if there is one, otherwise at a possible line break. See \"part-length\" for what "
          "a model speaks at once"),
      Row("max-queued-text", "Maximum Queued Text", kPlaying, kTextOptions, &TextOptions::max_queued, {0, G_MAXUINT},
          "Maximum number of queued characters, in at most 64 utterances (or twice \"parallel\" if that "
          "is more). Beyond it, the sink pad blocks, and \"text\" and speak are refused with a warning. An empty queue "
          "accepts a "
          "text of any length",
          Effect::kBoundQueue),
      Row("parallel", "Parallel", kReady, kTextOptions, &TextOptions::parallel, {1, 2048},
          "Number of utterances that are made at once: the current one and those that wait next. They leave in order, "
          "with the same sound, messages and timestamps as one by one, but sooner: for books and files. Only spare "
          "\"slots\" are used, and about 1 MiB of memory for each. More than 1 needs is-live=false, and makes "
          "\"real-time\" false"),
      StructureRow(
          {"speaker-map", "Speaker Map",
           "Voices of the speakers of a transcript from the sink pad, which events rstranscribe/speaker-change "
           "name: a field for each, with a preset voice or a structure of settings. The field \"default\" is for "
           "names without one; else each gets another preset voice. Unset: the events change nothing"},
          &Properties::speaker_map),
  };
}

// Returns the properties of an utterance's speech. With the next two, all that `speak` and `qtts/set-voice` may have.
std::vector<Property> UtteranceProperties() {
  return {
      Row("speaker", "Speaker", kPlaying, kUtterance, &Settings::speaker,
          "Preset voice, one of \"speakers\", from the next utterance on. Unset: the model's default"),
      Row("language", "Language", kPlaying, kUtterance, &Settings::language,
          "Language of the text, one of \"languages\", its BCP-47 tag, or \"auto\", from the next "
          "utterance on. Unset: auto, the text decides"),
      Row("instruct", "Instruct", kPlaying, kUtterance, &Settings::instruct,
          "Style instruction in plain words, from the next utterance on; for a voice-design model, "
          "the description of the voice. Unset: no instruction"),
      Row("voice-file", "Voice File", kPlaying, kUtterance, &Settings::voice_file,
          "Cloned voice for a base model, or designed one for a voice-design model: a file that \"qtts-tool voice\" "
          "wrote, from the next utterance on"),
      Row("style", "Style", kPlaying, kUtterance, &Settings::style,
          "Which of several takes of \"voice-file\" speaks, by its manner such as calm, from the next utterance on. "
          "Unset: the one that the first word of \"instruct\" names, else the first; a designed voice has its first"),
      Row("reference-audio", "Reference Audio", kPlaying, kUtterance, &Settings::reference_audio,
          "Recording of the voice to clone with a base model, from the next utterance on: a local "
          "file with 1 to 60 s of speech as WAV, FLAC, MP3, AAC, Ogg, MP4 or WebM. The first utterance "
          "with it waits until it is cloned; \"voice-file\" does not"),
      Row("reference-text", "Reference Text", kPlaying, kUtterance, &Settings::reference_text,
          "Exact transcript of \"reference-audio\": its manner of speaking is cloned, too. Unset: "
          "only its timbre"),
      Row("pad-reference", "Pad Reference", kPlaying, kUtterance, &Settings::pad_reference,
          "Append half a second of silence to \"reference-audio\". Use it if speech begins with "
          "the recording's last sounds. The official package does not do this"),
      Row("prepare-reference", "Prepare Reference", kPlaying, kUtterance, &Settings::prepare_reference,
          "Repair \"reference-audio\" before it is cloned: trim silence, make the end quiet, normalise the level and, "
          "without \"reference-text\", cut it to 15 s at a pause. The log tells what was done, at level info. The "
          "official package does not do this"),
      Row("layout", "Prompt Layout", kPlaying, kUtterance, &Settings::layout,
          "Layout of the text in the model's prompt, from the next utterance on"),
      Row("seed", "Seed", kPlaying, kUtterance, &Settings::seed, {-1, G_MAXINT64},
          "Random seed of each utterance: the same text, settings, model, device and "
          "seed give the same sound (-1 = a new one for every utterance, see \"stats\")"),
      RateRow(),
  };
}

std::vector<Property> SamplingProperties() {
  std::vector<Property> properties;
  for (size_t i = 0; i < qtts::kSamplingNumberCount; ++i) properties.push_back(SamplingRow(i));
  return properties;
}

// Returns the properties that limit an utterance.
std::vector<Property> LimitProperties() {
  return {
      Row("max-duration", "Maximum Duration", kPlaying, kUtterance, &Settings::max_duration, {0, G_MAXUINT64},
          "Maximum length of one utterance in nanoseconds, in whole frames of 80 ms and at least "
          "one. A warning is posted if it cuts speech (0 = the model's own limit)"),
      Row("normalize", "Normalize", kPlaying, kUtterance, &Settings::normalize,
          "How a text is prepared for the model, from the next utterance on. Messages speak of the text as it is "
          "written"),
      Row("emoji", "Emoji", kPlaying, kUtterance, &Settings::emoji,
          "How emoji are spoken where symbols are prepared (see \"normalize\")"),
      Row("lexicon", "Lexicon", kPlaying, kUtterance, &Settings::lexicon,
          "Files with words and what is spoken instead, separated by colons, from the next utterance on: W3C PLS with "
          "aliases, or lines of two columns separated by a tab. The first file wins. A changed file is read again"),
      Row("markup", "Markup", kPlaying, kUtterance, &Settings::markup,
          "What a text is, from the next one on. Tags and marks are never spoken; SSML switches voice, language, "
          "rate and volume, makes breaks and qtts-mark messages. Positions in messages are those of the document"),
      Row("markup-rules", "Markup Rules", kPlaying, kUtterance, &Settings::markup_rules,
          "What is spoken of Markdown's code, table, image, link and html: each skip, name (a word says what is there) "
          "or read, as in \"code=name,table=read\". Unset: skip. The text of links and code within a sentence are "
          "always read"),
      Row("part-length", "Part Length", kPlaying, kUtterance, &Settings::part_length, {Settings::kModel, G_MAXINT},
          "Number of characters after which a longer text is split, from the next utterance on: at the end of a "
          "sentence, else of a clause, else of a word. A model speaks its parts one after the other with one voice; "
          "beyond what it was trained on it babbles. The utterance remains one for all messages (-1 = as the model "
          "needs it, 0 = never: exactly the official package)"),
      Row("max-wait", "Maximum Wait", kPlaying, kUtterance, &Settings::max_wait, {0, G_MAXUINT64},
          "Maximum time in nanoseconds that an utterance waits for the model, which all elements "
          "share: for a free slot, see \"stats\", and on a GPU for memory and time. After that it is "
          "finished with the reason busy and a warning (0 = it does not wait, "
          "18446744073709551615 = for ever)"),
      Row("real-time", "Real Time", kPlaying, kUtterance, &Settings::real_time,
          "Whether an utterance is played while it is made. If false, as for files, it gives way to all utterances of "
          "the "
          "same model that are: it is made with the time that they leave. The sound is the same"),
      Row("parallel-parts", "Parallel Parts", kPlaying, kUtterance, &Settings::parallel_parts, {1, 64},
          "Number of parts of a long text (see \"part-length\") that are made at once if \"real-time\" is false: the "
          "one that leaves and those that come next, each once its text is complete. They leave in order, with the "
          "same sound, messages and timestamps as one by one, but sooner. The others take \"slots\" that no utterance "
          "waits for, give them back as soon as one does, and hold 3 MiB of sound each at most"),
      Row("runaway-guard", "Runaway Guard", kPlaying, kUtterance, &Settings::runaway_guard,
          "End an utterance, or the part of it (see \"part-length\"), whose end the model has missed: a second after "
          "the "
          "text, or when it stands still or goes back again and again, if the model's words are measured; else after 5 "
          "s "
          "of silence, or when it lasts longer than \"runaway-frames\" allows. Off: the sound is exactly the model's"),
      Row("runaway-frames", "Runaway Frames", kPlaying, kUtterance, &Settings::runaway_frames, {1, 1000},
          "With \"runaway-guard\": frames of 80 ms for each token of the text, and 10 s, after which the model has "
          "missed "
          "the end. Speech takes at most 6"),
      Row("retry", "Retry", kPlaying, kUtterance, &Settings::retry, {Settings::kAutoRetry, 10},
          "Number of times that an utterance is made again, with another seed, if the model skipped or repeated words "
          "or missed the end: before any of it leaves the element, so with \"parallel\" above 1 or \"real-time\" "
          "false, where an utterance of up to two minutes is kept until its end. The best attempt is spoken. Never if "
          "\"seed\" is set or the text grows (-1 = 2 with \"parallel\" above 1, else 0)"),
      Row("target-loudness", "Target Loudness", kPlaying, kUtterance, &Settings::target_loudness, {-70, 0},
          "Loudness in LUFS (BS.1770) of the speech from the next utterance on, whatever the voice: a fixed gain for "
          "each voice, from the loudness that was measured once, and a limiter at -1 dBFS. A voice without a measured "
          "loudness is left as it is, with a warning (0 = off: the sound is exactly the model's)"),
      Row("speak-anything", "Speak Anything", kPlaying, kUtterance, &Settings::speak_anything,
          "Also give the model texts without a letter, number or currency sign, from the next "
          "utterance on: it mostly babbles for seconds. Off: they are finished without sound, for "
          "the reason nothing-to-say"),
  };
}

// Returns the properties of the time at which sound leaves the element.
std::vector<Property> PacingProperties() {
  return {
      Row("is-live", "Is Live", kReady, kPacing, &Pacing::is_live,
          "Push each buffer at its running time by the pipeline's clock, like a microphone, and "
          "none in PAUSED. Speech after a pause starts at the current running time",
          Effect::kGoLive),
      Row("idle-mode", "Idle Mode", kPlaying, kPacing, &Pacing::idle_mode,
          "Output while there is no text to speak. With a sink pad, only the end of its stream "
          "ends the sound, and eos means wait",
          Effect::kIdleMode),
      Row("latency", "Latency", kPlaying, kPacing, &Pacing::latency, {0, G_MAXINT64},
          "When live: nanoseconds by which a buffer may be late without losing its place. It is "
          "reported to the pipeline, whose sinks play that much later (0 = none)",
          Effect::kTellLatency),
      Row("leading-silence", "Leading Silence", kPlaying, kPacing, &Pacing::leading_silence, {0, G_MAXINT64},
          "Nanoseconds of silence before the first utterance, and before the first one after a "
          "discontinuity, for receivers that drop the beginning (0 = none)"),
      Row("utterance-gap", "Utterance Gap", kPlaying, kPacing, &Pacing::utterance_gap, {0, G_MAXINT64},
          "Nanoseconds of silence between two utterances (0 = none)"),
      Row("paragraph-gap", "Paragraph Gap", kPlaying, kPacing, &Pacing::paragraph_gap, {-1, G_MAXINT64},
          "Nanoseconds of silence after a paragraph instead of \"utterance-gap\", where sentences are found: "
          "\"segmentation\" sentence, and auto with files and pipes. A blank line or a form feed ends a paragraph "
          "(-1 = \"utterance-gap\" and 300 ms)"),
      Row("heading-gap", "Heading Gap", kPlaying, kPacing, &Pacing::heading_gap, {-1, G_MAXINT64},
          "Nanoseconds of silence after a heading, a short line without an end mark before a blank line; otherwise as "
          "\"paragraph-gap\" (-1 = \"utterance-gap\" and 500 ms)"),
      Row("trim-leading-silence", "Trim Leading Silence", kPlaying, kPacing, &Pacing::trim_leading_silence,
          "Cut the silence at the beginning of an utterance, at most one second, so that it is heard sooner; "
          "\"stats\" has the total. The first buffer of the utterance is then shorter"),
      Row("text-timing", "Text Timing", kPlaying, kPacing, &Pacing::text_timing,
          "Meaning of timestamps of text from the sink pad, with \"segmentation\" auto or none. "
          "Silence fills the time between"),
      Row("max-compression", "Maximum Compression", kPlaying, kPacing, &Pacing::max_compression,
          {1, qtts::Tempo::kMaxRate},
          "With \"text-timing\" compress: factor by which speech that is longer than its time is spoken faster at "
          "most"),
      Row("max-silence", "Maximum Silence", kPlaying, kPacing, &Pacing::max_silence, {0, G_MAXINT64},
          "Maximum length in nanoseconds of a silence within an utterance, from the next utterance on; the rest of it "
          "is "
          "left out. Silence is 10 ms or more below -50 dB of full scale. At least 20 ms stay (0 = all of it)"),
      Row("gap-flag", "GAP Flag", kPlaying, kPacing, &Pacing::gap_flag,
          "Set the GAP flag of buffers of silence between utterances. Off by default, since audioresample lengthens a "
          "stream with that flag (GStreamer before 1.28.3) or breaks its timestamps (1.28.3 and later)"),
  };
}

// Returns the read-only properties.
std::vector<Property> ReadOnlyProperties() {
  return {
      RowKeptElsewhere("speakers", kReadOnly,
                       [](GParamFlags flags) {
                         return g_param_spec_boxed(
                             "speakers", "Speakers",
                             "Preset voices of the model, known from READY on. Empty: it has none", G_TYPE_STRV, flags);
                       }),
      RowKeptElsewhere("default-speaker", kReadOnly,
                       [](GParamFlags flags) {
                         return g_param_spec_string("default-speaker", "Default Speaker",
                                                    "Preset voice of an utterance that names none, known from READY on",
                                                    nullptr, flags);
                       }),
      RowKeptElsewhere("languages", kReadOnly,
                       [](GParamFlags flags) {
                         return g_param_spec_boxed("languages", "Languages",
                                                   "Languages that the model accepts, known from READY on", G_TYPE_STRV,
                                                   flags);
                       }),
      RowKeptElsewhere(
          "supports-instruct", kReadOnly,
          [](GParamFlags flags) {
            return g_param_spec_boolean(
                "supports-instruct", "Supports Instruct",
                "Whether the model heeds \"instruct\", known from READY on. False: it is ignored, with a warning",
                FALSE, flags);
          }),
      RowKeptElsewhere(
          "stats", kReadOnly,
          [](GParamFlags flags) {
            return g_param_spec_boxed(
                "stats", "Statistics",
                "Of the current run: \"model\", \"device\" and its \"cuda-device-id\" (-1: the CPU); counts of "
                "\"utterances\" that came to "
                "their end, of those \"interrupted\" and \"dropped\" before they began, of \"frames\" given out, "
                "which are pieces of speech of up to 80 ms, and of \"underruns\", of \"runaways\" and \"retries\"; of "
                "utterances whose words were "
                "\"measured\", how many were \"incomplete\", the mean \"coverage\" of their texts, and counts of "
                "\"words-skipped\" and \"words-repeated\"; the silence that was \"trimmed\" and "
                "\"first-frame-latency\" in nanoseconds, the latter from handing a text to the engine to "
                "its first frame, of the last utterance, and its mean and max; \"real-time-factor\", time "
                "waited for the engine by length of sound; \"queued-utterances\" and \"queued-chars\" "
                "now, and whether \"upstream-waits\" for room in the queue; \"seed\" of the last "
                "utterance; of the model, shared by all elements that use it, now: \"slots\", utterances "
                "that it speaks at once, \"free-slots\" of them, and \"waiting-utterances\" that wait for "
                "one, see \"max-wait\"; \"pages\" of a GPU's memory for contexts, \"free-pages\" of them, "
                "\"parked-utterances\" that wait in the host's memory for pages, and \"device-memory\" in "
                "bytes that it takes; of the free slots, the \"ahead-slots\" in which parts are made ahead of "
                "their turn, see \"parallel-parts\"; and since it was loaded: \"steps\" of the engine, "
                "\"step-frames\" made by them, and \"step-time\" in nanoseconds, the \"ahead-parts\" that were "
                "begun, and how many were \"preempted-parts\", which gave their slots to others and are made again",
                GST_TYPE_STRUCTURE, flags);
          }),
      RowKeptElsewhere("current-text", kReadOnly,
                       [](GParamFlags flags) {
                         return g_param_spec_string("current-text", "Current Text",
                                                    "Text of the current utterance. Unset: there is none", nullptr,
                                                    flags);
                       }),
  };
}

}  // namespace

const std::vector<Property>& PropertyTable() {
  static const auto* table = [] {
    auto* all = new std::vector<Property>;
    for (auto* part : {EngineProperties, TextProperties, UtteranceProperties, SamplingProperties, LimitProperties,
                       PacingProperties, ReadOnlyProperties}) {
      for (Property& property : part()) all->push_back(std::move(property));
    }
    return all;
  }();
  return *table;
}

const Property* FindProperty(std::string_view name) {
  const auto& table = PropertyTable();
  const auto found =
      std::find_if(table.begin(), table.end(), [name](const Property& property) { return property.name == name; });
  return found != table.end() ? &*found : nullptr;
}

const std::vector<GType>& PropertyEnums() {
  static const auto* types = new std::vector<GType>{
      EnumType<qtts::Device>(),       EnumType<qtts::Precision>(), EnumType<qtts::CodecPrecision>(),
      EnumType<qtts::PromptLayout>(), EnumType<qtts::Markup>(),    EnumType<Segmentation>(),
      EnumType<IdleMode>(),           EnumType<TextTiming>(),      EnumType<TrimSilence>()};
  return *types;
}

}  // namespace gstqtts
