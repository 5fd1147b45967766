// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/codec_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "naive.h"
#include "random_tensors.h"

namespace qtts::cpu {
namespace {

struct Case {
  const char* name;
  CodecConfig config;
  DType dtype;
  Arithmetic arithmetic = Arithmetic::kF32;
};

struct Sizes {
  int quantizers;
  int codebook_dim;
  int latent_dim;
  int decoder_dim;
  std::vector<int> rates;
  std::vector<int> ratios;
  int window;
};

CodecConfig Config(const Sizes& sizes) {
  CodecConfig config;
  config.transformer.hidden_size = 24;
  config.transformer.intermediate_size = 40;
  config.transformer.num_layers = 2;
  config.transformer.num_heads = 2;
  config.transformer.num_kv_heads = 2;
  config.transformer.head_dim = 16;
  config.transformer.max_positions = 8000;
  config.transformer.sliding_window = sizes.window;
  config.transformer.rms_norm_eps = 1e-5F;
  config.transformer.rope_theta = 10000;
  config.transformer.qk_norm = false;
  config.codebook_size = 32;
  config.codebook_dim = sizes.codebook_dim;
  config.latent_dim = sizes.latent_dim;
  config.decoder_dim = sizes.decoder_dim;
  config.num_quantizers = sizes.quantizers;
  config.num_semantic_quantizers = 1;
  config.sample_rate = 24000;
  config.samples_per_frame = 1;
  for (const int rate : sizes.rates) config.samples_per_frame *= rate;
  for (const int ratio : sizes.ratios) config.samples_per_frame *= ratio;
  config.upsample_rates = sizes.rates;
  config.upsampling_ratios = sizes.ratios;
  return config;
}

std::vector<Case> Cases() {
  return {
      {"AsPublished", Config({4, 16, 16, 32, {8, 5, 4, 3}, {2, 2}, 6}), DType::kF32},
      {"Half", Config({3, 16, 24, 32, {4, 3}, {2}, 5}), DType::kF16},
      {"BFloat", Config({2, 12, 20, 16, {2, 7}, {3, 2}, 72}), DType::kBF16},
      {"OddSizes", Config({5, 6, 11, 20, {5, 2}, {1, 4}, 3}), DType::kF32},
      // Large enough for several threads per loop.
      {"Wide", Config({2, 16, 48, 96, {4, 3}, {2}, 5}), DType::kF16},
      {"NoUpsampleStages", Config({2, 8, 8, 8, {3}, {}, 4}), DType::kF32},
      {"ProductsOfBF16", Config({5, 6, 11, 20, {5, 2}, {1, 4}, 3}), DType::kF32, Arithmetic::kBF16},
      // Wide enough for int8 from the second block on, and so long that units are fused over both convolutions.
      {"ProductsOfBytes", Config({2, 16, 48, 384, {4, 5}, {2, 2}, 5}), DType::kF32, Arithmetic::kInt8},
      {"ProductsOfBytesFromHalf", Config({3, 16, 24, 400, {2, 2}, {2}, 5}), DType::kF16, Arithmetic::kInt4},
  };
}

class CodecDecoderTest : public testing::TestWithParam<Case> {
 protected:
  CodecDecoderTest()
      : random_(31),
        config_(GetParam().config),
        weights_(RandomCodec(config_, GetParam().dtype, &random_)),
        pool_(2),
        packer_(GetParam().arithmetic, pool_),
        decoder_(config_, weights_, pool_, &packer_) {}

  std::vector<int32_t> RandomCodes(int frames) {
    std::vector<int32_t> codes(static_cast<size_t>(frames * config_.num_quantizers));
    for (int32_t& code : codes) code = random_.Integer(0, config_.codebook_size - 1);
    return codes;
  }

  static std::vector<float> Decode(CodecDecoder* decoder, CodecDecoder::State* state,
                                   const std::vector<int32_t>& codes) {
    const int64_t frames = static_cast<int64_t>(codes.size()) / decoder->code_groups();
    std::vector<float> pcm(static_cast<size_t>(frames * decoder->samples_per_frame()));
    decoder->Decode(state, codes, pcm);
    return pcm;
  }

  std::vector<float> DecodeWhole(const std::vector<int32_t>& codes) {
    CodecDecoder::State state = decoder_.NewState();
    return Decode(&decoder_, &state, codes);
  }

  RandomTensors random_;
  CodecConfig config_;
  CodecWeights weights_;
  ThreadPool pool_;
  WeightPacker packer_;
  CodecDecoder decoder_;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(0, memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

TEST_P(CodecDecoderTest, EqualsTheNaiveOne) {
  const std::vector<int32_t> codes = RandomCodes(13);
  const naive::Vector expected = naive::Codec(config_, weights_, codes);
  const std::vector<float> got = DecodeWhole(codes);
  ASSERT_EQ(expected.size(), got.size());
  // F32 differs by rounding only; quantised products by their quantisation steps.
  const bool exact = GetParam().arithmetic == Arithmetic::kF32;
  double loudest = 0;
  double signal = 0;
  double error = 0;
  size_t clipped = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    loudest = std::max(loudest, std::fabs(expected[i]));
    clipped += std::fabs(expected[i]) == 1.0 ? 1 : 0;
    signal += expected[i] * expected[i];
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    if (!exact) continue;
    ASSERT_NEAR(expected[i], static_cast<double>(got[i]), 1e-5) << "sample " << i << ", " << random_.Describe();
  }
  const double snr = 10 * std::log10(signal / error);
  RecordProperty("snr", std::to_string(snr));
  EXPECT_GT(snr, GetParam().arithmetic == Arithmetic::kBF16 ? 35 : 28);
  // The signal must not be near zero.
  EXPECT_GT(loudest, 0.05);
  EXPECT_LT(clipped, got.size() / 2);
}

TEST_P(CodecDecoderTest, StreamingEqualsWhole) {
  const int frames = 33;
  const std::vector<int32_t> codes = RandomCodes(frames);
  const std::vector<float> whole = DecodeWhole(codes);
  for (const int most : {1, 3, 20}) {
    CodecDecoder::State state = decoder_.NewState();
    std::vector<float> pieces;
    for (int t = 0; t < frames;) {
      const int count = std::min(frames - t, random_.Integer(1, most));
      const auto begin = codes.begin() + t * config_.num_quantizers;
      const std::vector<float> pcm =
          Decode(&decoder_, &state, std::vector<int32_t>(begin, begin + count * config_.num_quantizers));
      pieces.insert(pieces.end(), pcm.begin(), pcm.end());
      t += count;
    }
    ExpectSameBits(whole, pieces);
  }
}

// Lengths below, near and above the receptive field.
TEST_P(CodecDecoderTest, PrimingEqualsDecoding) {
  for (const int frames : {0, 1, 8, 9, 11, 30, 41, 75, 120}) {
    SCOPED_TRACE(frames);
    const std::vector<int32_t> codes = RandomCodes(frames);
    const std::vector<int32_t> next = RandomCodes(5);
    CodecDecoder::State decoded = decoder_.NewState();
    Decode(&decoder_, &decoded, codes);
    CodecDecoder::State primed = decoder_.NewState();
    for (int64_t frame = 0; frame < frames;) {
      const int64_t end = decoder_.Prime(&primed, codes, frame);
      ASSERT_GT(end, frame);
      frame = end;
    }
    ExpectSameBits(Decode(&decoder_, &decoded, next), Decode(&decoder_, &primed, next));
  }
}

TEST_P(CodecDecoderTest, StreamsDoNotDisturbEachOther) {
  const std::vector<int32_t> first = RandomCodes(9);
  const std::vector<int32_t> second = RandomCodes(9);
  CodecDecoder::State a = decoder_.NewState();
  CodecDecoder::State b = decoder_.NewState();
  std::vector<float> got_first, got_second;
  for (int t = 0; t < 9; ++t) {
    const auto frame = [&](const std::vector<int32_t>& codes) {
      const auto begin = codes.begin() + t * config_.num_quantizers;
      return std::vector<int32_t>(begin, begin + config_.num_quantizers);
    };
    const std::vector<float> x = Decode(&decoder_, &a, frame(first));
    const std::vector<float> y = Decode(&decoder_, &b, frame(second));
    got_first.insert(got_first.end(), x.begin(), x.end());
    got_second.insert(got_second.end(), y.begin(), y.end());
  }
  ExpectSameBits(DecodeWhole(first), got_first);
  ExpectSameBits(DecodeWhole(second), got_second);
}

TEST_P(CodecDecoderTest, ThreadsChangeNothing) {
  const std::vector<int32_t> codes = RandomCodes(10);
  const std::vector<float> two = DecodeWhole(codes);
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    WeightPacker packer(GetParam().arithmetic, pool);
    CodecDecoder other(config_, weights_, pool, &packer);
    CodecDecoder::State state = other.NewState();
    ExpectSameBits(two, Decode(&other, &state, codes));
  }
}

INSTANTIATE_TEST_SUITE_P(Structures, CodecDecoderTest, testing::ValuesIn(Cases()),
                         [](const auto& structure) { return std::string(structure.param.name); });

// A transposed convolution as a causal one, against its definition.
TEST(CausalConvTest, TransposedWithAnyMultipleOfTheStride) {
  RandomTensors random(3);
  ThreadPool pool(1);
  for (const int stride : {1, 2, 3, 5}) {
    for (const int multiple : {1, 2, 3}) {
      const int kernel = stride * multiple;
      const int ins = random.Integer(1, 9);
      const int outs = random.Integer(1, 20);
      const int rows = 6;
      ConvWeights weights;
      weights.weight = random.Tensor({ins, outs, kernel}, DType::kF32);
      const CausalConv conv = CausalConv::Transposed(weights, stride, pool);
      EXPECT_EQ(conv.history(), multiple - 1);
      std::vector<float> x(static_cast<size_t>(conv.history() * ins));  // silence
      const std::vector<float> signal = random.Floats(rows * ins);
      x.insert(x.end(), signal.begin(), signal.end());
      std::vector<float> y(static_cast<size_t>(rows * stride * outs));
      conv.Run(pool, x.data(), rows, false, y.data());

      std::vector<double> expected(static_cast<size_t>(((rows - 1) * stride + kernel) * outs));
      const std::vector<double> w = Values(weights.weight);
      for (int t = 0; t < rows; ++t) {
        for (int c = 0; c < ins; ++c) {
          for (int o = 0; o < outs; ++o) {
            for (int j = 0; j < kernel; ++j) {
              expected[static_cast<size_t>((t * stride + j) * outs + o)] +=
                  w[static_cast<size_t>((c * outs + o) * kernel + j)] *
                  static_cast<double>(signal[static_cast<size_t>(t * ins + c)]);
            }
          }
        }
      }
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(expected[i], static_cast<double>(y[i]), 1e-5);
    }
  }
}

// A strided convolution as a plain one over wide rows, against its definition.
TEST(CausalConvTest, StridedWithAnyMultipleOfTheStride) {
  RandomTensors random(4);
  ThreadPool pool(1);
  for (const int stride : {1, 2, 3, 5}) {
    for (const int multiple : {1, 2, 3}) {
      const int kernel = stride * multiple;
      const int ins = random.Integer(1, 9);
      const int outs = random.Integer(1, 20);
      const int rows = 6;
      ConvWeights weights;
      weights.weight = random.Tensor({outs, ins, kernel}, DType::kF32);
      const CausalConv conv = CausalConv::Strided(weights, stride, pool);
      ASSERT_EQ(conv.history(), multiple - 1);
      ASSERT_EQ(conv.in(), stride * ins);
      const std::vector<float> x = random.Floats((conv.history() + rows) * conv.in());
      std::vector<float> y(static_cast<size_t>(rows * outs));
      conv.Run(pool, x.data(), rows, false, y.data());
      const std::vector<double> w = Values(weights.weight);
      for (int t = 0; t < rows; ++t) {
        for (int o = 0; o < outs; ++o) {
          double expected = 0;
          for (int c = 0; c < ins; ++c) {
            for (int j = 0; j < kernel; ++j) {
              expected += w[static_cast<size_t>((o * ins + c) * kernel + j)] *
                          static_cast<double>(x[static_cast<size_t>((t * stride + j) * ins + c)]);
            }
          }
          ASSERT_NEAR(expected, static_cast<double>(y[static_cast<size_t>(t * outs + o)]), 1e-5);
        }
      }
    }
  }
}

// A damaged model is detected by a NaN in the output, wherever a weight is NaN.
TEST_P(CodecDecoderTest, WeightsThatAreNotFiniteMakeNan) {
  if (GetParam().dtype != DType::kF32) GTEST_SKIP() << "one dtype is enough";
  const std::vector<int32_t> codes = RandomCodes(3);
  const auto damaged = [&](TensorView* tensor) {
    std::vector<float> copy(static_cast<const float*>(tensor->data),
                            static_cast<const float*>(tensor->data) + tensor->elements());
    copy[copy.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    const void* const before = std::exchange(tensor->data, copy.data());
    WeightPacker packer(GetParam().arithmetic, pool_);
    CodecDecoder decoder(config_, weights_, pool_, &packer);
    CodecDecoder::State state = decoder.NewState();
    const std::vector<float> pcm = Decode(&decoder, &state, codes);
    tensor->data = before;
    return std::any_of(pcm.begin(), pcm.end(), [](float sample) { return std::isnan(sample); });
  };
  for (TensorView* const tensor :
       {&weights_.pre_conv.weight, &weights_.transformer.layers[0].gate, &weights_.first_conv.weight,
        &weights_.blocks.back().transposed.weight, &weights_.blocks.back().residuals[1].conv1.weight,
        &weights_.blocks.back().residuals[2].conv2.weight, &weights_.last_conv.weight}) {
    EXPECT_TRUE(damaged(tensor));
  }
}

// A codeword that training did not use has a usage near zero; its sum is divided by 1e-5 instead.
TEST(CodecDecoderTest, LeastUsage) {
  RandomTensors random(5);
  ThreadPool pool(1);
  const CodecConfig config = Config(
      {.quantizers = 2, .codebook_dim = 8, .latent_dim = 8, .decoder_dim = 8, .rates = {3}, .ratios = {}, .window = 4});
  CodecWeights weights = RandomCodec(config, DType::kF32, &random);
  std::vector<float> usage(32, 1.0F);
  usage[7] = 0;
  std::vector<float> sums(static_cast<size_t>(32 * 4), 1.0F);
  for (size_t i = 7 * 4; i < 8 * 4; ++i) sums[i] = 1e-5F;
  for (CodebookWeights& codebook : weights.codebooks) {
    codebook.embedding_sum.data = sums.data();
    codebook.cluster_usage.data = usage.data();
  }
  CodecDecoder decoder(config, weights, pool);
  const auto decode = [&](int32_t code) {
    const std::vector<int32_t> codes = {code, code, code, code};
    CodecDecoder::State state = decoder.NewState();
    std::vector<float> pcm(6);
    decoder.Decode(&state, codes, pcm);
    return pcm;
  };
  const std::vector<float> used = decode(6);
  const std::vector<float> unused = decode(7);
  for (size_t i = 0; i < used.size(); ++i) EXPECT_NEAR(used[i], unused[i], 1e-5F);
}

}  // namespace
}  // namespace qtts::cpu
