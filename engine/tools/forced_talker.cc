// SPDX-License-Identifier: LGPL-2.1-or-later
#include "forced_talker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cpu/thread_choice.h"

namespace qtts {

ForcedTalker::ForcedTalker(std::shared_ptr<const Checkpoint> checkpoint, int threads)
    : checkpoint_(std::move(checkpoint)),
      pool_(cpu::InitialThreads(threads)),
      embedder_(checkpoint_->talker(), checkpoint_->predictor(), pool_),
      talker_(checkpoint_->config().talker, checkpoint_->talker(), pool_) {}

void ForcedTalker::Watch(std::span<const cpu::QueryHead> heads) { talker_.Watch(heads); }

Status ForcedTalker::Run(std::span<const Prompt> prompts, std::span<const int32_t> codes,
                         const std::function<void(const Row&)>& on_row) {
  const auto groups = static_cast<size_t>(checkpoint_->config().talker.num_code_groups);
  const size_t frames = codes.size() / groups;
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t rows = embedder_.code_rows(static_cast<int64_t>(i % groups));
    if (codes[i] < 0 || codes[i] >= rows) {
      return Status::InvalidArgument("code " + std::to_string(codes[i]) + " of frame " + std::to_string(i / groups) +
                                     " is not in 0.." + std::to_string(rows - 1));
    }
  }
  for (const Prompt& prompt : prompts) {
    if (prompt.rows.size() + frames > static_cast<size_t>(talker_.max_positions())) {
      return Status::InvalidArgument(std::to_string(frames) + " frames and a prompt of " +
                                     std::to_string(prompt.rows.size()) + " rows are more than the model's " +
                                     std::to_string(talker_.max_positions()) + " positions");
    }
  }
  const auto hidden = static_cast<size_t>(talker_.hidden_size());
  const auto vocab = static_cast<size_t>(talker_.vocab_size());
  const size_t count = prompts.size();
  std::vector<cpu::KvCache> caches;
  std::vector<float> inputs(count * hidden);
  std::vector<float> logits(count * vocab);
  std::vector<float> queries(count * talker_.query_size());
  const auto query_of = [&](size_t i) { return queries.data() + i * talker_.query_size(); };
  for (size_t i = 0; i < count; ++i) {
    const Prompt& prompt = prompts[i];
    caches.push_back(talker_.NewCache());
    std::vector<float> rows(prompt.rows.size() * hidden);
    embedder_.Embed(prompt.rows, prompt.x_vector, rows.data());
    talker_.Prefill(&caches.back(), rows, inputs.data() + i * hidden, logits.data() + i * vocab, query_of(i));
  }
  std::vector<cpu::KvCache*> pointers;
  pointers.reserve(caches.size());
  for (cpu::KvCache& cache : caches) pointers.push_back(&cache);
  for (size_t frame = 0; frame < frames; ++frame) {
    if (frame > 0) {
      std::vector<PromptRow> rows;
      for (const Prompt& prompt : prompts) {
        const auto& text = prompt.trailing_text;
        const std::span<const int32_t> last = codes.subspan((frame - 1) * groups, groups);
        rows.push_back({frame - 1 < text.size() ? text[frame - 1] : prompt.pad_text_id,
                        std::vector<int32_t>(last.begin(), last.end()), false});
      }
      embedder_.Embed(rows, {}, inputs.data());
      talker_.Step(pointers, inputs.data(), logits.data(), queries.data());
    }
    for (size_t i = 0; i < count; ++i) {
      on_row({i,
              static_cast<int64_t>(frame),
              &caches[i],
              {query_of(i), talker_.query_size()},
              {logits.data() + i * vocab, vocab}});
    }
  }
  return Status::Ok();
}

}  // namespace qtts
