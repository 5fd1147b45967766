// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/frame_buffers.h"

#include <algorithm>
#include <optional>

#include "runtime/device_wait.h"

namespace qtts::cuda {
Result<std::unique_ptr<FrameBuffers>> FrameBuffers::Allocate(const Network& network, const FrameCapacity& capacity) {
  auto buffers = std::make_unique<FrameBuffers>();
  buffers->rows = capacity.rows;
  buffers->prompt_rows = capacity.prompt_rows;
  buffers->row_splits = capacity.row_splits;
  const auto slots = static_cast<size_t>(capacity.slots);
  QTTS_RETURN_IF_ERROR(buffers->AllocateUtterances(network, slots));
  QTTS_RETURN_IF_ERROR(buffers->AllocateRows(network, capacity));
  QTTS_RETURN_IF_ERROR(buffers->AllocatePrompts(network, slots));
  return buffers;
}

Status FrameBuffers::AllocateUtterances(const Network& network, size_t num_slots) {
  const TransformerConfig& t = network.talker.config;
  const auto groups = static_cast<size_t>(network.groups);
  const auto num_rows = static_cast<size_t>(rows);
  std::vector<const void*> code_tables;
  for (const Table& table : network.code_tables) code_tables.push_back(table.data);
  QTTS_ASSIGN_OR_RETURN(const void** const table_array, NewArray<const void*>(code_tables.size()));
  QTTS_RETURN_IF_CUDA_ERROR(
      CopyAndWait(table_array, code_tables.data(), code_tables.size() * sizeof(void*), cudaMemcpyHostToDevice),
      kSpeaking);
  tables = {network.text_table.data, table_array, network.groups, t.hidden_size, network.text_table.stride};

  QTTS_ASSIGN_OR_RETURN(frame.slots, NewArray<int>(num_rows));
  QTTS_ASSIGN_OR_RETURN(frame.joining, NewArray<int>(num_rows));
  QTTS_ASSIGN_OR_RETURN(frame.positions, NewArray<int>(num_rows));
  QTTS_ASSIGN_OR_RETURN(frame.codes, NewArray<int>(num_rows * groups));
  QTTS_ASSIGN_OR_RETURN(frame.live, NewArray<int>(2));
  QTTS_ASSIGN_OR_RETURN(frame.frame, NewArray<unsigned>(1));
  QTTS_ASSIGN_OR_RETURN(frame.finished, NewArray<unsigned>(1));
  QTTS_ASSIGN_OR_RETURN(hand_over.slots, NewArray<int>(kHandOvers * num_rows));
  QTTS_ASSIGN_OR_RETURN(hand_over.codes, NewArray<int>(kHandOvers * num_rows * groups));
  QTTS_ASSIGN_OR_RETURN(hand_over.frames, NewArray<unsigned>(kHandOvers));
  QTTS_ASSIGN_OR_RETURN(slots, NewArray<SlotState>(num_slots));
  history_words = (network.config.talker.vocab_size + 31) / 32;
  QTTS_ASSIGN_OR_RETURN(history, NewArray<unsigned>(num_slots * static_cast<size_t>(history_words)));
  QTTS_ASSIGN_OR_RETURN(first_x, NewArray<float>(num_slots * static_cast<size_t>(Padded(t.hidden_size))));
  if (const std::optional<AlignmentHead>& head = network.config.description.alignment) {
    aligned = {.layer = head->layer, .head = head->head};
    QTTS_ASSIGN_OR_RETURN(aligned.queries, NewArray<float>(num_slots * static_cast<size_t>(t.head_dim)));
    QTTS_ASSIGN_OR_RETURN(frame.windows, NewArray<TextWindow>(num_rows));
  }
  return Status::Ok();
}

Status FrameBuffers::AllocateRows(const Network& network, const FrameCapacity& capacity) {
  const TransformerConfig& t = network.talker.config;
  const TransformerConfig& p = network.predictor.config;
  const size_t element = ElementBytes(network.precision);
  const auto num_rows = static_cast<size_t>(rows);
  const size_t pairs = 2 * num_rows;  // the predictor's first pass has two rows a stream
  const auto talker_rows = static_cast<size_t>(std::max(rows, prompt_rows));
  QTTS_ASSIGN_OR_RETURN(x, NewArray<float>(talker_rows * static_cast<size_t>(Padded(t.hidden_size))));
  QTTS_ASSIGN_OR_RETURN(predictor_x, NewArray<float>(pairs * static_cast<size_t>(Padded(p.hidden_size))));
  const auto qkv_width = [](const TransformerConfig& c) { return static_cast<size_t>(c.q_width() + 2 * c.kv_width()); };
  QTTS_ASSIGN_OR_RETURN(qkv, NewArray<float>(std::max(talker_rows * qkv_width(t), pairs * qkv_width(p))));
  int widest = 0;  // of all products' inputs
  for (const TransformerConfig& c : {t, p}) {
    widest = std::max({widest, Padded(c.hidden_size), Padded(c.q_width()), Padded(c.intermediate_size)});
  }
  normed.columns = widest;
  const size_t most_rows = std::max(talker_rows, pairs);
  QTTS_ASSIGN_OR_RETURN(normed.x, NewArray<char>(most_rows * static_cast<size_t>(widest) * element));
  QTTS_ASSIGN_OR_RETURN(normed.factors, NewArray<float>(most_rows));
  if (network.library != nullptr) {
    const auto sums = static_cast<size_t>(network.library->most_outputs());
    QTTS_ASSIGN_OR_RETURN(normed.sums, NewArray<float>(most_rows * sums));
  }
  for (const Part part : {Part::kTalker, Part::kPredictor}) {
    const TransformerConfig& c = network.stack(part).config;
    const size_t part_rows = part == Part::kTalker ? talker_rows : pairs;
    const auto bytes_of = [&](int width) { return part_rows * static_cast<size_t>(Padded(width)) * element; };
    QTTS_ASSIGN_OR_RETURN(attended[static_cast<size_t>(part)], NewArray<char>(bytes_of(c.q_width())));
    QTTS_ASSIGN_OR_RETURN(inner[static_cast<size_t>(part)], NewArray<char>(bytes_of(c.intermediate_size)));
  }
  QTTS_ASSIGN_OR_RETURN(talker_logits, NewArray<float>(num_rows * static_cast<size_t>(network.head(0).outputs)));
  QTTS_ASSIGN_OR_RETURN(predictor_logits, NewArray<float>(static_cast<size_t>(capacity.predictor_logits) *
                                                          static_cast<size_t>(network.heads.front().outputs)));
  QTTS_ASSIGN_OR_RETURN(attention_scratch.partial, NewArray<float>(PartialElements(t, row_splits, 1)));
  QTTS_ASSIGN_OR_RETURN(attention_scratch.tickets,
                        NewArray<unsigned>(std::max(TicketElements(t, static_cast<int64_t>(talker_rows)),
                                                    TicketElements(p, int64_t{2} * rows))));
  return Status::Ok();
}

Status FrameBuffers::AllocatePrompts(const Network& network, size_t num_slots) {
  for (int** const array : {&prompts.slots, &prompts.positions, &prompts.kept}) {
    QTTS_ASSIGN_OR_RETURN(*array, NewArray<int>(static_cast<size_t>(prompt_rows)));
  }
  pages_per_slot = static_cast<int>((network.max_positions + kPagePositions - 1) / kPagePositions);
  QTTS_ASSIGN_OR_RETURN(page_table, NewArray<void*>(num_slots * static_cast<size_t>(pages_per_slot)));
  return Status::Ok();
}

float* FrameBuffers::logits(const Network& network, int group, int rows_of_frame) const {
  if (group == 0) return talker_logits;
  if (rows_of_frame > kMaxRows) return predictor_logits;
  return predictor_logits + static_cast<int64_t>(group - 1) * kMaxRows * network.head(group).outputs;
}

}  // namespace qtts::cuda
