// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/prompt.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "checkpoint/model_kind.h"
#include "qtts/language.h"
#include "qtts/model_info.h"
#include "qtts/sampling_numbers.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kAuto = "auto";
constexpr std::string_view kChinese = "chinese";
constexpr const char* kWholeTextAdvice =
    "a cloned voice speaks a whole text best in the non-streaming layout: in the streaming one, the default of a base "
    "checkpoint, its speech gets faster towards the end, by 17 % in a public measurement. Set layout to non-streaming, "
    "or to streaming if this is what you want";

// Returns true for a dialect. Only a speaker selects one. The official code recognises dialects by name.
bool IsDialect(std::string_view language) { return language.find("dialect") != std::string_view::npos; }

std::string ModelPhrase(ModelType type) { return "a " + std::string(ModelTypeName(type)) + " checkpoint"; }

Status CheckSettings(const GenerationSettings& settings) {
  for (const SamplingNumber& number : kSamplingNumbers) {
    const double value = number.Get(settings);
    if (number.Allows(value)) continue;
    return Status::InvalidArgument(std::string(number.name) + " is " + number.Text(value) + ", expected " +
                                   number.Range());
  }
  if (settings.max_new_tokens < 2) {
    return Status::InvalidArgument("max_new_tokens is " + std::to_string(settings.max_new_tokens) +
                                   ", expected 2 or more: the last token makes no frame");
  }
  return Status::Ok();
}

// Appends one text-only row per id.
void AppendTextRows(std::span<const int32_t> ids, std::vector<PromptRow>* rows) {
  for (const int32_t id : ids) rows->push_back({id, {}, false});
}

}  // namespace

PromptBuilder::PromptBuilder(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer)
    : config_(config), tokenizer_(std::move(tokenizer)) {
  for (const auto& [name, id] : config_.talker.speakers) speakers_.push_back(name);
}

Result<PromptBuilder> PromptBuilder::Create(const ModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer) {
  if (tokenizer->vocab_size() > config.talker.text_vocab_size) {
    return Status::CorruptModel("the tokenizer has ids up to " + std::to_string(tokenizer->vocab_size() - 1) +
                                ", but talker_config.text_vocab_size of config.json is " +
                                std::to_string(config.talker.text_vocab_size));
  }
  const struct {
    const char* key;
    int32_t id;
    std::string_view content;  // empty: any
  } tokens[] = {
      {"im_start_token_id", config.im_start_token_id, kTurnStart},
      {"im_end_token_id", config.im_end_token_id, kTurnEnd},
      {"tts_pad_token_id", config.tts_pad_token_id, {}},
      {"tts_bos_token_id", config.tts_bos_token_id, {}},
      {"tts_eos_token_id", config.tts_eos_token_id, {}},
  };
  for (const auto& token : tokens) {
    const std::string content = tokenizer->Decode(token.id);
    if (content.empty() || tokenizer->AddedToken(content) != token.id ||
        (!token.content.empty() && token.content != content)) {
      return Status::CorruptModel(
          std::string("config.json has ") + token.key + " " + std::to_string(token.id) +
          ", but added_tokens_decoder of tokenizer_config.json has " +
          (token.content.empty() ? "no such id" : "not \"" + std::string(token.content) + "\" there"));
    }
  }
  PromptBuilder builder(config, std::move(tokenizer));
  const Tokenizer& t = *builder.tokenizer_;
  QTTS_ASSIGN_OR_RETURN(const std::vector<int32_t> role, t.EncodePlain("assistant\n"));
  QTTS_ASSIGN_OR_RETURN(builder.turn_end_ids_, t.Encode(std::string(kTurnEnd) + "\n"));
  if (role.size() != kRoleIds || builder.turn_end_ids_.size() != 2) {
    return Status::Unsupported(
        "\"assistant\" and a newline are not one token each in this vocabulary, so the official prompt "
        "would be cut in the wrong places");
  }
  builder.newline_id_ = role[1];
  return builder;
}

size_t PromptBuilder::max_text_bytes() const { return kTextBytesPerPosition * max_text_tokens(); }

size_t PromptBuilder::max_text_tokens() const {
  return static_cast<size_t>(std::max(config_.talker.transformer.max_positions, 0));
}

Result<std::vector<std::string>> PromptBuilder::Validate(const Request& request) const {
  QTTS_ASSIGN_OR_RETURN(Plan plan, MakePlan(request));
  return std::move(plan.warnings);
}

Result<size_t> PromptBuilder::TextIdsNeeded(const Request& request) const {
  QTTS_ASSIGN_OR_RETURN(const Plan plan, MakePlan(request));
  return IdsNeeded(plan);
}

size_t PromptBuilder::IdsNeeded(const Plan& plan) {
  // In ICL the reference text, followed by the text, runs beside one start row and the reference's frames.
  const size_t rows = plan.reference_frames > 0 ? plan.reference_frames + 1 : 1;
  const size_t beside_reference = rows > plan.reference_ids.size() ? rows - plan.reference_ids.size() : 1;
  return kRoleIds + beside_reference;
}

Result<std::vector<int32_t>> PromptBuilder::TurnIds(std::string_view role, const std::string& text) const {
  return tokenizer_->EncodePlain(std::string(role) + "\n" + text);
}

Result<PromptBuilder::Plan> PromptBuilder::MakePlan(const Request& request) const {
  QTTS_RETURN_IF_ERROR(CheckSettings(request.settings));
  const ModelKind& kind = KindOf(config_.type);
  Plan plan;

  plan.streaming = request.layout == PromptLayout::kStreaming ||
                   (request.layout == PromptLayout::kDefault && kind.streams_by_default);
  if (request.more_text && !plan.streaming) {
    return Status::InvalidArgument(
        "text that comes in pieces needs the streaming prompt layout; the non-streaming one, which is the default of " +
        ModelPhrase(config_.type) + ", needs the whole text at once");
  }

  QTTS_RETURN_IF_ERROR(CheckVoiceChoice(config_.type, speakers_, request.speaker, VoiceKindOf(request.voice.get())));
  std::string speaker;
  if (kind.has_speakers) {
    const auto& speakers = config_.talker.speakers;
    speaker = LowerCaseName(request.speaker);
    if (speaker.empty()) speaker = config_.description.default_speaker;
    if (speaker.empty() && !speakers.empty()) speaker = speakers.begin()->first;
    if (!speaker.empty()) plan.speaker_id = speakers.at(speaker);
  }
  QTTS_RETURN_IF_ERROR(PlanLanguage(request, speaker, &plan));

  std::string instruct = request.instruct;
  if (request.voice != nullptr) {
    QTTS_RETURN_IF_ERROR(PlanClonedVoice(*request.voice, &plan));
    if (request.voice->designed() && instruct.empty()) instruct = request.voice->instruct;
    if (kind.clones && request.layout == PromptLayout::kDefault && !request.more_text) {
      plan.warnings.emplace_back(kWholeTextAdvice);
    }
  }

  if (!instruct.empty()) {
    if (config_.supports_instruct()) {
      QTTS_ASSIGN_OR_RETURN(plan.instruct_ids, TurnIds("user", instruct));
      plan.instruct_ids.insert(plan.instruct_ids.begin(), config_.im_start_token_id);
      plan.instruct_ids.insert(plan.instruct_ids.end(), turn_end_ids_.begin(), turn_end_ids_.end());
    } else {
      plan.warnings.push_back("the instruction was ignored: " + ModelPhrase(config_.type) + " of size \"" +
                              config_.size +
                              "\" takes none; Qwen3-TTS-12Hz-1.7B-CustomVoice and Qwen3-TTS-12Hz-1.7B-VoiceDesign do");
    }
  }
  return plan;
}

Status PromptBuilder::PlanLanguage(const Request& request, const std::string& speaker, Plan* plan) const {
  const auto& languages = config_.talker.languages;
  std::string language = LowerCaseName(request.language);
  // Names take precedence over tags, so a checkpoint's own name is never read as a tag.
  if (languages.count(language) == 0) {
    if (const Language official = ResolveLanguage(language); !official.name.empty()) language = official.name;
  }
  if (language != kAuto) {
    const auto found = languages.find(language);
    if (found == languages.end() || IsDialect(language)) {
      std::vector<std::string> names;
      for (const auto& [name, id] : languages) {
        if (!IsDialect(name)) names.push_back(name);
      }
      return CheckLanguage(names, request.language);
    }
    plan->language_id = found->second;
  }
  if (language != kAuto && language != kChinese) return Status::Ok();
  const auto dialect = config_.talker.dialects.find(speaker);
  if (dialect == config_.talker.dialects.end()) return Status::Ok();
  const auto found = languages.find(dialect->second);
  if (found == languages.end()) {
    return Status::CorruptModel("config.json gives speaker \"" + speaker + "\" the dialect \"" + dialect->second +
                                "\", which is not in codec_language_id");
  }
  plan->language_id = found->second;
  return Status::Ok();
}

Status PromptBuilder::PlanClonedVoice(const ClonedVoice& voice, Plan* plan) const {
  const auto hidden = static_cast<size_t>(config_.talker.transformer.hidden_size);
  if (!voice.designed() && voice.x_vector.size() != hidden) {
    return Status::InvalidArgument("the cloned voice's vector has " + std::to_string(voice.x_vector.size()) +
                                   " values, this model's have " + std::to_string(hidden) +
                                   ": extract it with the same checkpoint");
  }
  if (!std::all_of(voice.x_vector.begin(), voice.x_vector.end(), [](float v) { return std::isfinite(v); })) {
    return Status::InvalidArgument("the cloned voice's vector has values that are no finite numbers");
  }
  plan->voice = &voice;
  if (voice.reference_codes.empty()) return Status::Ok();

  const auto groups = static_cast<size_t>(config_.talker.num_code_groups);
  if (voice.reference_codes.size() % groups != 0) {
    return Status::InvalidArgument("the cloned voice has " + std::to_string(voice.reference_codes.size()) +
                                   " reference codes, no multiple of the " + std::to_string(groups) + " of a frame");
  }
  const int first_size = std::min(config_.codec.codebook_size, config_.talker.vocab_size);
  const int other_size = std::min(config_.codec.codebook_size, config_.predictor.vocab_size);
  for (size_t i = 0; i < voice.reference_codes.size(); ++i) {
    const int size = i % groups == 0 ? first_size : other_size;
    if (voice.reference_codes[i] < 0 || voice.reference_codes[i] >= size) {
      return Status::InvalidArgument("reference code " + std::to_string(voice.reference_codes[i]) + " of frame " +
                                     std::to_string(i / groups) + ", group " + std::to_string(i % groups) +
                                     " is not in the codebook's range of 0 to " + std::to_string(size - 1));
    }
  }
  if (voice.reference_text.empty()) {
    return Status::InvalidArgument(
        "the cloned voice has reference codes but no reference text: give what the recording says, or the "
        "vector alone");
  }
  plan->reference_frames = voice.reference_codes.size() / groups;
  QTTS_ASSIGN_OR_RETURN(plan->reference_ids, TurnIds("assistant", voice.reference_text));
  plan->reference_ids.erase(plan->reference_ids.begin(), plan->reference_ids.begin() + kRoleIds);
  return Status::Ok();
}

Result<Prompt> PromptBuilder::Build(const Request& request, std::span<const int32_t> text_ids,
                                    bool text_complete) const {
  QTTS_ASSIGN_OR_RETURN(Plan plan, MakePlan(request));
  if (text_complete && text_ids.size() <= kRoleIds) return Status::InvalidArgument("there is no text to speak");
  if (!text_complete && !plan.streaming) {
    return Status::InvalidArgument("the non-streaming prompt layout needs the whole text");
  }
  if (!text_complete && text_ids.size() < IdsNeeded(plan)) {
    return Status::InvalidArgument("the prompt needs " + std::to_string(IdsNeeded(plan)) + " text ids to begin with, " +
                                   std::to_string(text_ids.size()) + " are there");
  }
  const std::span<const int32_t> role = text_ids.first(kRoleIds);
  const std::span<const int32_t> text = text_ids.subspan(kRoleIds);
  const TalkerConfig& talker = config_.talker;

  Prompt prompt;
  prompt.text_complete = text_complete;
  prompt.pad_text_id = config_.tts_pad_token_id;
  std::vector<PromptRow>& rows = prompt.rows;

  // The head of the prompt, the same in all modes (spec 3.3).
  AppendTextRows(plan.instruct_ids, &rows);
  AppendTextRows(std::span(&config_.im_start_token_id, 1), &rows);
  AppendTextRows(role, &rows);
  const bool usual_role = role.back() == newline_id_;
  const size_t rows_before_newline = rows.size() - 1;
  const auto pad_row = [&](int codec_id) { rows.push_back({config_.tts_pad_token_id, {codec_id}, false}); };
  pad_row(plan.language_id < 0 ? talker.codec_nothink_id : talker.codec_think_id);
  pad_row(talker.codec_think_bos_id);
  if (plan.language_id >= 0) pad_row(plan.language_id);
  pad_row(talker.codec_think_eos_id);
  if (plan.speaker_id >= 0) pad_row(plan.speaker_id);
  if (plan.voice != nullptr && !plan.voice->designed()) {
    rows.push_back({config_.tts_pad_token_id, {}, true});
    prompt.x_vector = plan.voice->x_vector;
  }
  rows.push_back({config_.tts_bos_token_id, {talker.codec_pad_id}, false});

  // Text side of the remaining rows (spec 3.4): X. It begins with the reference text.
  std::vector<int32_t> text_side = plan.reference_ids;
  text_side.insert(text_side.end(), text.begin(), text.end());
  if (text_complete) text_side.push_back(config_.tts_eos_token_id);
  // Codec side of the remaining rows: D, the start row and the reference's frames.
  std::vector<std::vector<int32_t>> codec_side{{talker.codec_bos_id}};
  if (plan.reference_frames > 0) {
    const auto groups = static_cast<ptrdiff_t>(talker.num_code_groups);
    prompt.reference_codes = plan.voice->reference_codes;
    for (auto frame = prompt.reference_codes.begin(); frame != prompt.reference_codes.end(); frame += groups) {
      codec_side.emplace_back(frame, frame + groups);
    }
  }

  prompt.text_begin = rows.size() + plan.reference_ids.size();
  size_t constant_text_rows = plan.reference_ids.size();
  if (plan.streaming) {
    // Both sides in parallel. Left-over text goes with the frames; a shorter text is padded with PAD.
    for (size_t i = 0; i < codec_side.size(); ++i) {
      rows.push_back({i < text_side.size() ? text_side[i] : config_.tts_pad_token_id, codec_side[i], false});
    }
    constant_text_rows = std::min(constant_text_rows, codec_side.size());
    const size_t used = std::min(text_side.size(), codec_side.size());
    prompt.trailing_text.assign(text_side.begin() + static_cast<ptrdiff_t>(used), text_side.end());
    prompt.constant_rows = rows.size() - codec_side.size() + constant_text_rows;
  } else {
    // First the whole text, then the codec side.
    for (const int32_t id : text_side) rows.push_back({id, {talker.codec_pad_id}, false});
    for (std::vector<int32_t>& codes : codec_side) rows.push_back({config_.tts_pad_token_id, std::move(codes), false});
    prompt.constant_rows = rows.size() - codec_side.size() - text_side.size() + constant_text_rows;
  }
  if (!usual_role) prompt.constant_rows = rows_before_newline;

  const auto positions = static_cast<size_t>(std::max(talker.transformer.max_positions, 0));
  if (rows.size() >= positions) {
    return Status::ResourceExhausted("the prompt takes " + std::to_string(rows.size()) + " positions of the model's " +
                                     std::to_string(positions) + " and leaves none for speech: shorten the text" +
                                     (plan.reference_frames > 0 ? " or the reference" : ""));
  }
  return prompt;
}

}  // namespace qtts
