// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec/codec.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "codec/reference_cache.h"
#include "cpu/codec_decoder.h"
#include "cpu/cpu_backend.h"
#include "cpu/thread_pool.h"
#include "gpu/random_codec.h"
#include "prompt/prompt.h"
#include "runtime/device_memory.h"
#include "runtime/processor_part.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"

// The GPU codec against the CPU's, on random weights of several structures and on the bundled voice.
namespace qtts {
namespace {

using cuda::Codec;
using cuda::CodecPrecision;
using cuda::CodecRoom;
using testing::CodecShape;
using testing::RandomCodec;

constexpr uint32_t kSeed = 20261121;
constexpr double kLeastSnr = 75;  // dB, the limit of kExact
constexpr int kIdle = -1;
constexpr float kPoison = 77.0F;
constexpr CodecRoom kBeside = {.beside = true};

void ExpectCuda(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// An array on the device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    ExpectCuda(cudaMalloc(&data_, size_ * sizeof(T)));
    Set(values);
  }
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void Set(const std::vector<T>& values) {
    ExpectCuda(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    // Other streams don't wait for a copy from pageable memory, which may return before it has ended.
    ExpectCuda(cudaStreamSynchronize(nullptr));
  }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    ExpectCuda(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  T* data() const { return static_cast<T*>(data_); }

 private:
  size_t size_;
  void* data_ = nullptr;
};

// One stream of a batch: its slot, and its codes frame by frame.
struct StreamPart {
  int slot = kIdle;
  const std::vector<int32_t>* codes = nullptr;
};

// Decodes `frames` frames of all parts together, from frame `first` on; returns the samples of each. Checks that
// samples of idle rows are not written.
std::vector<std::vector<float>> Decode(Codec* codec, const std::vector<StreamPart>& parts, int first, int frames,
                                       CodecRoom room = {}) {
  const bool whole = room.processors == 0 && !room.beside;
  const size_t n = parts.size();
  const auto groups = static_cast<size_t>(codec->code_groups());
  const auto samples = static_cast<size_t>(codec->samples_per_frame());
  std::vector<std::vector<float>> pcm(n);
  std::vector<int32_t> slots;
  for (const StreamPart& part : parts) slots.push_back(part.slot);
  const DeviceArray<int32_t> device_slots(slots);
  DeviceArray<int32_t> codes(std::vector<int32_t>(n * groups, 0));
  DeviceArray<float> device_pcm(std::vector<float>(n * samples, kPoison));
  for (int frame = first; frame < first + frames; ++frame) {
    std::vector<int32_t> now(n * groups, 0);
    for (size_t b = 0; b < n; ++b) {
      if (parts[b].codes == nullptr) continue;
      std::copy_n(parts[b].codes->begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(frame) * groups), groups,
                  now.begin() + static_cast<std::ptrdiff_t>(b * groups));
    }
    codes.Set(now);
    device_pcm.Set(std::vector<float>(n * samples, kPoison));
    const Status status =
        whole ? codec->Decode(static_cast<int>(n), device_slots.data(), codes.data(), device_pcm.data(), nullptr)
              : codec->Begin(static_cast<int>(n), device_slots.data(), codes.data(), room, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!whole) {
      EXPECT_TRUE(codec->Finish(static_cast<int>(n), device_pcm.data(), room, nullptr).ok());
    }
    ExpectCuda(cudaDeviceSynchronize());
    const std::vector<float> all = device_pcm.Get();
    for (size_t b = 0; b < n; ++b) {
      pcm[b].insert(pcm[b].end(), all.begin() + static_cast<std::ptrdiff_t>(b * samples),
                    all.begin() + static_cast<std::ptrdiff_t>((b + 1) * samples));
    }
  }
  return pcm;
}

std::vector<float> DecodeOne(Codec* codec, int slot, const std::vector<int32_t>& codes) {
  EXPECT_TRUE(codec->Reset(slot, nullptr).ok());
  const int frames = static_cast<int>(codes.size()) / codec->code_groups();
  return Decode(codec, {{slot, &codes}}, 0, frames)[0];
}

// Decodes the whole utterance in one call.
std::vector<float> DecodeOnCpu(const CodecConfig& config, const CodecWeights& weights,
                               const std::vector<int32_t>& codes) {
  cpu::ThreadPool pool(8);
  cpu::CodecDecoder decoder(config, weights, pool);
  cpu::CodecDecoder::State state = decoder.NewState();
  const size_t frames = codes.size() / static_cast<size_t>(decoder.code_groups());
  std::vector<float> pcm(frames * static_cast<size_t>(decoder.samples_per_frame()));
  decoder.Decode(&state, codes, pcm);
  return pcm;
}

struct Difference {
  double snr = 0;  // dB
  double largest = 0;
  double rms = 0;  // of the expected samples
};

Difference Compare(const std::vector<float>& got, const std::vector<float>& expected) {
  Difference d;
  double signal = 0;
  double noise = 0;
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double e = static_cast<double>(got[i]) - expected[i];
    EXPECT_TRUE(std::isfinite(e)) << "sample " << i;
    if (!std::isfinite(e)) break;
    signal += static_cast<double>(expected[i]) * expected[i];
    noise += e * e;
    d.largest = std::max(d.largest, std::fabs(e));
  }
  d.rms = std::sqrt(signal / static_cast<double>(std::max<size_t>(expected.size(), 1)));
  d.snr = noise > 0 ? 10 * std::log10(signal / noise) : std::numeric_limits<double>::infinity();
  return d;
}

void Print(const std::string& what, const Difference& d) {
  std::printf("  %-40s SNR %6.1f dB  largest %.2e  rms %.3f\n", what.c_str(), d.snr, d.largest, d.rms);
}

template <typename T>
std::unique_ptr<T> Must(Result<std::unique_ptr<T>> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(*result) : nullptr;
}

// Structures without common divisors.
std::vector<CodecShape> OddShapes() {
  std::vector<CodecShape> shapes(4);
  shapes[1].codebook_dim = 26;
  shapes[1].groups = 3;
  shapes[1].latent = 33;
  shapes[1].hidden = 45;
  shapes[1].intermediate = 37;
  shapes[1].heads = 6;
  shapes[1].kv_heads = 2;
  shapes[1].head_dim = 12;
  shapes[1].window = 1;
  shapes[1].decoder_dim = 72;
  shapes[1].upsampling = {3};
  shapes[1].rates = {5, 2, 3};
  shapes[2].latent = 64;
  shapes[2].hidden = 32;
  shapes[2].window = 17;
  shapes[2].upsampling = {2, 3, 1};
  shapes[2].rates = {7, 1};
  shapes[3] = CodecShape::Released();  // its rates, its widths scaled down
  shapes[3].codebook_size = 64;
  shapes[3].codebook_dim = 64;
  shapes[3].latent = 128;
  shapes[3].hidden = 64;
  shapes[3].intermediate = 128;
  shapes[3].layers = 3;
  shapes[3].heads = 4;
  shapes[3].kv_heads = 4;
  shapes[3].head_dim = 32;
  shapes[3].window = 9;
  shapes[3].decoder_dim = 256;
  return shapes;
}

class CodecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      (void)cudaGetLastError();
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error);
    }
    std::printf("  seed %u\n", kSeed);
  }
};

TEST_F(CodecTest, OddStructuresAgreeWithTheCpu) {
  uint32_t seed = kSeed;
  for (const CodecShape& shape : OddShapes()) {
    SCOPED_TRACE("structure " + std::to_string(seed - kSeed));
    RandomCodec random(shape, seed);
    const std::vector<int32_t> codes = random.Codes(24);
    const std::vector<float> expected = DecodeOnCpu(random.config(), random.weights(), codes);
    const auto exact = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kF32, 2, 1));
    const auto fast = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 2, 1));
    ASSERT_TRUE(exact && fast);
    const Difference exact_difference = Compare(DecodeOne(exact.get(), 1, codes), expected);
    const Difference fast_difference = Compare(DecodeOne(fast.get(), 1, codes), expected);
    Print("structure " + std::to_string(seed - kSeed) + ", F32", exact_difference);
    Print("structure " + std::to_string(seed - kSeed) + ", fast", fast_difference);
    EXPECT_GT(exact_difference.rms, 0.01);
    EXPECT_LT(exact_difference.largest, 1e-5);
    EXPECT_GT(exact_difference.snr, 95);
    EXPECT_GT(fast_difference.snr, kLeastSnr);
    ++seed;
  }
}

TEST_F(CodecTest, ReleasedStructureAgreesWithTheCpu) {
  RandomCodec random(CodecShape::Released(), kSeed);
  const std::vector<int32_t> codes = random.Codes(10);
  const std::vector<float> expected = DecodeOnCpu(random.config(), random.weights(), codes);
  const auto exact = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kF32, 1, 1));
  ASSERT_TRUE(exact);
  const Difference difference = Compare(DecodeOne(exact.get(), 0, codes), expected);
  Print("released structure, F32", difference);
  EXPECT_GT(difference.rms, 0.01);
  EXPECT_LT(difference.largest, 2e-5);
  EXPECT_GT(difference.snr, 95);
  constexpr double kLeastOnePlaneSnr = 55;
  for (const auto& [precision, least] :
       {std::pair(CodecPrecision::kExact, kLeastSnr), std::pair(CodecPrecision::kFast, kLeastOnePlaneSnr)}) {
    const auto fast = Must(Codec::Create(random.config(), random.weights(), precision, 1, 1));
    ASSERT_TRUE(fast);
    EXPECT_GT(Compare(DecodeOne(fast.get(), 0, codes), expected).snr, least);
  }
}

// A stream's samples are the same alone, among a few streams and among 256 (the slice size of the codec), from the
// first frame on and with earlier frames.
TEST_F(CodecTest, AStreamAmong256SoundsAsAlone) {
  constexpr int kStreams = 256;
  constexpr int kFrames = 3;
  RandomCodec random(CodecShape::Released(), kSeed);
  for (const CodecPrecision precision : {CodecPrecision::kExact, CodecPrecision::kFast}) {
    const auto codec = Must(Codec::Create(random.config(), random.weights(), precision, kStreams, kStreams));
    ASSERT_TRUE(codec);
    const auto groups = static_cast<size_t>(codec->code_groups());
    const auto samples = static_cast<size_t>(codec->samples_per_frame());
    std::vector<int32_t> slots(kStreams);
    std::iota(slots.begin(), slots.end(), 0);
    slots[17] = kIdle;
    const std::vector<int32_t> codes = random.Codes(kFrames * kStreams);  // [frame][stream][group]
    const DeviceArray<int32_t> device_slots(slots), device_codes(codes);
    const DeviceArray<float> pcm(std::vector<float>(kStreams * samples));
    // Samples of the streams, frame by frame.
    const auto decode = [&](int first, int count) {
      std::vector<float> out;
      for (int i = first; i < first + count; ++i) EXPECT_TRUE(codec->Reset(i, nullptr).ok());
      for (int frame = 0; frame < kFrames; ++frame) {
        const size_t at = static_cast<size_t>(frame * kStreams + first) * groups;
        const Status status =
            codec->Decode(count, device_slots.data() + first, device_codes.data() + at, pcm.data(), nullptr);
        EXPECT_TRUE(status.ok()) << status.message();
        const std::vector<float> some = pcm.Get();
        out.insert(out.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count * samples));
      }
      return out;
    };
    for (const int together : {kStreams, 61}) {
      const std::vector<float> all = decode(0, together);
      for (const int stream : {0, 1, 18, 60, 100, 255}) {
        if (stream >= together) continue;
        const std::vector<float> alone = decode(stream, 1);
        for (int frame = 0; frame < kFrames; ++frame) {
          const auto expected = alone.begin() + static_cast<std::ptrdiff_t>(frame * samples);
          const auto got = all.begin() + static_cast<std::ptrdiff_t>((frame * together + stream) * samples);
          EXPECT_TRUE(std::equal(expected, expected + static_cast<std::ptrdiff_t>(samples), got))
              << "stream " << stream << " of " << together << ", frame " << frame;
        }
      }
    }
  }
}

// The codes of `text`, by a model.
std::vector<int32_t> Speak(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& text) {
  const auto tokenizer = Tokenizer::Load(checkpoint->folder());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto builder = PromptBuilder::Create(checkpoint->config(), *tokenizer);
  EXPECT_TRUE(builder.ok()) << builder.status().message();
  TextFeed feed(*tokenizer);
  EXPECT_TRUE(feed.Append(text).ok() && feed.Finish().ok());
  Request request;
  request.settings = checkpoint->config().defaults;
  const auto prompt = builder->Build(request, feed.TakeIds(), true);
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  const auto backend = Must(CreateCpuBackend(checkpoint, 8));
  const auto slot = backend->Open(*prompt, request.settings, kSeed);
  EXPECT_TRUE(slot.ok()) << slot.status().message();
  std::vector<int32_t> codes;
  constexpr size_t kMostFrames = 200;
  for (size_t frame = 0; frame < kMostFrames; ++frame) {
    FrameStep step{*slot, kNoText};
    if (frame > 0) {
      step.text_id = frame <= prompt->trailing_text.size() ? prompt->trailing_text[frame - 1] : prompt->pad_text_id;
    }
    EXPECT_TRUE(backend->Submit({&step, 1}).ok());
    const auto results = backend->Collect();
    EXPECT_TRUE(results.ok());
    if (!results.ok() || (*results)[0].end != EndReason::kNone) break;
    codes.insert(codes.end(), (*results)[0].codes.begin(), (*results)[0].codes.end());
  }
  return codes;
}

TEST_F(CodecTest, BundledVoiceAgreesWithTheCpu) {
  const char* const folder = std::getenv("QTTS_VOICE_PATH");
  if (folder == nullptr) GTEST_SKIP() << "QTTS_VOICE_PATH does not name the bundled voice";
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const CodecConfig& config = (*checkpoint)->config().codec;
  const CodecWeights& weights = (*checkpoint)->codec();
  const std::vector<int32_t> codes = Speak(*checkpoint, "The quick brown fox jumps over the lazy dog, twice a day.");
  const size_t frames = codes.size() / weights.codebooks.size();
  std::printf("  %zu frames\n", frames);
  ASSERT_GE(frames, 20U);
  const std::vector<float> expected = DecodeOnCpu(config, weights, codes);
  const auto exact = Must(Codec::Create(config, weights, CodecPrecision::kF32, 1, 1));
  ASSERT_TRUE(exact);
  const Difference difference = Compare(DecodeOne(exact.get(), 0, codes), expected);
  Print("bundled voice, F32", difference);
  EXPECT_GT(difference.rms, 0.005);
  EXPECT_LT(difference.largest, 1e-5);
  const auto one_plane = Must(Codec::Create(config, weights, CodecPrecision::kFast, 1, 1));
  ASSERT_TRUE(one_plane);
  Print("bundled voice, one plane", Compare(DecodeOne(one_plane.get(), 0, codes), expected));
  const auto fast = Must(Codec::Create(config, weights, CodecPrecision::kExact, 1, 1));
  ASSERT_TRUE(fast);
  EXPECT_GT(Compare(DecodeOne(fast.get(), 0, codes), expected).snr, kLeastSnr);
}

// test(random, precision) for odd structures and a short one of the released widths, in both precisions.
template <typename Test>
void ForEachStructure(const Test& test) {
  std::vector<CodecShape> shapes = OddShapes();
  shapes.push_back(CodecShape::Released());
  shapes.back().layers = 2;
  uint32_t seed = kSeed;
  for (const CodecShape& shape : shapes) {
    for (const CodecPrecision precision : {CodecPrecision::kExact, CodecPrecision::kF32}) {
      SCOPED_TRACE("structure " + std::to_string(seed - kSeed) +
                   (precision == CodecPrecision::kExact ? ", exact" : ", F32"));
      RandomCodec random(shape, seed);
      test(random, precision);
    }
    ++seed;
  }
}

// The same bits as alone, for any other rows of the batch, any positions and any batch capacity.
TEST_F(CodecTest, RowsDoNotDependOnTheBatch) {
  constexpr int kMostRows = 48;
  constexpr int kFrames = 3;
  ForEachStructure([&](RandomCodec& random, CodecPrecision precision) {
    const auto codec = Must(Codec::Create(random.config(), random.weights(), precision, kMostRows + 1, kMostRows));
    ASSERT_TRUE(codec);
    std::vector<std::vector<int32_t>> codes;
    std::vector<std::vector<float>> alone;
    for (int i = 0; i < kMostRows; ++i) {
      codes.push_back(random.Codes(kFrames));
      alone.push_back(DecodeOne(codec.get(), kMostRows, codes.back()));
    }
    for (int round = 0; round < 2 * 6; ++round) {
      constexpr int kBatches[] = {1, 2, 3, 8, 19, kMostRows};
      constexpr int kProcessors[] = {0, 64, 20, 0, 64, 20};
      const int n = kBatches[round / 2];
      const CodecRoom room = round % 2 == 0 ? CodecRoom{.processors = kProcessors[round / 2]} : kBeside;
      std::vector<StreamPart> parts;
      for (int b = 0; b < n; ++b) {
        const int stream = (b * 5 + n) % kMostRows;  // slots in no order; some rows idle
        parts.push_back(b % 7 == 3 ? StreamPart{} : StreamPart{stream, &codes[static_cast<size_t>(stream)]});
        ASSERT_TRUE(codec->Reset(stream, nullptr).ok());
      }
      const std::vector<std::vector<float>> together = Decode(codec.get(), parts, 0, kFrames, room);
      for (size_t b = 0; b < parts.size(); ++b) {
        const std::vector<float> expected = parts[b].slot == kIdle ? std::vector<float>(together[b].size(), kPoison)
                                                                   : alone[static_cast<size_t>(parts[b].slot)];
        ASSERT_EQ(together[b], expected) << "row " << b << " of " << n;
      }
    }
  });
}

// All kernels except those of warpgroups, including cluster products, in both batch capacities, with minimal work for
// compute-sanitizer.
TEST_F(CodecTest, SmallForTheSanitizer) {
  RandomCodec random(OddShapes()[3], kSeed);
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 3, 3));
  ASSERT_TRUE(codec);
  constexpr int kFrames = 2;
  const std::vector<int32_t> codes = random.Codes(kFrames);
  const std::vector<float> alone = DecodeOne(codec.get(), 0, codes);
  ASSERT_TRUE(codec->Reset(1, nullptr).ok());
  EXPECT_EQ(Decode(codec.get(), {{1, &codes}}, 0, kFrames, kBeside)[0], alone);
  for (int slot = 0; slot < 3; ++slot) ASSERT_TRUE(codec->Reset(slot, nullptr).ok());
  for (const std::vector<float>& together :
       Decode(codec.get(), {{2, &codes}, {0, &codes}, {1, &codes}}, 0, kFrames, CodecRoom())) {
    EXPECT_EQ(together, alone);
  }
}

// The kernels of warpgroups, in both shapes of their tiles, with minimal work for compute-sanitizer.
TEST_F(CodecTest, ManyStreamsForTheSanitizer) {
  CodecShape shape = OddShapes()[3];
  shape.decoder_dim = 384;
  RandomCodec random(shape, kSeed);
  constexpr int kStreams = 16;
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, kStreams, kStreams));
  ASSERT_TRUE(codec);
  const std::vector<int32_t> codes = random.Codes(1);
  const std::vector<float> alone = DecodeOne(codec.get(), 0, codes);
  std::vector<StreamPart> parts;
  for (int slot = 0; slot < kStreams; ++slot) {
    ASSERT_TRUE(codec->Reset(slot, nullptr).ok());
    parts.push_back({slot, &codes});
  }
  for (const std::vector<float>& together : Decode(codec.get(), parts, 0, 1, CodecRoom())) {
    EXPECT_EQ(together, alone);
  }
}

// Confined to a part of the SMs, whose graph is launched on a stream that has all.
TEST_F(CodecTest, TheSameSamplesOnAPartOfTheSms) {
  constexpr int kStreams = 20;
  RandomCodec random(OddShapes()[3], kSeed);
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, kStreams, kStreams));
  ASSERT_TRUE(codec);
  const auto samples = static_cast<size_t>(codec->samples_per_frame());
  std::vector<int32_t> codes, slots;
  std::vector<float> alone;
  for (int slot = 0; slot < kStreams; ++slot) {
    const std::vector<int32_t> own = random.Codes(1);
    const std::vector<float> sound = DecodeOne(codec.get(), slot, own);
    codes.insert(codes.end(), own.begin(), own.end());
    alone.insert(alone.end(), sound.begin(), sound.end());
    slots.push_back(slot);
  }
  const DeviceArray<int32_t> device_slots(slots), device_codes(codes);
  DeviceArray<float> pcm(std::vector<float>(kStreams * samples, kPoison));
  const auto stream = cuda::Stream::Create();
  ASSERT_TRUE(stream.ok());
  for (const int eighths : {4, 5, 6, 8}) {
    const auto part = cuda::ProcessorPart::Create(eighths, eighths == 6);
    ASSERT_TRUE(part.ok()) << part.status().message();
    const CodecRoom room = {.processors = part->processors()};
    const auto graph = cuda::Graph::Capture(part->stream(), [&]() -> Status {
      QTTS_RETURN_IF_ERROR(codec->Begin(kStreams, device_slots.data(), device_codes.data(), room, part->stream()));
      return codec->Finish(kStreams, pcm.data(), room, part->stream());
    });
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    for (const int slot : slots) ASSERT_TRUE(codec->Reset(slot, stream->get()).ok());
    pcm.Set(std::vector<float>(kStreams * samples, kPoison));
    ASSERT_TRUE(graph->Launch(stream->get()).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(pcm.Get(), alone) << eighths << " eighths";
  }
}

// Streams that begin, pause and end at different times.
TEST_F(CodecTest, IdleRowsAndResetKeepStreamsApart) {
  RandomCodec random(OddShapes()[0], kSeed);
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 3, 3));
  ASSERT_TRUE(codec);
  const std::vector<int32_t> a = random.Codes(12);
  const std::vector<int32_t> b = random.Codes(12);
  const std::vector<float> a_alone = DecodeOne(codec.get(), 0, a);
  const std::vector<float> b_alone = DecodeOne(codec.get(), 0, b);
  EXPECT_NE(a_alone, b_alone);

  for (int slot = 0; slot < 3; ++slot) ASSERT_TRUE(codec->Reset(slot, nullptr).ok());
  std::vector<float> a_pieces;
  const auto append = [](std::vector<float>* to, const std::vector<float>& more) {
    to->insert(to->end(), more.begin(), more.end());
  };
  append(&a_pieces, Decode(codec.get(), {{2, &a}, {0, &b}}, 0, 5)[0]);
  Decode(codec.get(), {{kIdle, nullptr}, {0, &b}, {3, &b}}, 5, 2);  // there is no slot 3
  ASSERT_TRUE(codec->Reset(0, nullptr).ok());                       // b begins again; a must not change
  std::vector<float> b_pieces = Decode(codec.get(), {{0, &b}}, 0, 5)[0];
  const auto both = Decode(codec.get(), {{0, &b}, {kIdle, nullptr}, {2, &a}}, 5, 7);
  append(&b_pieces, both[0]);
  append(&a_pieces, both[2]);
  EXPECT_EQ(a_pieces, a_alone);
  EXPECT_EQ(b_pieces, b_alone);
}

// Frames before the receptive field of the output may be processed without sound. A restored state gives the same
// samples as a computed one, whatever the slot held before.
TEST_F(CodecTest, PastsCanBeFollowedAndKept) {
  constexpr int kFollowed = 5;
  constexpr int kHeard = 4;
  ForEachStructure([&](RandomCodec& random, CodecPrecision precision) {
    const auto codec = Must(Codec::Create(random.config(), random.weights(), precision, 3, 1));
    ASSERT_TRUE(codec);
    const auto groups = static_cast<size_t>(codec->code_groups());
    const int reference = kFollowed + codec->sound_history();
    const std::vector<int32_t> codes = random.Codes(reference + kHeard);
    std::vector<float> expected = DecodeOne(codec.get(), 0, codes);
    expected.erase(expected.begin(),
                   expected.begin() + static_cast<std::ptrdiff_t>(reference) * codec->samples_per_frame());
    const std::vector<int32_t> others = random.Codes(kHeard);
    for (const int slot : {1, 2}) DecodeOne(codec.get(), slot, others);

    // The device array of codes: the whole reference, taken frame by frame.
    const DeviceArray<int32_t> device_codes(codes);
    const DeviceArray<int32_t> slot(std::vector<int32_t>{1});
    const auto follow = [&](int frames) {
      ASSERT_TRUE(codec->Reset(1, nullptr).ok());
      for (int frame = 0; frame < frames; ++frame) {
        const Status status = codec->DecodeWithoutSamples(
            1, slot.data(), device_codes.data() + static_cast<size_t>(frame) * groups, nullptr);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      Decode(codec.get(), {{1, &codes}}, frames, reference - frames);
    };
    follow(kFollowed);
    const DeviceArray<char> past(std::vector<char>(codec->past_bytes()));
    ASSERT_TRUE(codec->Save(1, past.data(), nullptr).ok());
    EXPECT_EQ(Decode(codec.get(), {{1, &codes}}, reference, kHeard)[0], expected);
    for (const int to : {2, 1, 2}) {
      ASSERT_TRUE(codec->Restore(to, past.data(), nullptr).ok());
      EXPECT_EQ(Decode(codec.get(), {{to, &codes}}, reference, kHeard)[0], expected) << "slot " << to;
    }
    // If the end of the reference is processed without sound too, the samples must differ.
    follow(reference);
    EXPECT_NE(Decode(codec.get(), {{1, &codes}}, reference, kHeard)[0], expected);
  });
}

// The least recently used state is evicted and its memory is freed.
TEST_F(CodecTest, ReferencesAreKeptWithinBounds) {
  using cuda::ReferenceCache;
  const std::vector<std::vector<int32_t>> codes = {{1}, {1, 2}, {}, {3}, {4}};
  ReferenceCache cache(ReferenceCache::kMaxBytes / 3);
  std::vector<void*> places;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.Find(codes[i]), nullptr);
    places.push_back(cache.Add(codes[i]));
    ASSERT_NE(places.back(), nullptr);
  }
  EXPECT_EQ(cache.Find(codes[0]), places[0]);
  EXPECT_EQ(cache.Add(codes[3]), places[1]);
  EXPECT_EQ(cache.Find(codes[1]), nullptr);
  EXPECT_EQ(cache.Find(codes[3]), places[1]);
  EXPECT_EQ(cache.Find(codes[2]), places[2]);
  EXPECT_EQ(cache.Add(codes[4]), places[0]);
  EXPECT_LE(cache.bytes(), ReferenceCache::kMaxBytes);
  // The maximum number of states, of any size.
  ReferenceCache small(1);
  for (int i = 0; i < 100; ++i) ASSERT_NE(small.Add(std::vector<int32_t>{i}), nullptr);
  EXPECT_EQ(small.bytes(), ReferenceCache::kMaxValues);
  // A state larger than the limit.
  ReferenceCache large(ReferenceCache::kMaxBytes + 1);
  void* const only = large.Add(codes[0]);
  ASSERT_NE(only, nullptr);
  EXPECT_EQ(large.Add(codes[1]), only);
  EXPECT_EQ(large.Find(codes[0]), nullptr);
}

TEST_F(CodecTest, ReplayedGraphGivesTheSame) {
  RandomCodec random(OddShapes()[3], kSeed);
  constexpr int kFrames = 30;
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 2, 2));
  ASSERT_TRUE(codec);
  const std::vector<int32_t> codes = random.Codes(kFrames);
  const std::vector<float> expected = DecodeOne(codec.get(), 0, codes);

  const auto groups = static_cast<size_t>(codec->code_groups());
  const DeviceArray<int32_t> slots({1, kIdle});
  DeviceArray<int32_t> now(std::vector<int32_t>(2 * groups, 0));
  const DeviceArray<float> pcm(std::vector<float>(2 * static_cast<size_t>(codec->samples_per_frame()), kPoison));
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ExpectCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ExpectCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const Status status = codec->Decode(2, slots.data(), now.data(), pcm.data(), stream);
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectCuda(cudaStreamEndCapture(stream, &graph));
  ExpectCuda(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_TRUE(codec->Reset(1, stream).ok());
  std::vector<float> got;
  for (int frame = 0; frame < kFrames; ++frame) {
    std::vector<int32_t> values(2 * groups, 0);
    std::copy_n(codes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(frame) * groups), groups,
                values.begin());
    now.Set(values);
    ExpectCuda(cudaGraphLaunch(exec, stream));
    ExpectCuda(cudaStreamSynchronize(stream));
    const std::vector<float> all = pcm.Get();
    got.insert(got.end(), all.begin(), all.begin() + codec->samples_per_frame());
    EXPECT_EQ(all.back(), kPoison);
  }
  EXPECT_EQ(got, expected);
  ExpectCuda(cudaGraphExecDestroy(exec));
  ExpectCuda(cudaGraphDestroy(graph));
  ExpectCuda(cudaStreamDestroy(stream));
}

TEST_F(CodecTest, CodesOutsideTheCodebookAreClamped) {
  RandomCodec random(OddShapes()[0], kSeed);
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 1, 1));
  ASSERT_TRUE(codec);
  std::vector<int32_t> codes = random.Codes(3);
  codes[0] = 0;
  codes[5] = random.config().codebook_size - 1;
  const std::vector<float> expected = DecodeOne(codec.get(), 0, codes);
  codes[0] = -1;
  codes[5] = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(DecodeOne(codec.get(), 0, codes), expected);
}

TEST_F(CodecTest, ErrorsSayWhatIsWrong) {
  RandomCodec random(OddShapes()[0], kSeed);
  EXPECT_EQ(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 0, 1).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 1, 0).status().code(),
            StatusCode::kInvalidArgument);
  CodecConfig config = random.config();
  config.transformer.sliding_window = 0;
  EXPECT_EQ(Codec::Create(config, random.weights(), CodecPrecision::kExact, 1, 1).status().code(),
            StatusCode::kUnsupported);
  const auto codec = Must(Codec::Create(random.config(), random.weights(), CodecPrecision::kExact, 2, 1));
  ASSERT_TRUE(codec);
  EXPECT_EQ(codec->Reset(2, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Reset(-1, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Save(2, nullptr, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Save(1, nullptr, nullptr).code(), StatusCode::kInvalidArgument) << "never reset";
  EXPECT_EQ(codec->Restore(2, nullptr, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->DecodeWithoutSamples(2, nullptr, nullptr, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Decode(2, nullptr, nullptr, nullptr, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Begin(2, nullptr, nullptr, {}, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(codec->Finish(2, nullptr, kBeside, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(codec->Decode(0, nullptr, nullptr, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace qtts
