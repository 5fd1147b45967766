// SPDX-License-Identifier: LGPL-2.1-or-later
#include "language_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "runtime/device_table.h"
#include "sample/sample.h"

namespace qtts::cuda {
namespace {

// Whether the kernels can do it; an error that says what they cannot.
Status CheckAttention(const TransformerConfig& config, const char* part) {
  if (config.head_dim % 8 == 0 && config.head_dim <= kMaxHeadDim) return Status::Ok();
  return Status::Unsupported("the " + std::string(part) + "'s head_dim is " + std::to_string(config.head_dim) +
                             "; the GPU backend takes multiples of 8 up to " + std::to_string(kMaxHeadDim) +
                             ": choose device=cpu");
}

constexpr const char* kSpeaking = "making speech";
// Positions that a cache may have; a model that allows more is cut to this.
constexpr int64_t kMaxPositions = 1 << 17;
// Rows times splits of one call that there is scratch memory for.
constexpr int kRowSplits = 8192;
// Rows that can be had with any number of splits, and in steps of which prompts are recorded.
constexpr int kMinRows = 8;
constexpr size_t kPageBlockBytes = size_t{80} << 20;
// Positions ahead for which pages are taken, so that this happens long before they are needed.
constexpr int64_t kPagesAhead = 16;

Status CheckLimit(const char* what, int64_t value, int64_t limit) {
  if (value <= limit) return Status::Ok();
  return Status::Unsupported("the model's " + std::string(what) + " is " + std::to_string(value) +
                             "; the GPU backend takes up to " + std::to_string(limit) + ": choose device=cpu");
}

Status CheckId(const char* what, int64_t id, int64_t rows) {
  if (id >= 0 && id < rows) return Status::Ok();
  return Status::InvalidArgument("prompt: " + std::string(what) + " " + std::to_string(id) +
                                 " is not in the model's table of " + std::to_string(rows));
}

}  // namespace

LanguageModel::LanguageModel(const ModelConfig& config, const LanguageModelOptions& options, cudaStream_t stream)
    : config_(config),
      options_(options),
      stream_(stream),
      groups_(config.talker.num_code_groups),
      max_positions_(std::min<int64_t>(config.talker.transformer.max_positions, kMaxPositions)) {}

LanguageModel::~LanguageModel() { (void)Succeeds(cudaStreamSynchronize(stream_)); }

Result<std::unique_ptr<LanguageModel>> LanguageModel::Create(const Checkpoint& checkpoint,
                                                             const LanguageModelOptions& options, cudaStream_t stream) {
  const ModelConfig& config = checkpoint.config();
  QTTS_RETURN_IF_ERROR(CheckAttention(config.talker.transformer, "talker"));
  QTTS_RETURN_IF_ERROR(CheckAttention(config.predictor.transformer, "code predictor"));
  QTTS_RETURN_IF_ERROR(CheckLimit("talker vocabulary", config.talker.vocab_size, kMaxVocab));
  QTTS_RETURN_IF_ERROR(CheckLimit("code predictor vocabulary", config.predictor.vocab_size, kMaxVocab));
  QTTS_RETURN_IF_ERROR(CheckLimit("number of codes per frame", config.talker.num_code_groups, kMaxGroups));

  std::unique_ptr<LanguageModel> model(new LanguageModel(config, options, stream));
  int device = 0;
  int major = 0;
  QTTS_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device), "asking for the device");
  QTTS_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                            "asking for the device");
  model->overlap_ = options.overlap && major >= 9;
  QTTS_ASSIGN_OR_RETURN(model->numbers_, NumbersOfDevice(device));
  QTTS_RETURN_IF_ERROR(model->Load(checkpoint));
  QTTS_RETURN_IF_ERROR(model->AllocateState());
  if (options.path != FramePath::kGraph) {
    const Status status = model->PreparePersistent();
    const bool leave = options.path == FramePath::kBest && status.code() == StatusCode::kUnsupported;
    if (!leave) QTTS_RETURN_IF_ERROR(status);
  }
  QTTS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "loading the model"));
  return model;
}

// --- Loading -----------------------------------------------------------------------------------

Status LanguageModel::Load(const Checkpoint& checkpoint) {
  QTTS_ASSIGN_OR_RETURN(loader_, WeightLoader::Create(options_.precision, stream_));
  QTTS_RETURN_IF_ERROR(LoadText(checkpoint.talker()));
  QTTS_ASSIGN_OR_RETURN(talker_, LoadStack(config_.talker.transformer, checkpoint.talker().transformer));
  QTTS_ASSIGN_OR_RETURN(talker_head_, loader_->LoadMatrix(GemmKind::kNormStore, {&checkpoint.talker().codec_head}));
  QTTS_ASSIGN_OR_RETURN(predictor_, LoadStack(config_.predictor.transformer, checkpoint.predictor().transformer));
  for (const TensorView& head : checkpoint.predictor().heads) {
    QTTS_ASSIGN_OR_RETURN(Matrix matrix, loader_->LoadMatrix(GemmKind::kNormStore, {&head}));
    heads_.push_back(matrix);
  }
  QTTS_RETURN_IF_ERROR(LoadCodeTables(checkpoint));

  const auto bytes_of = [&](const Stack& stack) {
    size_t bytes = 0;
    for (const Layer& layer : stack.layers) {
      for (const Matrix* matrix : {&layer.qkv, &layer.o, &layer.gated, &layer.down}) {
        bytes += matrix->bytes(options_.precision);
      }
    }
    return bytes;
  };
  frame_bytes_ = bytes_of(talker_) + talker_head_.bytes(options_.precision) +
                 static_cast<size_t>(groups_ - 1) * bytes_of(predictor_);
  for (const Matrix& head : heads_) frame_bytes_ += head.bytes(options_.precision);
  if (projection_.data != nullptr) frame_bytes_ += projection_.bytes(options_.precision);
  return loader_->Finish();
}

Result<Stack> LanguageModel::LoadStack(const TransformerConfig& config, const TransformerWeights& weights) {
  Stack stack;
  stack.config = config;
  std::vector<float> frequencies;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    frequencies.push_back(1.0F / std::pow(config.rope_theta, exponent));
  }
  QTTS_ASSIGN_OR_RETURN(const float* const inverse_frequencies, loader_->LoadFloats(frequencies));
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const TransformerLayerWeights& w = weights.layers[i];
    Layer layer;
    std::vector<const TensorView*> biases;
    if (w.q.bias.has_value() && w.k.bias.has_value() && w.v.bias.has_value()) {
      biases = {&*w.q.bias, &*w.k.bias, &*w.v.bias};
    }
    QTTS_ASSIGN_OR_RETURN(layer.qkv,
                          loader_->LoadMatrix(GemmKind::kNormStore, {&w.q.weight, &w.k.weight, &w.v.weight}, biases));
    QTTS_ASSIGN_OR_RETURN(layer.o, loader_->LoadLinear(GemmKind::kAdd, w.o));
    QTTS_ASSIGN_OR_RETURN(layer.gated, loader_->LoadGated(w.gate, w.up));
    QTTS_ASSIGN_OR_RETURN(layer.down, loader_->LoadMatrix(GemmKind::kAdd, {&w.down}));
    QTTS_ASSIGN_OR_RETURN(layer.input_norm, loader_->LoadFloats(w.input_norm));
    QTTS_ASSIGN_OR_RETURN(layer.post_norm, loader_->LoadFloats(w.post_norm));
    layer.attention.layer = static_cast<int>(i);
    layer.attention.inverse_frequencies = inverse_frequencies;
    if (w.q_norm.has_value()) {
      QTTS_ASSIGN_OR_RETURN(layer.attention.q_norm, loader_->LoadFloats(*w.q_norm));
    }
    if (w.k_norm.has_value()) {
      QTTS_ASSIGN_OR_RETURN(layer.attention.k_norm, loader_->LoadFloats(*w.k_norm));
    }
    stack.layers.push_back(layer);
  }
  QTTS_ASSIGN_OR_RETURN(stack.norm, loader_->LoadFloats(weights.norm));
  return stack;
}

// The text table is projected once, here: 50 ms that would otherwise be two products more in every frame, and
// no more memory than the table itself.
Status LanguageModel::LoadText(const TalkerWeights& talker) {
  // A loader of its own: the projection's matrices are not needed afterwards.
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<WeightLoader> temporary,
                        WeightLoader::Create(options_.precision, stream_));
  QTTS_ASSIGN_OR_RETURN(const Matrix fc1, temporary->LoadLinear(GemmKind::kStoreSilu, talker.text_fc1));
  QTTS_ASSIGN_OR_RETURN(const Matrix fc2, temporary->LoadLinear(GemmKind::kStore, talker.text_fc2));
  QTTS_ASSIGN_OR_RETURN(text_table_, loader_->NewTable(talker.text_embedding.shape[0], fc2.outputs));
  constexpr int64_t kPiece = 4096;
  QTTS_ASSIGN_OR_RETURN(const Table inner, temporary->NewTable(kPiece, fc1.outputs));
  QTTS_RETURN_IF_ERROR(
      temporary->ForPieces(talker.text_embedding, kPiece, [&](int64_t first, int64_t rows, const Table& piece) {
        GemmRows r;
        r.x = piece.data;
        r.x_stride = piece.stride;
        r.y = inner.data;
        r.y_stride = inner.stride;
        r.rows = rows;
        Gemm(temporary->launch(), options_.precision, fc1, r);
        r.x = inner.data;
        r.x_stride = inner.stride;
        r.y = static_cast<char*>(text_table_.data) +
              static_cast<size_t>(first) * static_cast<size_t>(text_table_.stride) * ElementBytes(options_.precision);
        r.y_stride = text_table_.stride;
        Gemm(temporary->launch(), options_.precision, fc2, r);
        return Status::Ok();
      }));
  return temporary->Synchronize();
}

Status LanguageModel::LoadCodeTables(const Checkpoint& checkpoint) {
  QTTS_ASSIGN_OR_RETURN(const Table first, loader_->LoadTable(checkpoint.talker().codec_embedding));
  code_tables_.push_back(first);
  for (const TensorView& tensor : checkpoint.predictor().embeddings) {
    QTTS_ASSIGN_OR_RETURN(const Table table, loader_->LoadTable(tensor));
    code_tables_.push_back(table);
  }
  if (!checkpoint.predictor().input_projection.has_value()) {
    predictor_tables_.assign(code_tables_.begin(), code_tables_.end() - 1);
    return Status::Ok();
  }
  QTTS_ASSIGN_OR_RETURN(projection_, loader_->LoadLinear(GemmKind::kStore, *checkpoint.predictor().input_projection));
  for (size_t g = 0; g + 1 < code_tables_.size(); ++g) {
    QTTS_ASSIGN_OR_RETURN(const Table table, loader_->NewTable(code_tables_[g].rows, projection_.outputs));
    GemmRows r;
    r.x = code_tables_[g].data;
    r.x_stride = code_tables_[g].stride;
    r.y = table.data;
    r.y_stride = table.stride;
    r.rows = table.rows;
    Gemm(loader_->launch(), options_.precision, projection_, r);
    predictor_tables_.push_back(table);
  }
  // From now on for the talker's hidden state: its norm comes first.
  projection_.kind = GemmKind::kNormStore;
  return Status::Ok();
}

template <typename T>
Result<T*> LanguageModel::NewArray(size_t count) {
  QTTS_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::AllocateZeroed(count * sizeof(T)));
  T* const data = memory.as<T>();
  scratch_bytes_ += memory.bytes();
  memory_.push_back(std::move(memory));
  return data;
}

Status LanguageModel::AllocateState() {
  const TransformerConfig& t = talker_.config;
  const TransformerConfig& p = predictor_.config;
  const size_t element = ElementBytes(options_.precision);
  const auto slots = static_cast<size_t>(options_.max_slots);
  const size_t talker_width = static_cast<size_t>(Padded(t.hidden_size));
  constexpr size_t kRows = kMaxRows;
  constexpr size_t kPairs = 2 * kRows;  // the predictor's first pass has two rows a stream

  std::vector<const void*> tables;
  for (const Table& table : code_tables_) tables.push_back(table.data);
  QTTS_ASSIGN_OR_RETURN(const void** const table_array, NewArray<const void*>(tables.size()));
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(table_array, tables.data(), tables.size() * sizeof(void*), cudaMemcpyHostToDevice), kSpeaking);
  tables_ = {text_table_.data, table_array, groups_, t.hidden_size, text_table_.stride};

  QTTS_ASSIGN_OR_RETURN(frame_.slots, NewArray<int>(kRows));
  QTTS_ASSIGN_OR_RETURN(frame_.positions, NewArray<int>(kRows));
  QTTS_ASSIGN_OR_RETURN(frame_.codes, NewArray<int>(kRows * static_cast<size_t>(groups_)));
  QTTS_ASSIGN_OR_RETURN(frame_.live, NewArray<int>(2));
  QTTS_ASSIGN_OR_RETURN(frame_.frame, NewArray<unsigned>(1));
  QTTS_ASSIGN_OR_RETURN(frame_.finished, NewArray<unsigned>(1));
  QTTS_ASSIGN_OR_RETURN(hand_over_.slots, NewArray<int>(kHandOvers * kRows));
  QTTS_ASSIGN_OR_RETURN(hand_over_.codes, NewArray<int>(kHandOvers * kRows * static_cast<size_t>(groups_)));
  QTTS_ASSIGN_OR_RETURN(hand_over_.frames, NewArray<unsigned>(kHandOvers));
  QTTS_ASSIGN_OR_RETURN(slots_, NewArray<SlotState>(slots));
  history_words_ = (config_.talker.vocab_size + 31) / 32;
  QTTS_ASSIGN_OR_RETURN(history_, NewArray<unsigned>(slots * static_cast<size_t>(history_words_)));
  QTTS_ASSIGN_OR_RETURN(first_x_, NewArray<float>(slots * talker_width));

  QTTS_ASSIGN_OR_RETURN(x_, NewArray<float>(kRows * talker_width));
  QTTS_ASSIGN_OR_RETURN(predictor_x_, NewArray<float>(kPairs * static_cast<size_t>(Padded(p.hidden_size))));
  const auto qkv_width = [](const TransformerConfig& c) { return static_cast<size_t>(c.q_width() + 2 * c.kv_width()); };
  QTTS_ASSIGN_OR_RETURN(qkv_, NewArray<float>(std::max(kRows * qkv_width(t), kPairs * qkv_width(p))));
  const size_t widest = static_cast<size_t>(Padded(std::max(t.hidden_size, p.hidden_size)));
  QTTS_ASSIGN_OR_RETURN(normed_.x, NewArray<char>(kPairs * widest * element));
  QTTS_ASSIGN_OR_RETURN(normed_.factors, NewArray<float>(kPairs));
  for (Stack* const stack : {&talker_, &predictor_}) {
    const size_t rows = stack == &talker_ ? kRows : kPairs;
    const auto bytes = [&](int width) { return rows * static_cast<size_t>(Padded(width)) * element; };
    QTTS_ASSIGN_OR_RETURN(stack->attended, NewArray<char>(bytes(stack->config.q_width())));
    QTTS_ASSIGN_OR_RETURN(stack->inner, NewArray<char>(bytes(stack->config.intermediate_size)));
  }
  QTTS_ASSIGN_OR_RETURN(talker_logits_, NewArray<float>(kRows * static_cast<size_t>(talker_head_.outputs)));
  QTTS_ASSIGN_OR_RETURN(predictor_logits_,
                        NewArray<float>(heads_.size() * kRows * static_cast<size_t>(heads_.front().outputs)));

  row_splits_ = std::max(kRowSplits, kMinRows * SplitsFor(t, max_positions_));
  QTTS_ASSIGN_OR_RETURN(attention_scratch_.partial, NewArray<float>(PartialElements(t, row_splits_, 1)));
  QTTS_ASSIGN_OR_RETURN(attention_scratch_.tickets,
                        NewArray<unsigned>(std::max(TicketElements(t, kMaxRows), TicketElements(p, 2 * kMaxRows))));
  QTTS_ASSIGN_OR_RETURN(prompt_piece_, NewArray<PromptPiece>(1));
  QTTS_ASSIGN_OR_RETURN(prompt_positions_, NewArray<int>(kRows));

  pages_per_slot_ = static_cast<int>((max_positions_ + kPagePositions - 1) / kPagePositions);
  QTTS_ASSIGN_OR_RETURN(page_table_, NewArray<void*>(slots * static_cast<size_t>(pages_per_slot_)));
  const auto row_bytes = [&](const TransformerConfig& c) {
    return static_cast<size_t>(c.num_layers) * 2 * static_cast<size_t>(c.kv_width()) * element;
  };
  const size_t page_bytes = static_cast<size_t>(kPagePositions) * row_bytes(t);
  pages_ = KvPages(page_bytes, static_cast<int>(std::clamp<size_t>(kPageBlockBytes / page_bytes, 1, 64)));
  prefixes_.emplace(t, element, &pages_, stream_);
  slot_pages_.resize(slots);
  QTTS_RETURN_IF_ERROR(pages_.Reserve(1));

  const size_t predictor_page = static_cast<size_t>(groups_) * row_bytes(p);
  QTTS_ASSIGN_OR_RETURN(char* const predictor_cache, NewArray<char>(kRows * predictor_page));
  std::vector<void*> predictor_pages;
  for (size_t r = 0; r < kRows; ++r) predictor_pages.push_back(predictor_cache + r * predictor_page);
  QTTS_ASSIGN_OR_RETURN(predictor_page_table_, NewArray<void*>(kRows));
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(predictor_page_table_, predictor_pages.data(), kRows * sizeof(void*), cudaMemcpyHostToDevice),
      kSpeaking);
  QTTS_ASSIGN_OR_RETURN(uploads_, UploadRing::Create());
  return Status::Ok();
}

Status LanguageModel::PreparePersistent() {
  PersistentFrameSources sources;
  sources.precision = options_.precision;
  sources.numbers = numbers_.persistent;
  sources.groups = groups_;
  sources.eos_id = config_.talker.codec_eos_id;
  sources.talker = &talker_;
  sources.predictor = &predictor_;
  sources.talker_head = &talker_head_;
  sources.projection = &projection_;
  sources.heads = &heads_;
  sources.predictor_tables = &predictor_tables_;
  sources.talker_pages = {page_table_, pages_per_slot_, kPagePositions};
  sources.frame = frame_;
  sources.slots = slots_;
  sources.history = history_;
  sources.history_words = history_words_;
  sources.x = x_;
  sources.talker_logits = talker_logits_;
  sources.predictor_logits = predictor_logits_;
  QTTS_ASSIGN_OR_RETURN(persistent_, PersistentFrame::Create(sources, options_.patience));
  scratch_bytes_ += persistent_->bytes();
  return Status::Ok();
}

// --- A frame -----------------------------------------------------------------------------------

int LanguageModel::RowBucket(int rows) {
  return *std::find_if(kRowBuckets.begin(), kRowBuckets.end(), [&](int bucket) { return bucket >= rows; });
}

std::vector<int> LanguageModel::SplitBuckets() const {
  const int most = SplitsFor(talker_.config, max_positions_);
  std::vector<int> buckets;
  for (int splits = 1; splits < most; splits *= 4) buckets.push_back(splits);
  buckets.push_back(most);
  return buckets;
}

int LanguageModel::SplitBucket(int64_t positions) const {
  const int needed = SplitsFor(talker_.config, std::min(positions, max_positions_));
  const std::vector<int> buckets = SplitBuckets();
  return *std::lower_bound(buckets.begin(), buckets.end(), needed);
}

int LanguageModel::MaxRows(int splits) const {
  int rows = 1;
  for (const int bucket : kRowBuckets) {
    if (bucket * splits <= row_splits_) rows = bucket;
  }
  return rows;
}

Launcher LanguageModel::NewLauncher() const {
  Launcher launch;
  launch.stream = stream_;
  launch.overlap = overlap_;
  launch.numbers = &numbers_;
  return launch;
}

// Of a prompt's rows only the last few go on from the last layer's keys and values, the last one among them.
void LanguageModel::EnqueueLayers(const Launcher& launch, const Stack& stack, const SequenceRows& rows,
                                  const KeyValuePages& pages, int splits, float* x, const int* live, bool prompt) {
  const TransformerConfig& c = stack.config;
  const Precision precision = options_.precision;
  const int x_stride = Padded(c.hidden_size);
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const Layer& layer = stack.layers[i];
    GemmRows r;
    r.rows = rows.rows;
    r.normed = normed_;
    // The word is read before the previous kernel ends: the first kernel cannot rely on it.
    r.live = i == 0 ? nullptr : live;
    r.eps = c.rms_norm_eps;
    r.x = x;
    r.x_stride = x_stride;
    r.norm = layer.input_norm;
    r.y = qkv_;
    r.y_stride = layer.qkv.outputs;
    Gemm(launch, precision, layer.qkv, r);
    if (rows.appended) AppendKeyValues(launch, precision, c, layer.attention, rows, pages, qkv_);
    SequenceRows attending = rows;
    const float* qkv = qkv_;
    if (prompt && i + 1 == stack.layers.size()) {
      const int64_t done = rows.rows - kMinRows;
      attending.rows = attending.per_sequence = kMinRows;
      attending.positions += done;
      qkv += done * layer.qkv.outputs;
      x += done * x_stride;
      r.rows = kMinRows;
    }
    Attend(launch, precision, c, layer.attention, attending, pages, attention_scratch_, splits, qkv, stack.attended,
           Padded(c.q_width()), live);
    r.live = live;
    r.x = stack.attended;
    r.x_stride = Padded(c.q_width());
    r.norm = nullptr;
    r.y = x;
    r.y_stride = x_stride;
    Gemm(launch, precision, layer.o, r);
    r.x = x;
    r.x_stride = x_stride;
    r.norm = layer.post_norm;
    r.y = stack.inner;
    r.y_stride = Padded(c.intermediate_size);
    Gemm(launch, precision, layer.gated, r);
    r.x = stack.inner;
    r.x_stride = Padded(c.intermediate_size);
    r.norm = nullptr;
    r.y = x;
    r.y_stride = x_stride;
    Gemm(launch, precision, layer.down, r);
  }
}

Status LanguageModel::EnqueueFrame(FrameStart start, int rows, int splits, const FrameRow* steps,
                                   FrameRowResult* results) {
  const Launcher launch = NewLauncher();
  Launcher first = launch;
  first.overlap = false;
  BeginFrame(first, options_.precision, tables_, steps, frame_, slots_, first_x_, rows, x_);
  QTTS_RETURN_IF_CUDA_ERROR(first.error, kSpeaking);
  const EpochWords epochs = persistent_ == nullptr ? EpochWords() : persistent_->epoch_words();
  if (IsPersistent(rows, splits)) {
    QTTS_RETURN_IF_ERROR(persistent_->Enqueue(start == FrameStart::kInput, rows, stream_));
    EndFrame(first, steps, frame_, slots_, groups_, rows, results, hand_over_, epochs);
    return CudaStatus(first.error, kSpeaking);
  }
  EnqueueTalker(launch, start, rows, splits);
  EnqueuePredictor(launch, rows);
  EndFrame(launch, steps, frame_, slots_, groups_, rows, results, hand_over_, epochs);
  return CudaStatus(launch.error, kSpeaking);
}

void LanguageModel::EnqueueTalker(const Launcher& launch, FrameStart start, int rows, int splits) {
  if (start == FrameStart::kInput) {
    SequenceRows sequence;
    sequence.slots = frame_.slots;
    sequence.positions = frame_.positions;
    sequence.rows = rows;
    EnqueueLayers(launch, talker_, sequence, {page_table_, pages_per_slot_, kPagePositions}, splits, x_, frame_.live,
                  false);
  }
  GemmRows r;
  r.rows = rows;
  r.normed = normed_;
  r.live = start == FrameStart::kInput ? frame_.live : nullptr;  // as in EnqueueLayers()
  r.eps = talker_.config.rms_norm_eps;
  r.x = x_;
  r.x_stride = Padded(talker_.config.hidden_size);
  r.norm = talker_.norm;
  const int width = Padded(predictor_.config.hidden_size);
  if (projection_.data != nullptr) {
    r.y = predictor_x_;
    r.y_stride = 2 * width;
    Gemm(launch, options_.precision, projection_, r);
  }
  r.y = talker_logits_;
  r.y_stride = talker_head_.outputs;
  Gemm(launch, options_.precision, talker_head_, r);

  TalkerSample sample;
  sample.logits = talker_logits_;
  sample.vocab = talker_head_.outputs;
  sample.eos_id = config_.talker.codec_eos_id;
  sample.history = history_;
  sample.history_words = history_words_;
  sample.x = x_;
  sample.norm = talker_.norm;
  sample.eps = talker_.config.rms_norm_eps;
  sample.hidden = projection_.data == nullptr ? predictor_x_ : nullptr;
  sample.code = {predictor_tables_[0].data, predictor_.config.hidden_size, predictor_tables_[0].stride,
                 predictor_x_ + width, 2 * static_cast<int64_t>(width)};
  SampleTalker(launch, options_.precision, sample, frame_, slots_, groups_, rows);
}

void LanguageModel::EnqueuePredictor(const Launcher& launch, int rows) {
  const int width = Padded(predictor_.config.hidden_size);
  const KeyValuePages pages = {predictor_page_table_, 1, groups_};
  const int* const live = frame_.live + 1;
  for (int group = 1; group < groups_; ++group) {
    // The first pass runs positions 0 (the talker's state) and 1 (its code); later ones a code each.
    SequenceRows sequence;
    sequence.per_sequence = group == 1 ? 2 : 1;
    sequence.first_position = group == 1 ? 0 : group;
    sequence.rows = static_cast<int64_t>(rows) * sequence.per_sequence;
    EnqueueLayers(launch, predictor_, sequence, pages, 1, predictor_x_, live, false);

    const Matrix& head = heads_[static_cast<size_t>(group - 1)];
    float* const logits = predictor_logits_ + static_cast<int64_t>(group - 1) * kMaxRows * head.outputs;
    GemmRows r;
    r.rows = rows;
    r.normed = normed_;
    r.live = live;
    r.eps = predictor_.config.rms_norm_eps;
    r.x = predictor_x_ + (group == 1 ? width : 0);
    r.x_stride = width * sequence.per_sequence;
    r.norm = predictor_.norm;
    r.y = logits;
    r.y_stride = head.outputs;
    Gemm(launch, options_.precision, head, r);

    PredictorSample sample;
    sample.logits = logits;
    sample.vocab = head.outputs;
    sample.group = group;
    if (group + 1 < groups_) {
      const Table& table = predictor_tables_[static_cast<size_t>(group)];
      sample.code = {table.data, table.width, table.stride, predictor_x_, width};
    }
    SamplePredictor(launch, options_.precision, sample, frame_, slots_, groups_, rows);
  }
}

const float* LanguageModel::logits(int group) const {
  if (group == 0) return talker_logits_;
  return predictor_logits_ + static_cast<int64_t>(group - 1) * kMaxRows * heads_.front().outputs;
}

// --- Utterances --------------------------------------------------------------------------------

Status LanguageModel::CheckText(int32_t text_id) const { return CheckId("text id", text_id, text_table_.rows); }

Status LanguageModel::Check(const Prompt& prompt) const {
  if (prompt.rows.empty()) return Status::InvalidArgument("prompt: there are no rows");
  if (static_cast<int64_t>(prompt.rows.size()) >= max_positions_) {
    return Status::ResourceExhausted("the prompt has " + std::to_string(prompt.rows.size()) +
                                     " positions; the model takes fewer than " + std::to_string(max_positions_) +
                                     ": shorten the text");
  }
  for (const PromptRow& row : prompt.rows) {
    if (row.text_id != kNoText) QTTS_RETURN_IF_ERROR(CheckText(row.text_id));
    if (row.codes.size() > 1 && row.codes.size() != code_tables_.size()) {
      return Status::InvalidArgument("prompt: a row has " + std::to_string(row.codes.size()) +
                                     " codes; the model takes none, 1 or " + std::to_string(code_tables_.size()));
    }
    for (size_t g = 0; g < row.codes.size(); ++g) {
      QTTS_RETURN_IF_ERROR(CheckId("code", row.codes[g], code_tables_[g].rows));
    }
    if (row.x_vector && prompt.x_vector.size() != static_cast<size_t>(hidden_size())) {
      return Status::InvalidArgument("prompt: the x-vector has " + std::to_string(prompt.x_vector.size()) +
                                     " numbers; the model takes " + std::to_string(hidden_size()));
    }
  }
  return Status::Ok();
}

Status LanguageModel::Extend(int slot, int64_t position) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const int64_t last = std::min(position + kPagesAhead, max_positions_ - 1);
  const Launcher launch{stream_, false};
  while (static_cast<int64_t>(pages.size()) <= last / kPagePositions) {
    Result<void*> page = pages_.Take();
    // A page that is not needed yet may come later.
    if (!page.ok() && static_cast<int64_t>(pages.size()) > position / kPagePositions) break;
    QTTS_RETURN_IF_ERROR(page.status());
    SetPage(launch, page_table_, static_cast<int64_t>(slot) * pages_per_slot_ + static_cast<int64_t>(pages.size()),
            *page);
    pages.push_back(*page);
  }
  return CudaStatus(launch.error, kSpeaking);
}

void LanguageModel::Close(int slot) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  for (void* const page : pages) pages_.GiveBack(page);
  pages.clear();
}

Result<std::pair<const PromptRowIds*, const float*>> LanguageModel::Upload(const Prompt& prompt, int begin, int end) {
  const size_t vector_bytes = static_cast<size_t>(hidden_size()) * sizeof(float);
  const auto count = static_cast<size_t>(end - begin);
  QTTS_ASSIGN_OR_RETURN(char* const host, uploads_.Prepare(vector_bytes + count * sizeof(PromptRowIds)));
  if (!prompt.x_vector.empty()) std::memcpy(host, prompt.x_vector.data(), vector_bytes);
  auto* rows = reinterpret_cast<PromptRowIds*>(host + vector_bytes);
  for (const PromptRow& row : std::span(prompt.rows).subspan(static_cast<size_t>(begin), count)) {
    rows->text_id = row.text_id;
    rows->x_vector = row.x_vector ? 1 : 0;
    rows->num_codes = static_cast<int>(row.codes.size());
    std::copy(row.codes.begin(), row.codes.end(), rows->codes);
    ++rows;
  }
  QTTS_ASSIGN_OR_RETURN(const char* const device, uploads_.Send(stream_));
  return std::pair(reinterpret_cast<const PromptRowIds*>(device + vector_bytes),
                   reinterpret_cast<const float*>(device));
}

Status LanguageModel::WarmUp() {
  for (const int splits : SplitBuckets()) {
    for (int rows = kMinRows; rows <= MaxRows(splits); rows += kMinRows) {
      QTTS_RETURN_IF_ERROR(PrefillGraph(rows, splits).status());
    }
  }
  return Status::Ok();
}

Status LanguageModel::Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed) {
  const auto rows = static_cast<int>(prompt.rows.size());
  const auto open = [&]() -> Status {
    QTTS_RETURN_IF_ERROR(Extend(slot, rows));
    SlotState state = {};
    state.seed = seed;
    state.max_new_tokens = settings.max_new_tokens;
    state.talker = RulesOf(settings.talker);
    state.predictor = RulesOf(settings.predictor);
    state.repetition_penalty = settings.repetition_penalty;
    state.position = rows - 1;
    const Launcher launch{stream_, false};
    OpenSlot(launch, slot, state, slots_, history_, history_words_);
    return CudaStatus(launch.error, kSpeaking);
  };
  Status status = open();
  if (!status.ok()) Close(slot);
  return status;
}

int LanguageModel::PrefixRows(const Prompt& prompt) {
  const size_t constant = std::min(prompt.constant_rows, prompt.rows.size() - 1);
  return constant <= PrefixCache::kMostRows ? static_cast<int>(constant) : 0;
}

// One row takes a frame less time than it takes a prompt.
FrameStart LanguageModel::StartOf(const Prompt& prompt) {
  return PrefixRows(prompt) == static_cast<int>(prompt.rows.size()) - 1 ? FrameStart::kInput : FrameStart::kPrompt;
}

Result<int> LanguageModel::Prefill(int slot, const Prompt& prompt, int done) {
  const auto rows = static_cast<int>(prompt.rows.size());
  const int prefix = PrefixRows(prompt);
  const std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const std::string key = done < prefix ? PrefixCache::Key(prompt, prefix) : std::string();
  int begin = done;
  if (done == 0 && prefix > 0 && prefixes_->Use(key, pages)) begin = prefix;
  const bool at_once = done == 0 && rows - begin <= kRowsAtOnce;
  const int end = at_once ? rows : std::min(begin + kMaxRows, begin < prefix ? prefix : rows);
  QTTS_ASSIGN_OR_RETURN(const auto uploaded, Upload(prompt, begin, end));
  const PromptRowIds* const first = uploaded.first;
  const float* const x_vector = uploaded.second;
  int at = begin;
  if (at < prefix) {
    at = std::min(prefix, end);
    QTTS_RETURN_IF_ERROR(PrefillRows(slot, first, x_vector, begin, at));
    if (at == prefix) prefixes_->Keep(key, pages, prefix);
  }
  if (end == rows && StartOf(prompt) == FrameStart::kInput) {
    const Launcher launch{stream_, false};
    EmbedPrompt(launch, options_.precision, tables_, first + (at - begin), x_vector, 1,
                first_x_ + static_cast<int64_t>(slot) * Padded(hidden_size()), nullptr, 1, 0, nullptr, 0);
    QTTS_RETURN_IF_CUDA_ERROR(launch.error, kSpeaking);
  } else {
    QTTS_RETURN_IF_ERROR(PrefillRows(slot, first + (at - begin), x_vector, at, end));
  }
  return end;
}

Result<FrameStart> LanguageModel::Begin(int slot, const Prompt& prompt, const GenerationSettings& settings,
                                        uint64_t seed) {
  QTTS_RETURN_IF_ERROR(Open(slot, prompt, settings, seed));
  for (int done = 0; done < static_cast<int>(prompt.rows.size());) {
    QTTS_ASSIGN_OR_RETURN(done, Prefill(slot, prompt, done));
  }
  return StartOf(prompt);
}

// `rows` are those from `begin` on.
Status LanguageModel::PrefillRows(int slot, const PromptRowIds* rows, const float* x_vector, int begin, int end) {
  while (begin < end) {
    const int splits = SplitBucket(std::min<int64_t>(end, begin + kMaxRows));
    const int count = std::min(end - begin, MaxRows(splits));
    const int padded = (count + kMinRows - 1) / kMinRows * kMinRows;
    const Launcher launch{stream_, false};
    EmbedPrompt(launch, options_.precision, tables_, rows, x_vector, count, x_, prompt_positions_, padded, begin,
                prompt_piece_, slot);
    QTTS_RETURN_IF_ERROR(CudaStatus(launch.error, kSpeaking));
    QTTS_ASSIGN_OR_RETURN(const Graph* const graph, PrefillGraph(padded, splits));
    QTTS_RETURN_IF_ERROR(graph->Launch(stream_));
    begin += count;
    rows += count;
  }
  return Status::Ok();
}

Result<const Graph*> LanguageModel::PrefillGraph(int rows, int splits) {
  Graph& graph = prefill_graphs_[{rows, splits}];
  if (graph.empty()) {
    QTTS_ASSIGN_OR_RETURN(graph, Graph::Capture(stream_, [&] {
                            const Launcher launch = NewLauncher();
                            SequenceRows sequence;
                            sequence.slots = &prompt_piece_->slot;
                            sequence.positions = prompt_positions_;
                            sequence.per_sequence = rows;
                            sequence.appended = true;
                            sequence.rows = rows;
                            EnqueueLayers(launch, talker_, sequence, {page_table_, pages_per_slot_, kPagePositions},
                                          splits, x_, nullptr, true);
                            KeepLastRow(launch, prompt_piece_, x_, hidden_size(), Padded(hidden_size()), first_x_);
                            return CudaStatus(launch.error, kSpeaking);
                          }));
  }
  return &graph;
}

}  // namespace qtts::cuda
