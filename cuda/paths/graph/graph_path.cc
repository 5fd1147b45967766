// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/graph/graph_path.h"

#include <algorithm>

#include "frame/frame.h"
#include "gemm/gemm.h"
#include "runtime/cuda_error.h"
#include "runtime/device_wait.h"
#include "sample/sample.h"

namespace qtts::cuda {

Result<std::unique_ptr<GraphPath>> GraphPath::Create(const Network* network, FrameBuffers* buffers,
                                                     const DeviceNumbers* numbers, bool overlap, cudaStream_t stream) {
  std::unique_ptr<GraphPath> path(new GraphPath(network, buffers, numbers, overlap, stream));
  const TransformerConfig& c = network->predictor.config;
  const size_t page = static_cast<size_t>(network->groups) * static_cast<size_t>(c.num_layers) * 2 *
                      static_cast<size_t>(c.kv_width()) * ElementBytes(network->precision);
  const auto rows = static_cast<size_t>(buffers->rows);
  QTTS_ASSIGN_OR_RETURN(char* const cache, buffers->NewArray<char>(rows * page));
  std::vector<void*> pages;
  for (size_t r = 0; r < rows; ++r) pages.push_back(cache + r * page);
  QTTS_ASSIGN_OR_RETURN(path->predictor_page_table_, buffers->NewArray<void*>(rows));
  QTTS_RETURN_IF_CUDA_ERROR(
      CopyAndWait(path->predictor_page_table_, pages.data(), pages.size() * sizeof(void*), cudaMemcpyHostToDevice),
      kSpeaking);
  return path;
}

int GraphPath::RowBucket(int rows) {
  return *std::find_if(kRowBuckets.begin(), kRowBuckets.end(), [&](int bucket) { return bucket >= rows; });
}

std::vector<int> GraphPath::SplitBuckets() const {
  const int most = SplitsFor(network_->talker.config, network_->max_positions);
  std::vector<int> buckets;
  for (int splits = 1; splits < most; splits *= 4) buckets.push_back(splits);
  buckets.push_back(most);
  return buckets;
}

int GraphPath::SplitBucket(int64_t positions) const {
  const int needed = SplitsFor(network_->talker.config, std::min(positions, network_->max_positions));
  const std::vector<int> buckets = SplitBuckets();
  return *std::lower_bound(buckets.begin(), buckets.end(), needed);
}

bool GraphPath::Fits(int rows, int splits) const {
  return rows * splits <= buffers_->row_splits || !NeedsSplits(numbers_->attention, rows);
}

int GraphPath::MaxRows(int splits) const {
  int rows = 1;
  for (const int bucket : kRowBuckets) {
    if (bucket <= buffers_->rows && Fits(bucket, splits)) rows = bucket;
  }
  return rows;
}

int GraphPath::RowBucket(int rows, int splits) const {
  return *std::find_if(kRowBuckets.begin(), kRowBuckets.end(),
                       [&](int bucket) { return bucket >= rows && Fits(bucket, splits); });
}

int GraphPath::GraphSplits(int rows, int splits) const { return NeedsSplits(numbers_->attention, rows) ? splits : 1; }

int GraphPath::MaxPromptRows(int splits) const {
  int most = 0;
  for (int rows = kMinRows; rows <= buffers_->prompt_rows; rows = PromptBucket(rows + 1)) {
    if (Fits(rows, splits)) most = rows;
  }
  return most;
}

int GraphPath::PromptBucket(int rows, int splits) const {
  int bucket = PromptBucket(rows);
  while (!Fits(bucket, splits)) bucket = PromptBucket(bucket + 1);
  return bucket;
}

// Graphs of few rows are many: these prompts are the common ones.
int GraphPath::PromptBucket(int rows) {
  constexpr int kManyRowsStep = 32;
  const int step = rows <= kMaxRows ? kMinRows : kManyRowsStep;
  return (rows + step - 1) / step * step;
}

int64_t GraphPath::PositionsOfAllRows() const {
  const std::vector<int> buckets = SplitBuckets();
  if (MaxRows(buckets.back()) == buffers_->rows) return network_->max_positions;
  int64_t positions = 0;
  for (const int splits : buckets) {
    if (MaxRows(splits) == buffers_->rows) positions = int64_t{splits} * kSplitPositions;
  }
  return positions;
}

GraphPath::Pass GraphPath::TalkerPass(FrameStart start, int rows, int splits) const {
  Pass pass;
  pass.sequence.slots = buffers_->frame.slots;
  pass.sequence.positions = buffers_->frame.positions;
  pass.sequence.rows = rows;
  pass.pages = buffers_->talker_pages();
  pass.streams = rows;
  pass.splits = splits;
  pass.live = start == FrameStart::kInput ? buffers_->frame.live : nullptr;
  pass.choosers = buffers_->frame.slots;
  return pass;
}

// The first pass runs positions 0 (the talker's state) and 1 (its code); later ones a code each.
GraphPath::Pass GraphPath::PredictorPass(int group, int rows) const {
  Pass pass;
  pass.sequence.per_sequence = group == 1 ? 2 : 1;
  pass.sequence.first_position = group == 1 ? 0 : group;
  pass.sequence.rows = static_cast<int64_t>(rows) * pass.sequence.per_sequence;
  pass.pages = {predictor_page_table_, 1, network_->groups};
  pass.streams = rows;
  pass.live = buffers_->frame.live + 1;
  return pass;
}

Status GraphPath::Enqueue(FrameStart start, int rows, int splits) const {
  const Launcher launch(stream_, numbers_, overlap_);
  const Pass talker = TalkerPass(start, rows, splits);
  if (start == FrameStart::kInput) Enqueue(launch, LayerOperations(*network_, 0), talker);
  if (start == FrameStart::kInput && MayJoin(rows)) {
    const int width = network_->hidden_size();
    JoinRows(launch, buffers_->frame, buffers_->first_x, width, Padded(width), rows, buffers_->x);
  }
  Enqueue(launch, EndOperations(*network_, 0), talker);
  for (int group = 1; group < network_->groups; ++group) {
    const Pass pass = PredictorPass(group, rows);
    Enqueue(launch, LayerOperations(*network_, group), pass);
    Enqueue(launch, EndOperations(*network_, group), pass);
  }
  return CudaStatus(launch.error, kSpeaking);
}

Status GraphPath::EnqueuePrompt(int rows, int splits, PromptRowsKept kept) const {
  const Launcher launch(stream_, numbers_, overlap_);
  Pass pass;
  pass.sequence.slots = buffers_->prompts.slots;
  pass.sequence.positions = buffers_->prompts.positions;
  pass.sequence.appended = true;
  pass.sequence.rows = rows;
  pass.pages = buffers_->talker_pages();
  pass.splits = splits;
  const int may_be_kept = kept == PromptRowsKept::kLast ? kMinRows : rows;
  pass.rows_left_out = rows - may_be_kept;
  pass.choosers = buffers_->prompts.kept;
  Enqueue(launch, LayerOperations(*network_, 0), pass);
  const int width = network_->hidden_size();
  KeepRows(launch, buffers_->prompts.kept + pass.rows_left_out,
           buffers_->x + static_cast<int64_t>(pass.rows_left_out) * Padded(width), width, Padded(width), may_be_kept,
           buffers_->first_x);
  return CudaStatus(launch.error, kSpeaking);
}

void GraphPath::Enqueue(const Launcher& launch, const std::vector<FrameOperation>& operations, const Pass& pass) const {
  for (const FrameOperation& operation : operations) {
    switch (operation.entry.operation) {
      case Operation::kAttend:
        EnqueueAttention(launch, operation, pass);
        break;
      case Operation::kSample:
        EnqueueSample(launch, operation, pass.streams);
        break;
      case Operation::kQkv:
        // The word is read before the previous kernel ends: the first kernel cannot rely on it.
        EnqueueProduct(launch, operation, pass, operation.layer == 0 ? nullptr : pass.live);
        break;
      case Operation::kProject:
        // Where there is none sampling takes the hidden state as it is.
        if (!network_->has_projection()) break;
        [[fallthrough]];
      default:
        EnqueueProduct(launch, operation, pass, pass.live);
    }
  }
}

int64_t GraphPath::RowsLeftOut(const FrameOperation& operation, const Pass& pass) const {
  const bool last_layer = operation.layer + 1 == network_->stack(operation.part).config.num_layers;
  const bool from_keys_on = operation.entry.operation != Operation::kQkv;
  return last_layer && from_keys_on ? pass.rows_left_out : 0;
}

GraphPath::Rows GraphPath::RowsOf(Place place, const FrameOperation& operation, const Pass& pass) const {
  const TransformerConfig& c = network_->stack(operation.part).config;
  const auto part = static_cast<size_t>(operation.part);
  switch (place) {
    case Place::kResidual: {
      float* const x = operation.part == Part::kTalker ? buffers_->x : buffers_->predictor_x;
      const int width = Padded(c.hidden_size);
      if (operation.entry.rows == OperationRows::kLastOfSequence) {
        const int apart = pass.sequence.per_sequence;
        return {x + static_cast<ptrdiff_t>(apart - 1) * width, width * apart};
      }
      return {x + RowsLeftOut(operation, pass) * width, width};
    }
    case Place::kQkv:
      return {buffers_->qkv, c.q_width() + 2 * c.kv_width()};
    case Place::kAttended:
      return {buffers_->attended[part], Padded(c.q_width())};
    case Place::kInner:
      return {buffers_->inner[part], Padded(c.intermediate_size)};
    case Place::kPredictorInput:
      return {buffers_->predictor_x, 2 * Padded(network_->predictor.config.hidden_size)};
    case Place::kLogits:
      return {buffers_->logits(*network_, operation.group, pass.streams), network_->head(operation.group).outputs};
    case Place::kIds:
      break;
  }
  return {};
}

bool GraphPath::IsSwizzled(Place place, const FrameOperation& operation, int64_t rows) const {
  if (operation.layer < 0) return false;
  const Layer& layer = network_->stack(operation.part).layers[static_cast<size_t>(operation.layer)];
  const auto takes = [&](const Matrix& matrix) { return TakesSwizzled(matrix, rows, numbers_->products); };
  if (place == Place::kAttended) return !NeedsSplits(numbers_->attention, rows) && takes(layer.o);
  return place == Place::kInner && takes(layer.gated) && takes(layer.down);
}

void GraphPath::EnqueueProduct(const Launcher& launch, const FrameOperation& operation, const Pass& pass,
                               const int* live) const {
  const Rows input = RowsOf(operation.entry.input, operation, pass);
  const Rows output = RowsOf(operation.entry.output, operation, pass);
  const bool last_of_sequence = operation.entry.rows == OperationRows::kLastOfSequence;
  GemmRows r;
  r.rows = last_of_sequence ? pass.streams : pass.sequence.rows - RowsLeftOut(operation, pass);
  r.normed = buffers_->normed;
  r.live = live;
  r.eps = network_->stack(operation.part).config.rms_norm_eps;
  r.x = input.data;
  r.x_stride = input.stride;
  r.norm = operation.norm;
  r.y = output.data;
  r.y_stride = output.stride;
  r.x_swizzled = IsSwizzled(operation.entry.input, operation, r.rows);
  r.y_swizzled = IsSwizzled(operation.entry.output, operation, r.rows);
  Gemm(launch, network_->precision, *operation.weights, r);
}

void GraphPath::EnqueueAttention(const Launcher& launch, const FrameOperation& operation, const Pass& pass) const {
  const Stack& stack = network_->stack(operation.part);
  const AttentionLayer& layer = stack.layers[static_cast<size_t>(operation.layer)].attention;
  const Rows qkv = RowsOf(operation.entry.input, operation, pass);
  const Rows attended = RowsOf(operation.entry.output, operation, pass);
  const auto* const rows = static_cast<const float*>(qkv.data);
  if (pass.sequence.appended) {
    AppendKeyValues(launch, network_->precision, stack.config, layer, pass.sequence, pass.pages, rows);
  }
  SequenceRows sequence = pass.sequence;
  const int64_t left_out = RowsLeftOut(operation, pass);
  if (left_out > 0) {
    sequence.rows -= left_out;
    sequence.slots += left_out;
    sequence.positions += left_out;
  }
  const AttendedRows y = {attended.data, attended.stride, IsSwizzled(operation.entry.output, operation, sequence.rows)};
  Attend(launch, network_->precision, stack.config, layer, sequence, pass.pages, buffers_->attention_scratch,
         pass.splits, rows + left_out * qkv.stride, y, pass.live);
  if (operation.part == Part::kTalker && operation.layer == buffers_->aligned.layer) {
    EnqueueQueries(launch, operation, pass);
  }
}

void GraphPath::EnqueueQueries(const Launcher& launch, const FrameOperation& operation, const Pass& pass) const {
  const Stack& stack = network_->stack(operation.part);
  const Rows qkv = RowsOf(Place::kQkv, operation, pass);
  SequenceRows choosers;
  choosers.slots = pass.choosers + pass.rows_left_out;
  choosers.positions = pass.sequence.positions + pass.rows_left_out;
  choosers.rows = pass.sequence.rows - pass.rows_left_out;
  KeepQueries(launch, stack.config, stack.layers[static_cast<size_t>(operation.layer)].attention, buffers_->aligned,
              choosers, static_cast<const float*>(qkv.data) + static_cast<ptrdiff_t>(pass.rows_left_out) * qkv.stride);
}

void GraphPath::EnqueueSample(const Launcher& launch, const FrameOperation& operation, int rows) const {
  const int group = operation.group;
  const int width = Padded(network_->predictor.config.hidden_size);
  float* const logits = buffers_->logits(*network_, group, rows);
  const int vocab = network_->head(group).outputs;
  if (operation.part == Part::kTalker) {
    const Stack& talker = network_->talker;
    const Table& table = network_->predictor_tables[0];
    TalkerSample sample;
    sample.logits = logits;
    sample.vocab = vocab;
    sample.eos_id = network_->config.talker.codec_eos_id;
    sample.history = buffers_->history;
    sample.history_words = buffers_->history_words;
    sample.x = buffers_->x;
    sample.norm = talker.norm;
    sample.eps = talker.config.rms_norm_eps;
    sample.hidden = network_->has_projection() ? nullptr : buffers_->predictor_x;
    sample.code = {table.data, network_->predictor.config.hidden_size, table.stride, buffers_->predictor_x + width,
                   2 * static_cast<int64_t>(width)};
    SampleTalker(launch, network_->precision, sample, buffers_->frame, buffers_->slots, network_->groups, rows);
    return;
  }
  PredictorSample sample;
  sample.logits = logits;
  sample.vocab = vocab;
  sample.group = group;
  if (group + 1 < network_->groups) {
    const Table& table = network_->predictor_tables[static_cast<size_t>(group)];
    sample.code = {table.data, table.width, table.stride, buffers_->predictor_x, width};
  }
  SamplePredictor(launch, network_->precision, sample, buffers_->frame, buffers_->slots, network_->groups, rows);
}

}  // namespace qtts::cuda
