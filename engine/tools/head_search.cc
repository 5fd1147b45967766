// SPDX-License-Identifier: LGPL-2.1-or-later
#include "head_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "alignment/text_path.h"

namespace qtts {
namespace {

// Scores this close are alike.
constexpr double kAlike = 0.02;
// Words of an utterance that are exchanged: each takes a context of its own.
constexpr size_t kWordsAtOnce = 6;
// The first frame with this share of the largest divergence is where a word begins: in its middle, on average.
constexpr double kChangedShare = 0.3;
constexpr double kMinDivergence = 0.05;
constexpr double kFrameMs = 80;
// The codec's sound lies so much before the frames that name it: measured on the bundled voice, whose offset by sound
// is 80 ms and by the exchange of words 120.
constexpr double kCodecLeadMs = 40;

int64_t TextEnd(const SpokenUtterance& utterance) {
  return static_cast<int64_t>(utterance.prompt.text_begin + utterance.token_ends.size()) + 1;
}

// Probabilities of the likeliest text token, and of all text, in one row.
struct TextAttention {
  int64_t likeliest = -1;  // token
  double mass = 0;
};

TextAttention AttentionOf(const std::vector<float>& scores, int64_t first, int64_t text_begin, int64_t text_end) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  double all = 0;
  double text = 0;
  TextAttention attention;
  float best = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const float p = std::exp(scores[i] - largest);
    all += p;
    const int64_t position = first + static_cast<int64_t>(i);
    if (position < text_begin || position >= text_end) continue;
    text += p;
    if (p > best) {
      best = p;
      attention.likeliest = position - text_begin;
    }
  }
  attention.mass = text / all;
  return attention;
}

std::vector<double> Softmax(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(static_cast<double>(logits[i] - largest));
  for (double& x : p) x /= sum;
  return p;
}

double Divergence(const std::vector<double>& p, const std::vector<double>& q) {
  constexpr double kTiny = 1e-12;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] * std::log((p[i] + kTiny) / (q[i] + kTiny));
  return sum;
}

// Returns the tokens of a word: [first, last].
std::pair<size_t, size_t> TokensOf(const SpokenUtterance& utterance, const TextRange& word) {
  const auto& ends = utterance.token_ends;
  const auto first = std::upper_bound(ends.begin(), ends.end(), word.begin) - ends.begin();
  const auto last = std::lower_bound(ends.begin(), ends.end(), word.end) - ends.begin();
  return {static_cast<size_t>(first), std::min(static_cast<size_t>(last), ends.size() - 1)};
}

// Returns the text id at position `position` of the talker, in the prompt or behind it.
int32_t* TextIdAt(Prompt* prompt, size_t position) {
  if (position < prompt->rows.size()) return &prompt->rows[position].text_id;
  return &prompt->trailing_text[position - prompt->rows.size()];
}

// Returns the utterance's prompt with the tokens [first, last] exchanged for others of the text, as far from them as
// possible.
Prompt Exchange(const SpokenUtterance& utterance, size_t first, size_t last) {
  Prompt prompt = utterance.prompt;
  const size_t tokens = utterance.token_ends.size();
  for (size_t token = first; token <= last; ++token) {
    size_t other = (token + tokens / 2) % tokens;
    const int32_t own = *TextIdAt(&prompt, prompt.text_begin + token);
    for (size_t tries = 0; tries < tokens; ++tries, other = (other + 1) % tokens) {
      const int32_t id = *TextIdAt(&prompt, prompt.text_begin + other);
      if (id == own || (other >= first && other <= last)) continue;
      *TextIdAt(&prompt, prompt.text_begin + token) = id;
      break;
    }
  }
  return prompt;
}

// Computes the time at which the head moves to each token, in frames, by the path that speech takes.
Status FollowHead(ForcedTalker* talker, const SpokenUtterance& utterance, const HeadScore& head, TextPath* path) {
  const cpu::QueryHead watched{head.layer, head.head};
  talker->Watch({&watched, 1});
  QTTS_RETURN_IF_ERROR(talker->Run({&utterance.prompt, 1}, utterance.codes, [&](const ForcedTalker::Row& row) {
    const auto begin = static_cast<int32_t>(utterance.prompt.text_begin);
    const auto end = static_cast<int32_t>(std::min(TextEnd(utterance), row.cache->length()));
    const int32_t first = path->WindowBegin(row.frame);
    const TextWindow window{begin, end, std::min(begin + first, end - 1)};
    path->Add(window.begin - begin, cpu::ScoreText(*row.cache, talker->config(), watched, row.queries, window));
  }));
  path->Finish();
  return Status::Ok();
}

// Computes, by word, how far the distribution of each frame's first code departs from the usual one when the word's
// tokens are exchanged.
Result<std::vector<std::vector<double>>> ExchangeWords(ForcedTalker* talker, const SpokenUtterance& utterance,
                                                       std::span<const TextRange> words) {
  std::vector<Prompt> prompts{utterance.prompt};
  for (const TextRange& word : words) {
    const auto [first, last] = TokensOf(utterance, word);
    prompts.push_back(Exchange(utterance, first, last));
  }
  std::vector<double> usual;
  std::vector<std::vector<double>> divergences(words.size());
  talker->Watch({});
  QTTS_RETURN_IF_ERROR(talker->Run(prompts, utterance.codes, [&](const ForcedTalker::Row& row) {
    std::vector<double> p = Softmax(row.logits);
    if (row.utterance == 0) {
      usual = std::move(p);
    } else {
      divergences[row.utterance - 1].push_back(Divergence(usual, p));
    }
  }));
  return divergences;
}

// Adds the distances from the head's moves to the beginnings of the words of one utterance, in ms.
Status AddOffsets(ForcedTalker* talker, const SpokenUtterance& utterance, const HeadScore& head,
                  std::vector<double>* offsets) {
  TextPath path;
  QTTS_RETURN_IF_ERROR(FollowHead(talker, utterance, head, &path));
  // The first word begins with the sound.
  for (size_t begin = 1; begin < utterance.words.size(); begin += kWordsAtOnce) {
    const size_t count = std::min(kWordsAtOnce, utterance.words.size() - begin);
    const std::span<const TextRange> words = std::span(utterance.words).subspan(begin, count);
    QTTS_ASSIGN_OR_RETURN(const auto divergences, ExchangeWords(talker, utterance, words));
    for (size_t i = 0; i < count; ++i) {
      const auto token = static_cast<int32_t>(TokensOf(utterance, words[i]).first);
      const std::vector<double>& divergence = divergences[i];
      if (token > path.position() || divergence.empty()) continue;
      const double largest = *std::max_element(divergence.begin(), divergence.end());
      if (largest < kMinDivergence) continue;
      const auto changed = std::find_if(divergence.begin(), divergence.end(),
                                        [largest](double d) { return d >= kChangedShare * largest; });
      const double begins = (static_cast<double>(changed - divergence.begin()) + 0.5) * kFrameMs;
      offsets->push_back(begins - path.StartOf(token) * kFrameMs);
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<HeadScore>> ScoreHeads(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances) {
  const TransformerConfig& config = talker->config();
  std::vector<cpu::QueryHead> heads;
  std::vector<HeadScore> scores;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (int head = 0; head < config.num_heads; ++head) {
      heads.push_back({layer, head});
      scores.push_back({layer, head, 0, 0});
    }
  }
  talker->Watch(heads);
  for (const SpokenUtterance& utterance : utterances) {
    std::vector<int64_t> before(heads.size(), -1);
    std::vector<HeadScore> sums = scores;
    for (HeadScore& sum : sums) sum.mass = sum.monotonicity = 0;
    int64_t frames = 0;
    QTTS_RETURN_IF_ERROR(talker->Run({&utterance.prompt, 1}, utterance.codes, [&](const ForcedTalker::Row& row) {
      ++frames;
      const auto head_dim = static_cast<size_t>(config.head_dim);
      std::vector<float> positions;
      for (size_t h = 0; h < heads.size(); ++h) {
        const int64_t first =
            cpu::ScorePositions(*row.cache, config, heads[h], row.queries.subspan(h * head_dim, head_dim), &positions);
        const TextAttention attention =
            AttentionOf(positions, first, static_cast<int64_t>(utterance.prompt.text_begin), TextEnd(utterance));
        sums[h].mass += attention.mass;
        const int64_t move = attention.likeliest - before[h];
        if (row.frame > 0 && move >= 0 && move <= TextPath::kMaxStep) sums[h].monotonicity += 1;
        before[h] = attention.likeliest;
      }
    }));
    const auto count = static_cast<double>(utterances.size());
    for (size_t h = 0; h < heads.size() && frames > 1; ++h) {
      scores[h].mass += sums[h].mass / static_cast<double>(frames) / count;
      scores[h].monotonicity += sums[h].monotonicity / static_cast<double>(frames - 1) / count;
    }
  }
  return scores;
}

Result<std::optional<int>> FindOffset(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances,
                                      const HeadScore& head) {
  std::vector<double> offsets;
  for (const SpokenUtterance& utterance : utterances) {
    QTTS_RETURN_IF_ERROR(AddOffsets(talker, utterance, head, &offsets));
  }
  if (offsets.empty()) return std::optional<int>();
  const auto middle = offsets.begin() + static_cast<ptrdiff_t>(offsets.size() / 2);
  std::nth_element(offsets.begin(), middle, offsets.end());
  constexpr double kStep = 5;  // ms
  return std::optional(static_cast<int>(std::lround((*middle - kCodecLeadMs) / kStep) * std::lround(kStep)));
}

Result<std::optional<AlignmentHead>> ChooseHead(ForcedTalker* talker, const std::vector<SpokenUtterance>& utterances,
                                                const std::vector<HeadScore>& scores) {
  double best = 0;
  for (const HeadScore& score : scores) best = std::max(best, score.score());
  std::optional<AlignmentHead> chosen;
  if (best < kMinHeadScore) return chosen;
  for (const HeadScore& score : scores) {
    if (score.score() < std::max(best - kAlike, kMinHeadScore)) continue;
    QTTS_ASSIGN_OR_RETURN(const std::optional<int> offset, FindOffset(talker, utterances, score));
    if (!offset || (chosen && *offset >= chosen->offset_ms)) continue;
    chosen = AlignmentHead{score.layer, score.head, *offset};
  }
  return chosen;
}

}  // namespace qtts
