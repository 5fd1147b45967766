// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/persistent_frame.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "paths/persistent/frame_order.h"
#include "runtime/device.h"
#include "runtime/device_wait.h"

namespace qtts::cuda {
namespace {

constexpr const char* kPreparing = "preparing the persistent kernel";

Status Unsupported(const std::string& what) { return Status::Unsupported("the persistent kernel: " + what); }

Status CheckStack(const TransformerConfig& c, const char* part, std::span<const int> widths) {
  const auto check = [&](bool good, const std::string& what) {
    return good ? Status::Ok() : Unsupported(std::string("the ") + part + "'s " + what);
  };
  QTTS_RETURN_IF_ERROR(check(c.head_dim == kPersistentHeadDim, "head_dim is not 128"));
  QTTS_RETURN_IF_ERROR(check(c.num_heads == kPersistentHeads && c.num_kv_heads == kPersistentKvHeads,
                             "heads are not 16 with 8 key heads"));
  std::string names;
  for (const int width : widths) names += (names.empty() ? "" : " or ") + std::to_string(width);
  QTTS_RETURN_IF_ERROR(
      check(std::find(widths.begin(), widths.end(), c.hidden_size) != widths.end(), "hidden_size is not " + names));
  return check(c.intermediate_size == PersistentIntermediate(c.hidden_size),
               "intermediate_size is not three times its hidden_size");
}

// kUnsupported with the first difference between the model and the sizes that the kernel was compiled for.
Status CheckModel(const ModelConfig& config, Precision precision) {
  if (precision != Precision::kBF16) return Unsupported("the precision is not BF16");
  const TransformerConfig& t = config.talker.transformer;
  const TransformerConfig& p = config.predictor.transformer;
  QTTS_RETURN_IF_ERROR(CheckStack(t, "talker", kPersistentTalkerWidths));
  QTTS_RETURN_IF_ERROR(CheckStack(p, "code predictor", std::span(&kPersistentHidden, 1)));
  if (t.num_layers + p.num_layers > kPersistentLayers) return Unsupported("the model has more than 40 layers");
  const int groups = config.talker.num_code_groups;
  if (groups < 2) return Unsupported("the model has one code per frame");
  if (groups > kPersistentGroups) return Unsupported("the model has more than 16 codes per frame");
  if (config.talker.vocab_size > kPersistentVocab) return Unsupported("the talker has more than 3072 ids");
  if (config.predictor.vocab_size > kPersistentVocab || config.predictor.vocab_size % 2 != 0) {
    return Unsupported("the code predictor's heads have more than 3072 ids, or an odd number of them");
  }
  return Status::Ok();
}

// The same for differences that only the loaded weights show.
Status CheckWeights(const Network& network) {
  for (const Matrix& head : network.heads) {
    if (head.outputs != network.config.predictor.vocab_size) {
      return Unsupported("the code predictor's heads have different sizes");
    }
  }
  if (network.has_projection() != (network.hidden_size() != kPersistentHidden)) {
    return Unsupported("the projection of the hidden states does not match the widths");
  }
  return Status::Ok();
}

size_t RoundUp(size_t bytes) { return (bytes + 127) / 128 * 128; }

PersistentStack DescribeStack(const Stack& stack) {
  const TransformerConfig& c = stack.config;
  PersistentStack s;
  s.num_layers = c.num_layers;
  s.window = c.sliding_window;
  s.eps = c.rms_norm_eps;
  s.norm = stack.norm;
  s.inverse_frequencies = stack.layers.front().attention.inverse_frequencies;
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

Result<std::unique_ptr<PersistentFrame>> PersistentFrame::Create(const Network& network, const FrameBuffers& buffers,
                                                                 const PersistentNumbers& numbers, unsigned patience,
                                                                 std::optional<int> max_blocks, cudaStream_t stream) {
  std::unique_ptr<PersistentFrame> frame(new PersistentFrame(stream));
  QTTS_RETURN_IF_ERROR(frame->Prepare(network, buffers, numbers, patience, max_blocks));
  return frame;
}

Status PersistentFrame::CheckDevice(const DeviceDescription& device) {
  if (device.major < 8) return Unsupported("the GPU is not of compute capability 8.0 or later");
  if (!device.cooperative) return Unsupported("the GPU has no cooperative launches");
  if (device.processors < kPersistentMinBlocks) {
    return Unsupported("the GPU has " + std::to_string(device.processors) + " SMs, and it needs " +
                       std::to_string(kPersistentMinBlocks));
  }
  return Status::Ok();
}

Status PersistentFrame::CheckSupport(const ModelConfig& config, Precision precision, WeightForm weights,
                                     const DeviceDescription& device) {
  QTTS_RETURN_IF_ERROR(CheckModel(config, precision));
  QTTS_RETURN_IF_ERROR(CheckDevice(device));
  // One row needs the least.
  if (FormOf(config.talker.transformer.hidden_size, 1, device, std::nullopt, weights).blocks == 0) {
    return Unsupported("the GPU's SMs have too little shared memory");
  }
  return Status::Ok();
}

FrameKernelForm PersistentFrame::FormOf(int talker_hidden, int rows, const DeviceDescription& device,
                                        std::optional<int> max_blocks, WeightForm weights) {
  const RingCopies copies = device.CanRunWarpgroups() ? RingCopies::kBulk : RingCopies::kAsync;
  return ChooseForm(talker_hidden, rows, copies, std::min(max_blocks.value_or(device.processors), device.processors),
                    device.shared_per_block, max_blocks.has_value(), weights);
}

Status PersistentFrame::Prepare(const Network& network, const FrameBuffers& buffers, const PersistentNumbers& numbers,
                                unsigned patience, std::optional<int> max_blocks) {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), kPreparing);
  QTTS_RETURN_IF_ERROR(CheckSupport(network.config, network.precision, network.form, *device));
  QTTS_RETURN_IF_ERROR(CheckWeights(network));

  Describe(network, buffers);
  FrameKernelArguments& a = arguments_;
  a.patience = patience;
  a.epochs_per_frame = static_cast<unsigned>(persistent::EpochsPerFrame(
      network.talker.config.num_layers, network.predictor.config.num_layers, network.groups));
  a.epoch_frames = (std::numeric_limits<unsigned>::max() - 1) / a.epochs_per_frame;
  QTTS_RETURN_IF_ERROR(AllocateTables(network));
  QTTS_RETURN_IF_ERROR(AllocateWords());
  QTTS_ASSIGN_OR_RETURN(candidates_, DeviceMemory::Allocate(sizeof(unsigned long long) * kPersistentRows *
                                                            size_t{kPersistentCandidates}));
  a.candidates = candidates_.as<unsigned long long>();
  QTTS_ASSIGN_OR_RETURN(report_, PinnedMemory::AllocateZeroed(sizeof(unsigned)));
  a.report = report_.as<unsigned>();

  const auto pace = [](const PaceNumbers& of) { return WeightPace{of.in_flight, of.ahead}; };
  a.talker.pace = pace(a.talker_hidden > kPersistentHidden ? numbers.wide_talker : numbers.narrow_talker);
  a.predictor.pace = pace(numbers.predictor);
  return PrepareKernels(*device, max_blocks, network.form);
}

void PersistentFrame::Describe(const Network& network, const FrameBuffers& buffers) {
  FrameKernelArguments& a = arguments_;
  a.groups = network.groups;
  a.talker = DescribeStack(network.talker);
  a.talker.pages = buffers.talker_pages().table;
  a.talker.pages_per_sequence = buffers.talker_pages().pages_per_sequence;
  a.talker.page_positions = buffers.talker_pages().page_positions;
  a.talker.cache_heads = kPersistentKvHeads;
  a.predictor = DescribeStack(network.predictor);
  a.predictor.first_layer = network.talker.config.num_layers;
  a.talker_hidden = network.hidden_size();
  a.talker_vocab = network.head(0).outputs;
  a.predictor_vocab = network.head(1).outputs;
  a.talker_head = static_cast<const char*>(network.head(0).data);
  a.projection = static_cast<const char*>(network.projection.data);
  a.projection_bias = network.projection.bias;
  a.x = buffers.x;
  a.eos_id = network.config.talker.codec_eos_id;
  a.frame = buffers.frame;
  a.slots = buffers.slots;
  a.aligned = buffers.aligned;
  a.history = buffers.history;
  a.history_words = buffers.history_words;
  a.talker_logits = buffers.talker_logits;
  a.predictor_logits = buffers.predictor_logits;
}

// Layers, passes, and the predictor's keys and values, one page a row.
Status PersistentFrame::AllocateTables(const Network& network) {
  FrameKernelArguments& a = arguments_;
  std::vector<PersistentLayer> layers;
  AppendLayers(network.talker, &layers);
  AppendLayers(network.predictor, &layers);
  std::vector<PredictorPass> steps;
  for (size_t i = 0; i < network.heads.size(); ++i) {
    const Table& table = network.predictor_tables[i];
    steps.push_back({static_cast<const char*>(network.heads[i].data), static_cast<const char*>(table.data),
                     table.stride, static_cast<unsigned>(table.rows)});
  }
  a.predictor.pages_per_sequence = 1;
  a.predictor.page_positions = network.groups;
  a.predictor.cache_heads = kPersistentHeads;
  const size_t page_bytes = static_cast<size_t>(network.predictor.config.num_layers) * kPersistentHeads * 2 *
                            static_cast<size_t>(network.groups) * kPersistentHeadDim * 2;
  QTTS_ASSIGN_OR_RETURN(cache_, DeviceMemory::AllocateZeroed(kPersistentRows * page_bytes));
  std::vector<void*> pages;
  for (size_t row = 0; row < kPersistentRows; ++row) pages.push_back(cache_.as<char>() + row * page_bytes);

  const size_t layer_bytes = RoundUp(layers.size() * sizeof(PersistentLayer));
  const size_t pass_bytes = RoundUp(steps.size() * sizeof(PredictorPass));
  QTTS_ASSIGN_OR_RETURN(tables_, DeviceMemory::Allocate(layer_bytes + pass_bytes + pages.size() * sizeof(void*)));
  char* const tables = tables_.as<char>();
  QTTS_RETURN_IF_CUDA_ERROR(CopyAndWait(tables + layer_bytes + pass_bytes, pages.data(), pages.size() * sizeof(void*),
                                        cudaMemcpyHostToDevice),
                            kPreparing);
  a.predictor.pages = reinterpret_cast<void* const*>(tables + layer_bytes + pass_bytes);
  QTTS_RETURN_IF_CUDA_ERROR(
      CopyAndWait(tables, layers.data(), layers.size() * sizeof(PersistentLayer), cudaMemcpyHostToDevice), kPreparing);
  QTTS_RETURN_IF_CUDA_ERROR(
      CopyAndWait(tables + layer_bytes, steps.data(), steps.size() * sizeof(PredictorPass), cudaMemcpyHostToDevice),
      kPreparing);
  a.layers = reinterpret_cast<const PersistentLayer*>(tables);
  a.passes = reinterpret_cast<const PredictorPass*>(tables + layer_bytes);
  return Status::Ok();
}

Status PersistentFrame::PrepareKernels(const DeviceDescription& device, std::optional<int> max_blocks,
                                       WeightForm weights) {
  for (size_t i = 0; i < kRowBuckets.size(); ++i) {
    FrameKernelForm& form = forms_[i];
    form = FormOf(arguments_.talker_hidden, kRowBuckets[i], device, max_blocks, weights);
    if (form.blocks == 0) continue;
    int resident = 0;
    QTTS_RETURN_IF_CUDA_ERROR(PrepareFrameKernel(form, &resident), kPreparing);
    if (resident < 1) return Unsupported("a thread block does not fit on an SM of the GPU");
  }
  return Status::Ok();
}

Status PersistentFrame::AllocateWords() {
  FrameKernelArguments& a = arguments_;
  struct Words {
    void** words;
    size_t bytes;
  };
  std::vector<Words> parts;
  constexpr size_t kRows = kPersistentRows;
  constexpr size_t kQuadBytes = 16;
  constexpr size_t kQueryWidth = size_t{kPersistentHeads} * kPersistentHeadDim;
  const auto add = [&](auto** words, size_t bytes) { parts.push_back({reinterpret_cast<void**>(words), bytes}); };
  for (PersistentStack* const s : {&a.talker, &a.predictor}) {
    const auto hidden = static_cast<size_t>(s == &a.talker ? a.talker_hidden : kPersistentHidden);
    add(&s->x_middle, kRows * hidden / 4 * kQuadBytes);
    add(&s->x, kRows * hidden / 4 * kQuadBytes);
    add(&s->qkv, kRows * 2 * kQueryWidth * sizeof(Word));
    add(&s->attended, kRows * kQueryWidth / 2 * sizeof(Word));
    add(&s->inner, kRows * 3 * hidden / 2 * sizeof(Word));
  }
  size_t row_splits = 0;
  for (const int rows : kRowBuckets) {
    row_splits = std::max(row_splits, static_cast<size_t>(rows) * static_cast<size_t>(PersistentSplits(rows)));
  }
  add(&a.talker.records, row_splits * kPersistentHeads * kRecordWords * sizeof(Word));
  add(&a.input, kRows * kPersistentHidden * sizeof(Word));
  add(&a.logits, kRows * kPersistentVocab * sizeof(Word));
  add(&a.ids, kRows * sizeof(Word));
  size_t total = 0;
  for (const Words& part : parts) total += RoundUp(part.bytes);
  QTTS_ASSIGN_OR_RETURN(words_, DeviceMemory::AllocateZeroed(total));
  char* next = words_.as<char>();
  for (const Words& part : parts) {
    *part.words = next;
    next += RoundUp(part.bytes);
  }
  return Status::Ok();
}

const FrameKernelForm* PersistentFrame::FindForm(int rows) const {
  const auto* const found = std::find_if(
      forms_.begin(), forms_.end(), [&](const FrameKernelForm& form) { return form.rows == rows && form.blocks > 0; });
  return found == forms_.end() ? nullptr : found;
}

bool PersistentFrame::Covers(int rows, int splits) const {
  return FindForm(rows) != nullptr && PersistentCovers(rows, splits);
}

Status PersistentFrame::Enqueue(FrameStart start, int rows, int /*splits*/) const {
  FrameKernelArguments arguments = arguments_;
  arguments.runs_talker = start == FrameStart::kInput;
  return CudaStatus(LaunchFrameKernel(arguments, *FindForm(rows), stream_), kSpeaking);
}

EpochWords PersistentFrame::epoch_words() const {
  return {words_.as<Word>(), static_cast<int64_t>(words_.bytes() / sizeof(Word)), arguments_.epoch_frames};
}

Status PersistentFrame::Health() const {
  if (*static_cast<const volatile unsigned*>(report_.as<const unsigned>()) == 0) return Status::Ok();
  return Status::DeviceUnavailable("GPU: the frame kernel timed out; if it happens again, set QTTS_CUDA_PATH=graph");
}

}  // namespace qtts::cuda
