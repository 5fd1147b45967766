// SPDX-License-Identifier: LGPL-2.1-or-later
#include "persistent/persistent_frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

namespace qtts::cuda {
namespace {

constexpr const char* kPreparing = "preparing the persistent kernel";
// More blocks than this gain nothing: tiles come in multiples of it. The other processors are for the codec.
constexpr int kMaxBlocks = 128;
constexpr int kMinRingSlots = 4;
constexpr int kRingSlots = 6;

Status Unsupported(const std::string& what) { return Status::Unsupported("the persistent kernel: " + what); }

MatrixShape ShapeOf(const Matrix& matrix) {
  if (matrix.data == nullptr) return {};
  return {matrix.outputs, matrix.columns, matrix.chunks(), matrix.tiles()};
}

Status CheckStack(const TransformerConfig& c, const char* part) {
  const auto check = [&](bool good, const std::string& what) {
    return good ? Status::Ok() : Unsupported(std::string("the ") + part + "'s " + what);
  };
  QTTS_RETURN_IF_ERROR(check(c.head_dim == kPersistentHeadDim, "head_dim is not 128"));
  QTTS_RETURN_IF_ERROR(check(c.num_heads == 2 * c.num_kv_heads, "heads are not two to a key head"));
  QTTS_RETURN_IF_ERROR(check(c.hidden_size % kChunk == 0 && c.hidden_size <= kPersistentHidden,
                             "hidden_size is not a multiple of 32 up to 4096"));
  return check(c.intermediate_size % kChunk == 0, "intermediate_size is not a multiple of 32");
}

size_t RoundUp(size_t bytes) { return (bytes + 127) / 128 * 128; }

PersistentStack Describe(const Stack& stack, const KeyValuePages& pages) {
  const TransformerConfig& c = stack.config;
  PersistentStack s;
  s.num_layers = c.num_layers;
  s.hidden = c.hidden_size;
  s.heads = c.num_heads;
  s.kv_heads = c.num_kv_heads;
  s.window = c.sliding_window;
  s.eps = c.rms_norm_eps;
  s.qkv = ShapeOf(stack.layers.front().qkv);
  s.o = ShapeOf(stack.layers.front().o);
  s.gated = ShapeOf(stack.layers.front().gated);
  s.down = ShapeOf(stack.layers.front().down);
  s.norm = stack.norm;
  s.inverse_frequencies = stack.layers.front().attention.inverse_frequencies;
  s.pages = pages.table;
  s.pages_per_sequence = pages.pages_per_sequence;
  s.page_positions = pages.page_positions;
  return s;
}

void AppendLayers(const Stack& stack, std::vector<PersistentLayer>* layers) {
  for (const Layer& l : stack.layers) {
    layers->push_back({static_cast<const char*>(l.qkv.data), static_cast<const char*>(l.o.data),
                       static_cast<const char*>(l.gated.data), static_cast<const char*>(l.down.data), l.qkv.bias,
                       l.o.bias, l.input_norm, l.post_norm, l.attention.q_norm, l.attention.k_norm});
  }
}

}  // namespace

Result<std::unique_ptr<PersistentFrame>> PersistentFrame::Create(const PersistentFrameSources& sources,
                                                                 unsigned patience) {
  std::unique_ptr<PersistentFrame> frame(new PersistentFrame());
  QTTS_RETURN_IF_ERROR(frame->Prepare(sources, patience));
  return frame;
}

Status PersistentFrame::Prepare(const PersistentFrameSources& sources, unsigned patience) {
  if (sources.precision != Precision::kBF16) return Unsupported("the precision is not BF16");
  const TransformerConfig& t = sources.talker->config;
  const TransformerConfig& p = sources.predictor->config;
  QTTS_RETURN_IF_ERROR(CheckStack(t, "talker"));
  QTTS_RETURN_IF_ERROR(CheckStack(p, "code predictor"));
  if (t.num_layers + p.num_layers > kPersistentLayers) return Unsupported("the model has more than 64 layers");
  if (sources.groups < 2) return Unsupported("the model has one code per frame");
  if (sources.talker_head->outputs > kPersistentVocab) return Unsupported("the talker has more than 3072 ids");
  for (const Matrix& head : *sources.heads) {
    if (head.outputs > kPersistentVocab || head.outputs != sources.heads->front().outputs) {
      return Unsupported("the code predictor has more than 3072 ids, or not everywhere as many");
    }
  }
  if (sources.projection->data == nullptr && t.hidden_size > 1024) {
    return Unsupported("the code predictor takes hidden states of more than 1024 numbers");
  }

  int device = 0;
  QTTS_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device), kPreparing);
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    (void)cudaDeviceGetAttribute(&value, which, device);
    return value;
  };
  if (attribute(cudaDevAttrComputeCapabilityMajor) != 9) return Unsupported("the GPU is not of compute capability 9");
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) return Unsupported("the GPU has no cooperative launches");
  constexpr size_t kStaticBytes = size_t{16} << 10;
  shared_limit_ = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) - kStaticBytes;
  blocks_ = std::min(kMaxBlocks, attribute(cudaDevAttrMultiProcessorCount));

  FrameKernelArguments& a = arguments_;
  a.groups = sources.groups;
  a.talker = Describe(*sources.talker, sources.talker_pages);
  a.predictor = Describe(*sources.predictor, sources.predictor_pages);
  a.predictor.first_layer = t.num_layers;
  a.talker_head = ShapeOf(*sources.talker_head);
  a.head = ShapeOf(sources.heads->front());
  a.projection = ShapeOf(*sources.projection);
  a.talker_head_weights = static_cast<const char*>(sources.talker_head->data);
  a.projection_weights = static_cast<const char*>(sources.projection->data);
  a.projection_bias = sources.projection->bias;
  a.x = sources.x;
  a.x_stride = Padded(t.hidden_size);
  a.eos_id = sources.eos_id;
  a.frame = sources.frame;
  a.slots = sources.slots;
  a.history = sources.history;
  a.history_words = sources.history_words;
  a.talker_logits = sources.talker_logits;
  a.predictor_logits = sources.predictor_logits;
  a.patience = patience;
  // Six hand-overs a layer, two a choice.
  const int passes = sources.groups;
  a.epochs_per_frame = static_cast<unsigned>(6 * t.num_layers + 2 + passes * (6 * p.num_layers + 2));
  a.epoch_frames = (std::numeric_limits<unsigned>::max() - 1) / a.epochs_per_frame;

  std::vector<PersistentLayer> layers;
  AppendLayers(*sources.talker, &layers);
  AppendLayers(*sources.predictor, &layers);
  std::vector<PredictorPass> steps;
  for (size_t i = 0; i < sources.heads->size(); ++i) {
    const Table& table = (*sources.predictor_tables)[i];
    steps.push_back(
        {static_cast<const char*>((*sources.heads)[i].data), static_cast<const char*>(table.data), table.stride});
  }
  const size_t layer_bytes = RoundUp(layers.size() * sizeof(PersistentLayer));
  QTTS_ASSIGN_OR_RETURN(tables_, DeviceMemory::Allocate(layer_bytes + steps.size() * sizeof(PredictorPass)));
  char* const tables = tables_.as<char>();
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(tables, layers.data(), layers.size() * sizeof(PersistentLayer), cudaMemcpyHostToDevice), kPreparing);
  QTTS_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(tables + layer_bytes, steps.data(), steps.size() * sizeof(PredictorPass), cudaMemcpyHostToDevice),
      kPreparing);
  a.layers = reinterpret_cast<const PersistentLayer*>(tables);
  a.passes = reinterpret_cast<const PredictorPass*>(tables + layer_bytes);
  QTTS_RETURN_IF_ERROR(AllocateWords());
  QTTS_ASSIGN_OR_RETURN(report_, PinnedMemory::AllocateZeroed(sizeof(unsigned)));
  a.report = report_.as<unsigned>();

  // The pace that measured best; see tests/bench/JOURNAL.md.
  a.talker.in_flight = t.hidden_size > 1024 ? 4 : 1;
  a.predictor.in_flight = p.hidden_size > 1024 ? 4 : 1;

  int most = 0;
  for (int rows = 1; rows <= kPersistentRows; ++rows) {
    size_t bytes = 0;
    FrameKernelArguments with = a;
    Layout(rows, &with, &bytes);
    if (with.ring_slots < kMinRingSlots) return Unsupported("the GPU's processors have too little shared memory");
    most = std::max(most, static_cast<int>(bytes));
  }
  int resident = 0;
  QTTS_RETURN_IF_CUDA_ERROR(PrepareFrameKernel(static_cast<size_t>(most), &resident), kPreparing);
  if (resident < 1) return Unsupported("a block does not fit on the GPU's processors");
  return Status::Ok();
}

Status PersistentFrame::AllocateWords() {
  FrameKernelArguments& a = arguments_;
  struct Part {
    Word** words;
    size_t count;
  };
  std::vector<Part> parts;
  constexpr size_t kRows = kPersistentRows;
  for (PersistentStack* const s : {&a.talker, &a.predictor}) {
    const auto hidden = static_cast<size_t>(s->hidden);
    parts.push_back({&s->x_middle, kRows * hidden});
    parts.push_back({&s->x, kRows * hidden});
    parts.push_back({&s->qkv_words, kRows * static_cast<size_t>(s->qkv.outputs)});
    parts.push_back({&s->attended, kRows * static_cast<size_t>(s->heads) * kPersistentHeadDim / 2});
    parts.push_back({&s->inner, kRows * static_cast<size_t>(s->gated.outputs) / 2});
  }
  parts.push_back({&a.talker.records, kRows * static_cast<size_t>(a.talker.kv_heads) * kPersistentSplits *
                                          static_cast<size_t>(kRecordWords)});
  parts.push_back({&a.input, 2 * kRows * static_cast<size_t>(a.predictor.hidden)});
  parts.push_back({&a.logits, kRows * kPersistentVocab});
  parts.push_back({&a.speaking, kRows});
  size_t total = 0;
  for (const Part& part : parts) total += RoundUp(part.count * sizeof(Word));
  QTTS_ASSIGN_OR_RETURN(words_, DeviceMemory::AllocateZeroed(total));
  char* next = words_.as<char>();
  for (const Part& part : parts) {
    *part.words = reinterpret_cast<Word*>(next);
    next += RoundUp(part.count * sizeof(Word));
  }
  return Status::Ok();
}

// The ring first; then what a block keeps of the residual stream; then what products and attention need, in whose
// place logits are sorted.
void PersistentFrame::Layout(int rows, FrameKernelArguments* arguments, size_t* shared_bytes) const {
  FrameKernelArguments& a = *arguments;
  a.rows = rows;
  a.paired = 2 * rows <= kPersistentRows;
  const int most_rows = a.paired ? 2 * rows : rows;
  size_t own = 0;
  size_t stage = 0;
  for (const PersistentStack* const s : {&a.talker, &a.predictor}) {
    const int stack_rows = s == &a.talker ? rows : most_rows;
    own = std::max(own, static_cast<size_t>((s->o.tiles + blocks_ - 1) / blocks_ * stack_rows * 8) * sizeof(float));
    for (const MatrixShape* const m : {&s->qkv, &s->o, &s->gated, &s->down}) {
      const int per_warp = (m->chunks + kPersistentWarps - 1) / kPersistentWarps;
      stage = std::max(stage, static_cast<size_t>(kPersistentWarps * stack_rows * (per_warp | 1) * kChunk) * 2);
    }
  }
  const size_t partial =
      size_t{2} * kTilesAtOnce * kPersistentWarps * 16 * static_cast<size_t>(most_rows) * sizeof(float);
  const size_t work = RoundUp(stage) + RoundUp(partial) + RoundUp(PersistentAttentionBytes());
  const auto vocab = static_cast<unsigned>(std::max(a.talker_head.outputs, a.head.outputs));
  const size_t sorted = std::bit_ceil(vocab) * sizeof(uint64_t);
  const size_t fixed = RoundUp(own) + std::max(work, sorted);
  const size_t slots = shared_limit_ < fixed ? 0 : (shared_limit_ - fixed) / kPersistentPieceBytes;
  a.ring_slots = static_cast<int>(std::min<size_t>(slots, static_cast<size_t>(kRingSlots)));
  a.own_offset = a.ring_slots * static_cast<int>(kPersistentPieceBytes);
  a.stage_offset = a.own_offset + static_cast<int>(RoundUp(own));
  a.partial_offset = a.stage_offset + static_cast<int>(RoundUp(stage));
  a.attention_offset = a.partial_offset + static_cast<int>(RoundUp(partial));
  *shared_bytes = static_cast<size_t>(a.own_offset) + fixed;
}

bool PersistentFrame::Covers(int rows, int splits) const {
  if (rows > kPersistentRows || splits > kPersistentSplits) return false;
  const auto items = [&](int parts, int per_sequence) { return (parts + blocks_ - 1) / blocks_ * per_sequence; };
  return items(rows * splits * arguments_.talker.kv_heads, 1) <= kPersistentItems &&
         items(rows * arguments_.predictor.kv_heads, 2) <= kPersistentItems;
}

Status PersistentFrame::Enqueue(int rows, cudaStream_t stream) const {
  FrameKernelArguments arguments = arguments_;
  size_t shared_bytes = 0;
  Layout(rows, &arguments, &shared_bytes);
  return CudaStatus(LaunchFrameKernel(arguments, blocks_, shared_bytes, stream), "making speech");
}

EpochWords PersistentFrame::epoch_words() const {
  return {words_.as<Word>(), static_cast<int64_t>(words_.bytes() / sizeof(Word)), arguments_.epoch_frames};
}

Status PersistentFrame::Health() const {
  if (*static_cast<const volatile unsigned*>(report_.as<const unsigned>()) == 0) return Status::Ok();
  return Status::DeviceUnavailable(
      "GPU: parts of a frame waited for each other in vain; if it happens again, set QTTS_CUDA_PATH=graph");
}

}  // namespace qtts::cuda
