// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_EMULATED_CUDA_PERSISTENT_FRAMES_H_
#define QTTS_TESTS_EMULATED_CUDA_PERSISTENT_FRAMES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <type_traits>
#include <vector>

#include "cuda_device.h"
#include "paths/persistent/frame_variant.cuh"
#include "thread_grid.h"

// Frames of the persistent kernel without a GPU, on a small random model: however many thread blocks share it, and
// however little of the weights a block holds at once, its codes and logits are those of the form for 128 blocks, which
// the tests of tests/gpu compare with the graph path.
namespace qtts::cuda::persistent {

inline constexpr int kGroups = 3;
inline constexpr int kTalkerVocab = 1040, kPredictorVocab = 528;
inline constexpr int kPagePositions = 128;
inline constexpr int kPages = 16;
inline constexpr int kSlots = kPersistentRows;

// BF16 weights with the values of weights of 8 bits.
struct ValuesOfInt8 : Bf16Weights {};

// Owns what the kernel's arguments point to.
class Memory {
 public:
  explicit Memory(unsigned seed) : random_(seed) {}

  float Number(float least, float most) { return std::uniform_real_distribution<float>(least, most)(random_); }
  template <typename T>
  T* Zeros(size_t count) {
    constexpr size_t kAlignment = 256;
    blocks_.emplace_back(count * sizeof(T) + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(blocks_.back().data());
    return reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }
  float* Floats(size_t count, float least, float most) {
    auto* const values = Zeros<float>(count);
    for (size_t i = 0; i < count; ++i) values[i] = Number(least, most);
    return values;
  }
  __nv_bfloat16* Bf16s(size_t count, float most) {
    auto* const values = Zeros<__nv_bfloat16>(count);
    for (size_t i = 0; i < count; ++i) values[i] = __float2bfloat16_rn(Number(-most, most));
    return values;
  }
  // Returns tiles (gemm.h) of `tile_outputs` outputs.
  template <typename Storage>
  const char* Weights(int outputs, int columns, int tile_outputs) {
    constexpr float kMost = 0.04F;
    const int tiles = (outputs + tile_outputs - 1) / tile_outputs;
    const size_t bytes = static_cast<size_t>(tiles) * static_cast<size_t>(Storage::TileBytes(columns, tile_outputs));
    if constexpr (std::is_same_v<Storage, ValuesOfInt8>) {
      return ValuesOf(Weights<Int8Weights>(outputs, columns, tile_outputs), bytes, tile_outputs / 8);
    } else if constexpr (Storage::kForm == WeightForm::kPlain) {
      return reinterpret_cast<const char*>(Bf16s(bytes / 2, kMost));
    } else {
      auto* const weights = Zeros<char>(bytes);
      const size_t halves = static_cast<size_t>(tile_outputs) / 8;
      const size_t chunk = Storage::kChunkBytes * halves;
      const size_t codes = gemm::Int8Layout::kCodeBytes * halves;
      for (size_t i = 0; i < bytes; ++i) {
        if (i % chunk < codes) weights[i] = static_cast<char>(random_());
      }
      for (size_t i = 0; i < bytes; i += 2) {
        const __nv_bfloat16 scale = __float2bfloat16_rn(Number(0.0F, kMost / 127));
        if (i % chunk >= codes) std::memcpy(weights + i, &scale, sizeof(scale));
      }
      return weights;
    }
  }

 private:
  // Returns `bytes` bytes of BF16: the values of weights of 8 bits, in chunks of `halves` * 8 outputs.
  const char* ValuesOf(const char* weights, size_t bytes, int halves) {
    auto* const values = Zeros<uint16_t>(bytes / 2);
    const int chunk_values = halves * Bf16Weights::kChunkBytes / 2;
    const int chunks = static_cast<int>(bytes / 2) / chunk_values;
    for (int i = 0; i < chunks * chunk_values; ++i) {
      const int half = i % chunk_values / (chunk_values / halves);
      const int lane = i % (chunk_values / halves) / 8;
      const char* const chunk = weights + i / chunk_values * (halves * gemm::Int8Layout::kChunkBytes);
      gemm::Int8Unit unit;
      std::memcpy(&unit, chunk + (lane * halves + half) * gemm::Int8Layout::kUnitBytes, sizeof(unit));
      uint16_t scale = 0;
      std::memcpy(&scale, chunk + halves * gemm::Int8Layout::kCodeBytes + (lane / 4 * halves + half) * 2,
                  sizeof(scale));
      // PackInt8() the other way round.
      const int column = i % 8;
      const uint32_t word = unit.words[column / 4] >> (column % 2 * 16);
      const bool later = column % 4 >= 2;
      const auto magnitude = static_cast<int>(word >> (later ? 8 : 0) & 0x7F);
      const bool negative = (word >> (later ? 7 : 15) & 1) != 0;
      values[i] = gemm::Int8Value(magnitude, scale) | static_cast<uint16_t>(negative ? 0x8000 : 0);
    }
    return reinterpret_cast<const char*>(values);
  }

  std::minstd_rand random_;
  std::deque<std::vector<char>> blocks_;
};

struct Results {
  std::vector<int> codes;
  std::vector<float> talker_logits, predictor_logits;
  bool operator==(const Results&) const = default;
};

// A model of one talker layer and one of the predictor, and the state of its utterances; `position` of the first row,
// and 37 more of each next one. The third row, if there is one, has ended.
template <int kTalkerHidden, int kRows, typename Storage>
class Frame {
 public:
  explicit Frame(int position) : memory_(1) {
    a_.groups = kGroups;
    a_.talker_hidden = kTalkerHidden;
    layers_ = {Layer(kTalkerHidden), Layer(kPersistentHidden)};
    a_.layers = layers_.data();
    a_.talker = Stack(kTalkerHidden, 0, kPages, kPagePositions, kPersistentKvHeads);
    a_.predictor = Stack(kPersistentHidden, 1, 1, kGroups, kPersistentHeads);
    a_.talker_vocab = kTalkerVocab;
    a_.predictor_vocab = kPredictorVocab;
    a_.talker_head = memory_.template Weights<Storage>(kTalkerVocab, kTalkerHidden, 16);
    a_.projection = memory_.template Weights<Storage>(kPersistentHidden, kTalkerHidden, 16);
    for (int i = 0; i + 1 < kGroups; ++i) {
      passes_.push_back({memory_.template Weights<Storage>(kPredictorVocab, kPersistentHidden, 16),
                         reinterpret_cast<const char*>(memory_.Bf16s(kTalkerVocab * kPersistentHidden, 1)),
                         kPersistentHidden, kTalkerVocab});
    }
    a_.passes = passes_.data();
    a_.x = memory_.Floats(kRows * kTalkerHidden, -1, 1);
    a_.eos_id = kTalkerVocab - 1;
    a_.slots = memory_.template Zeros<SlotState>(kSlots);
    for (int i = 0; i < kSlots; ++i) {
      a_.slots[i].seed = static_cast<uint64_t>(i);
      a_.slots[i].max_new_tokens = 100;
      a_.slots[i].talker = a_.slots[i].predictor = {1, 0.9F, 50, 1};
      a_.slots[i].history_rules = {1.05F};
    }
    a_.frame.slots = memory_.template Zeros<int>(kMaxRows);
    a_.frame.positions = memory_.template Zeros<int>(kMaxRows);
    a_.frame.codes = memory_.template Zeros<int>(kMaxRows * kGroups);
    a_.frame.live = memory_.template Zeros<int>(2);
    a_.frame.live[0] = a_.frame.live[1] = 1;
    a_.frame.frame = memory_.template Zeros<unsigned>(1);
    *a_.frame.frame = 1;
    for (int row = 0; row < kRows; ++row) {
      a_.frame.slots[row] = row == 2 ? -1 : row * 3 % kSlots;
      a_.frame.positions[row] = position + 37 * row;
    }
    a_.history_words = (kTalkerVocab + 31) / 32;
    a_.history = memory_.template Zeros<unsigned>(static_cast<size_t>(kSlots * a_.history_words));
    a_.talker_logits = memory_.template Zeros<float>(kRows * kTalkerVocab);
    a_.predictor_logits = memory_.template Zeros<float>((kGroups - 1) * kMaxRows * kPredictorVocab);
    a_.input = memory_.template Zeros<Word>(kRows * kPersistentHidden);
    a_.logits = memory_.template Zeros<Word>(kRows * kPersistentVocab);
    a_.ids = memory_.template Zeros<Word>(kRows);
    a_.candidates = memory_.template Zeros<unsigned long long>(kRows * kPersistentCandidates);
    a_.epochs_per_frame = static_cast<unsigned>(EpochsPerFrame(1, 1, kGroups));
    a_.epoch_frames = 1000;
    a_.patience = ~0U;
    a_.report = memory_.template Zeros<unsigned>(1);
  }

  template <bool kFolded>
  Results Make(int blocks, int ring_slots) {
    using Traits = FrameTraits<kTalkerHidden, kRows, kFolded, Storage>;
    a_.ring_slots = ring_slots;
    const size_t bytes = kSharedBytes<Traits> + static_cast<size_t>(ring_slots) * kPieceBytes<Storage>;
    emulated::RunGrid(blocks, kThreads, bytes, [this] { FrameKernel<Traits>(a_); });
    Results results;
    results.codes.assign(a_.frame.codes, a_.frame.codes + kRows * kGroups);
    results.talker_logits.assign(a_.talker_logits, a_.talker_logits + kRows * kTalkerVocab);
    results.predictor_logits.assign(a_.predictor_logits,
                                    a_.predictor_logits + (kGroups - 1) * kMaxRows * kPredictorVocab);
    return results;
  }

 private:
  PersistentLayer Layer(int hidden) {
    const int intermediate = PersistentIntermediate(hidden);
    PersistentLayer layer = {};
    layer.qkv = memory_.template Weights<Storage>(kQkvWidth, hidden, 16);
    layer.o = memory_.template Weights<Storage>(hidden, kQueryWidth, 8);
    layer.gated = memory_.template Weights<Storage>(2 * intermediate, hidden, 16);
    layer.down = memory_.template Weights<Storage>(hidden, intermediate, 8);
    layer.input_norm = memory_.Floats(static_cast<size_t>(hidden), 0.8F, 1.2F);
    layer.post_norm = memory_.Floats(static_cast<size_t>(hidden), 0.8F, 1.2F);
    layer.q_norm = memory_.Floats(kHeadDim, 0.8F, 1.2F);
    layer.k_norm = memory_.Floats(kHeadDim, 0.8F, 1.2F);
    return layer;
  }

  PersistentStack Stack(int hidden, int first_layer, int pages, int page_positions, int cache_heads) {
    constexpr size_t kRowCount = kRows;
    const auto width = static_cast<size_t>(hidden);
    PersistentStack s;
    s.first_layer = first_layer;
    s.num_layers = 1;
    s.pace = {4, 8};
    s.eps = 1e-6F;
    s.norm = memory_.Floats(width, 0.8F, 1.2F);
    float* const frequencies = memory_.Floats(kHalf, 0, 1);
    for (int i = 0; i < kHalf; ++i) frequencies[i] = std::pow(10000.0F, -static_cast<float>(i) / kHalf);
    s.inverse_frequencies = frequencies;
    s.pages_per_sequence = pages;
    s.page_positions = page_positions;
    s.cache_heads = cache_heads;
    auto* const table = memory_.template Zeros<void*>(static_cast<size_t>(kSlots * pages));
    const auto page = static_cast<size_t>(cache_heads * 2 * page_positions * kHeadDim);
    for (int i = 0; i < kSlots * pages; ++i) table[i] = memory_.Bf16s(page, 1);
    s.pages = table;
    s.x_middle = memory_.template Zeros<Quad>(kPersistentRows * width / 4);
    s.x = memory_.template Zeros<Quad>(kPersistentRows * width / 4);
    s.qkv = memory_.template Zeros<Word>(kPersistentRows * size_t{kQkvWidth});
    s.attended = memory_.template Zeros<Word>(kPersistentRows * size_t{kQueryWidth} / 2);
    s.inner = memory_.template Zeros<Word>(kPersistentRows * width * 3 / 2);
    s.records = memory_.template Zeros<Word>(kRowCount * PersistentSplits(kRows) * kHeads * kRecordWords);
    return s;
  }

  Memory memory_;
  std::vector<PersistentLayer> layers_;
  std::vector<PredictorPass> passes_;
  FrameKernelArguments a_;
};

// A frame of the form for 128 blocks, and of others on a model and a state of their own.
template <int kTalkerHidden, int kRows, typename Storage = Bf16Weights>
class Comparison {
 public:
  explicit Comparison(int position)
      : position_(position), expected_(MakeFrame().template Make<false>(kMaxBlocks, kManySlots)) {
    EXPECT_TRUE(std::any_of(expected_.codes.begin(), expected_.codes.end(), [](int code) { return code > 0; }));
    EXPECT_NE(expected_.predictor_logits[0], 0);
  }
  // `ring_slots`: an even number has two copying warps.
  void FoldedIsEqual(int blocks, int ring_slots) {
    EXPECT_TRUE(MakeFrame().template Make<true>(blocks, ring_slots) == expected_)
        << blocks << " blocks, " << ring_slots << " pieces";
  }

  const Results& expected() const { return expected_; }

  static constexpr int kManySlots = 8;

 private:
  Frame<kTalkerHidden, kRows, Storage> MakeFrame() { return Frame<kTalkerHidden, kRows, Storage>(position_); }

  int position_;
  Results expected_;
};

}  // namespace qtts::cuda::persistent

#endif  // QTTS_TESTS_EMULATED_CUDA_PERSISTENT_FRAMES_H_
