// SPDX-License-Identifier: LGPL-2.1-or-later
#include "align.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "alignment/speech_aligner.h"
#include "api/speech_decoder.h"
#include "checkpoint/checkpoint.h"
#include "codes_file.h"
#include "description_file.h"
#include "forced_talker.h"
#include "head_search.h"
#include "print_json.h"
#include "prompt/prompt.h"
#include "qtts/engine.h"
#include "scheduler/text_part.h"
#include "text/tokenizer.h"
#include "voice/clone.h"
#include "words.h"

namespace qtts {
namespace {

// Spoken to find the head, unless --text has other lines. Short, so that a model without a head ends soon, and without
// a word that occurs twice.
constexpr const char* kLines[] = {
    "The old lighthouse keeper walked slowly down to the beach, because a strange boat had arrived during the night.",
    "Please remember to bring warm clothes, some water and your camera when we visit the mountains tomorrow.",
    "After seven years of careful work, the young engineer finally showed her new machine to everyone in town."};
constexpr int64_t kMaxFrames = 400;  // of a line: 32 s

// The texts and prompts of one checkpoint.
struct Model {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const PromptBuilder> prompts;
};

Result<Model> OpenModel(const ToolOptions& options) {
  const std::string& folder = options.arguments[0];
  QTTS_ASSIGN_OR_RETURN(const TokenizerPattern pattern, PatternOf(options));
  Model model;
  QTTS_ASSIGN_OR_RETURN(model.checkpoint, Checkpoint::Open(folder));
  QTTS_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Load(folder, pattern));
  QTTS_ASSIGN_OR_RETURN(PromptBuilder prompts, PromptBuilder::Create(model.checkpoint->config(), model.tokenizer));
  model.prompts = std::make_shared<const PromptBuilder>(std::move(prompts));
  return model;
}

// Returns the prompt, tokens and words of a request.
Result<SpokenUtterance> MakeUtterance(const Model& model, const Request& request) {
  QTTS_RETURN_IF_ERROR(model.prompts->Validate(request).status());
  TextPart part(model.prompts, model.tokenizer, /*aligned=*/true);
  QTTS_RETURN_IF_ERROR(part.AppendLast(request.text));
  if (part.blank()) return Status::InvalidArgument("align: the text is empty");
  QTTS_RETURN_IF_ERROR(part.Take(request));
  TextPart::News news = part.TakeNews();
  SpokenUtterance utterance;
  utterance.prompt = *std::move(news.prompt);
  utterance.prompt.trailing_text = std::move(news.text);
  utterance.token_ends = std::move(news.token_ends);
  utterance.words = std::move(news.words);
  return utterance;
}

// --- The head

Result<std::vector<SpokenUtterance>> SpeakLines(const ToolOptions& options, const Model& model) {
  std::vector<std::string> lines(std::begin(kLines), std::end(kLines));
  if (!options.text.empty()) {
    lines.clear();
    std::istringstream text(options.text);
    for (std::string line; std::getline(text, line);) {
      if (!line.empty()) lines.push_back(line);
    }
  }
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, options.arguments[0]));
  QTTS_ASSIGN_OR_RETURN(const auto engine, Engine::Load(engine_options));
  QTTS_ASSIGN_OR_RETURN(Request request, MakeRequest(options, engine->info().defaults));
  request.max_frames = kMaxFrames;
  std::vector<SpokenUtterance> utterances;
  for (const std::string& line : lines) {
    request.text = line;
    QTTS_ASSIGN_OR_RETURN(SpokenUtterance utterance, MakeUtterance(model, request));
    QTTS_ASSIGN_OR_RETURN(const auto stream, engine->Start(request));
    Frame frame;
    while (stream->Read(&frame) == ReadState::kFrame) {
      utterance.codes.insert(utterance.codes.end(), frame.codes.begin(), frame.codes.end());
    }
    QTTS_RETURN_IF_ERROR(stream->status());
    if (stream->end_reason() == EndReason::kMaxDuration) {
      std::cerr << "qtts-tool: warning: align: the model did not end \"" << line << "\" within " << kMaxFrames
                << " frames; another --seed may do better\n";
    }
    utterances.push_back(std::move(utterance));
    ++request.seed;
  }
  return utterances;
}

// Puts the head into the folder's qttssrc.json.
Status WriteHead(const std::string& folder, const AlignmentHead& head) {
  return WriteDescription(folder, "alignment",
                          {{"layer", head.layer}, {"head", head.head}, {"offset_ms", head.offset_ms}});
}

void PrintTable(const std::vector<HeadScore>& scores, const TransformerConfig& config) {
  std::printf("mass on the text x monotonicity of each head, %% (layers down, heads across)\n      ");
  for (int head = 0; head < config.num_heads; ++head) std::printf(" %3d", head);
  for (const HeadScore& score : scores) {
    if (score.head == 0) std::printf("\n%5d:", score.layer);
    std::printf(" %3.0f", 100 * score.score());
  }
  std::printf("\n\nbest        layer  head   mass  monotonicity  score\n");
  std::vector<HeadScore> best = scores;
  std::ranges::sort(best, std::ranges::greater(), &HeadScore::score);
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(kShown, best.size()); ++i) {
    std::printf("            %5d %5d  %5.3f  %12.3f  %5.3f\n", best[i].layer, best[i].head, best[i].mass,
                best[i].monotonicity, best[i].score());
  }
}

Json TableJson(const std::vector<HeadScore>& scores) {
  Json table = Json::array();
  for (const HeadScore& score : scores) {
    table.push_back({{"layer", score.layer},
                     {"head", score.head},
                     {"mass", score.mass},
                     {"monotonicity", score.monotonicity},
                     {"score", score.score()}});
  }
  return table;
}

Json HeadJson(const std::optional<AlignmentHead>& head) {
  if (!head) return {};
  return {{"layer", head->layer}, {"head", head->head}, {"offset_ms", head->offset_ms}};
}

Status FindHead(const ToolOptions& options, const Model& model) {
  QTTS_ASSIGN_OR_RETURN(const std::vector<SpokenUtterance> utterances, SpeakLines(options, model));
  ForcedTalker talker(model.checkpoint, static_cast<int>(options.threads.value_or(0)));
  QTTS_ASSIGN_OR_RETURN(const std::vector<HeadScore> scores, ScoreHeads(&talker, utterances));
  QTTS_ASSIGN_OR_RETURN(const std::optional<AlignmentHead> found, ChooseHead(&talker, utterances, scores));
  const std::optional<AlignmentHead>& used = model.checkpoint->config().description.alignment;
  if (options.json) {
    PrintJson({{"alignment", HeadJson(found)}, {"used_so_far", HeadJson(used)}, {"heads", TableJson(scores)}});
  } else {
    PrintTable(scores, talker.config());
    if (found) {
      std::printf("\nfound       layer %d, head %d, offset %d ms\n", found->layer, found->head, found->offset_ms);
    } else {
      std::printf("\nfound       none: no head has a score of %.1f\n", kMinHeadScore);
    }
    if (used) {
      std::printf("used so far layer %d, head %d, offset %d ms\n", used->layer, used->head, used->offset_ms);
    } else {
      std::printf("used so far none\n");
    }
  }
  if (!options.write) return Status::Ok();
  if (!found) return Status::Unsupported("align: no head follows the text, so there is nothing to write");
  return WriteHead(options.arguments[0], *found);
}

// --- A finished utterance

double Rounded(float value) {
  constexpr double kDigits = 1e4;
  return std::round(static_cast<double>(value) * kDigits) / kDigits;
}

Status AlignCodes(const ToolOptions& options, const Model& model) {
  const ModelConfig& config = model.checkpoint->config();
  if (!options.words.empty()) QTTS_RETURN_IF_ERROR(CheckWordsFile(options.words));
  if (!config.description.alignment) {
    return Status::Unsupported("align: this model has no alignment head; 'qtts-tool align " + options.arguments[0] +
                               " --write' finds it");
  }
  const AlignmentHead head = *config.description.alignment;
  QTTS_ASSIGN_OR_RETURN(const Request request, MakeRequest(options, config.defaults));
  QTTS_ASSIGN_OR_RETURN(SpokenUtterance utterance, MakeUtterance(model, request));
  std::ifstream file(options.codes, std::ios::binary);
  if (!file) return Status::NotFound(options.codes + ": cannot be read");
  QTTS_ASSIGN_OR_RETURN(utterance.codes,
                        ReadCodes(file, options.codes, config.codec.num_quantizers, config.codec.codebook_size));
  QTTS_ASSIGN_OR_RETURN(const EngineOptions engine_options, MakeEngineOptions(options, options.arguments[0]));
  QTTS_ASSIGN_OR_RETURN(const auto decoder, CreateSpeechDecoder(engine_options, model.checkpoint));
  QTTS_ASSIGN_OR_RETURN(const std::vector<float> pcm, decoder->Decode(utterance.codes));

  SpeechAligner aligner({.sample_rate = config.codec.sample_rate,
                         .samples_per_frame = config.codec.samples_per_frame,
                         .offset_ms = head.offset_ms});
  aligner.SetPrompt(static_cast<int64_t>(utterance.prompt.rows.size()), utterance.prompt.text_begin);
  aligner.AddText(utterance.token_ends, utterance.words);
  aligner.FinishText();
  ForcedTalker talker(model.checkpoint, engine_options.threads);
  const cpu::QueryHead watched{head.layer, head.head};
  talker.Watch({&watched, 1});
  WordsOfSpeech speech{request.text, {}, {}, 0};
  Json frames = Json::array();
  const auto samples = static_cast<size_t>(config.codec.samples_per_frame);
  QTTS_RETURN_IF_ERROR(talker.Run({&utterance.prompt, 1}, utterance.codes, [&](const ForcedTalker::Row& row) {
    const TextWindow window = aligner.WindowOf(row.frame);
    const TextScores scores = cpu::ScoreText(*row.cache, talker.config(), watched, row.queries, window);
    const auto sound = std::span(pcm).subspan(static_cast<size_t>(row.frame) * samples, samples);
    const std::vector<SpokenWord> words = aligner.AddFrame(window, scores, sound);
    speech.words.insert(speech.words.end(), words.begin(), words.end());
    if (!options.json) return;
    Json list = Json::array();
    for (const float score : scores.scores) list.push_back(Rounded(score));
    frames.push_back({{"begin", window.begin - window.text_begin},
                      {"scores", list},
                      {"log_sum", Rounded(scores.log_sum)},
                      {"mass", Rounded(scores.mass)}});
  }));
  aligner.FinishPart();
  const std::vector<SpokenWord> last = aligner.Finish();
  speech.words.insert(speech.words.end(), last.begin(), last.end());
  speech.report = aligner.report();
  speech.seconds = static_cast<double>(pcm.size()) / config.codec.sample_rate;
  if (!options.words.empty()) QTTS_RETURN_IF_ERROR(WriteWords(options.words, speech));
  if (options.json) {
    Json all = WordsJson(speech);
    all["prompt"] = {{"rows", utterance.prompt.rows.size()}, {"text_begin", utterance.prompt.text_begin}};
    all["token_ends"] = utterance.token_ends;
    all["frames"] = std::move(frames);
    PrintJson(all);
  } else {
    PrintWords(speech);
  }
  return Status::Ok();
}

}  // namespace

Status Align(const ToolOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const Model model, OpenModel(options));
  return options.codes.empty() ? FindHead(options, model) : AlignCodes(options, model);
}

}  // namespace qtts
