// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_FORCED_TALKER_H_
#define QTTS_TOOLS_FORCED_TALKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cpu/embedder.h"
#include "cpu/talker.h"
#include "cpu/text_attention.h"
#include "cpu/thread_pool.h"
#include "prompt/prompt.h"
#include "qtts/status.h"

namespace qtts {

// Runs a checkpoint's talker over utterances whose codes are known (teacher forcing), in F32 on the CPU, and gives the
// attention of its heads. Not thread-safe.
class ForcedTalker {
 public:
  ForcedTalker(std::shared_ptr<const Checkpoint> checkpoint, int threads);

  // Sets the heads to watch, of which Row::queries has the queries.
  void Watch(std::span<const cpu::QueryHead> heads);

  // The row that chooses one frame of one of the utterances.
  struct Row {
    size_t utterance = 0;
    int64_t frame = 0;
    const cpu::KvCache* cache = nullptr;
    std::span<const float> queries;  // [watched heads][head_dim]
    std::span<const float> logits;   // of codebook 0
  };
  // Runs `prompts`, each over all frames of `codes` ([frames][groups]), and calls `on_row` for each frame of each.
  // kInvalidArgument for codes outside of the tables, or more frames than the model has positions.
  Status Run(std::span<const Prompt> prompts, std::span<const int32_t> codes,
             const std::function<void(const Row&)>& on_row);

  const TransformerConfig& config() const { return checkpoint_->config().talker.transformer; }

 private:
  const std::shared_ptr<const Checkpoint> checkpoint_;
  cpu::ThreadPool pool_;
  cpu::Embedder embedder_;
  cpu::Talker talker_;
};

}  // namespace qtts

#endif  // QTTS_TOOLS_FORCED_TALKER_H_
