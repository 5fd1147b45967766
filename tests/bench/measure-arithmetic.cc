// SPDX-License-Identifier: LGPL-2.1-or-later
// Errors of the CPU's arithmetics against F32 on the same inputs: an utterance is spoken in F32, then each of the
// others gets its prompt and its codes. Groups of layers are also quantised alone, weights only, to see which ones
// matter.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "checkpoint/checkpoint.h"
#include "cpu/bf16_kernels.h"
#include "cpu/codec_decoder.h"
#include "cpu/embedder.h"
#include "cpu/instructions.h"
#include "cpu/predictor.h"
#include "cpu/talker.h"
#include "cpu/weight_packer.h"
#include "gpu/int8_values.h"
#include "prompt/prompt.h"
#include "sampling/sampler.h"
#include "text/text_feed.h"
#include "text/tokenizer.h"

namespace {

using namespace qtts;       // NOLINT(google-build-using-namespace): a program of one file
using namespace qtts::cpu;  // NOLINT(google-build-using-namespace)
using bench::Fail;
using bench::Take;

constexpr const char* kUsage =
    "usage: measure-arithmetic MODEL_DIR [--frames N] [--text TEXT] [--threads N]\n"
    "  --frames N   frames at most (default 50)\n";
constexpr const char* kText = "The river was wide and slow, and the boats went down it one after the other.";
constexpr uint64_t kSeed = 1;

// Results of one run over the prompt and the codes.
struct Outputs {
  std::vector<float> hidden;            // of the talker, frame by frame
  std::vector<float> talker_logits;     // of the talker, frame by frame
  std::vector<float> predictor_logits;  // of all groups of a frame, frame by frame
  std::vector<float> pcm;
  std::vector<int32_t> choices;  // of each group, the code drawn with the same random numbers
  std::vector<int32_t> best;     // most probable code of each group
};

double Snr(const std::vector<float>& exact, const std::vector<float>& other) {
  double power = 0;
  double noise = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double value = static_cast<double>(exact[i]);
    const double error = value - static_cast<double>(other[i]);
    power += value * value;
    noise += error * error;
  }
  return noise == 0 ? 999 : 10 * std::log10(power / noise);
}

double Agreement(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  size_t same = 0;
  for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
  return 100.0 * static_cast<double>(same) / static_cast<double>(std::max<size_t>(1, a.size()));
}

// The prompt of an utterance, and its codes once they are known.
struct Utterance {
  Prompt prompt;
  std::vector<int32_t> codes;  // [frames][groups]
};

int32_t Best(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// One model: the exact one, or one whose weights or arithmetic differ.
class Model {
 public:
  Model(const Checkpoint& checkpoint, const TalkerWeights& talker, const PredictorWeights& predictor,
        Arithmetic arithmetic, ThreadPool& pool)
      : config_(checkpoint.config()),
        packer_(arithmetic, pool),
        embedder_(checkpoint.talker(), checkpoint.predictor(), pool),
        talker_(config_.talker, talker, pool, &packer_),
        predictor_(config_.predictor, predictor, embedder_, pool, &packer_),
        codec_(config_.codec, checkpoint.codec(), pool, &packer_) {}

  // Runs the prompt and `frames` frames. Without codes they are drawn, and put into `utterance`.
  Outputs Run(Utterance* utterance, int frames, const GenerationSettings& settings) {
    const bool draw = utterance->codes.empty();
    const auto groups = static_cast<size_t>(predictor_.code_groups());
    const auto width = static_cast<size_t>(talker_.hidden_size());
    const Prompt& prompt = utterance->prompt;
    Outputs outputs;
    KvCache cache = talker_.NewCache();
    std::vector<float> inputs(prompt.rows.size() * width);
    embedder_.Embed(prompt.rows, prompt.x_vector, inputs.data());
    std::vector<float> hidden(width);
    std::vector<float> logits(static_cast<size_t>(talker_.vocab_size()));
    talker_.Prefill(&cache, inputs, hidden.data(), logits.data());
    TalkerSampler sampler(config_.talker.vocab_size, config_.talker.codec_eos_id, settings, kSeed);
    for (int frame = 0; frame < frames; ++frame) {
      if (frame > 0) {
        const auto row = static_cast<size_t>(frame - 1);
        const int32_t text = row < prompt.trailing_text.size() ? prompt.trailing_text[row] : prompt.pad_text_id;
        const PromptRow input{text,
                              {utterance->codes.begin() + static_cast<ptrdiff_t>(row * groups),
                               utterance->codes.begin() + static_cast<ptrdiff_t>((row + 1) * groups)}};
        embedder_.Embed({&input, 1}, {}, hidden.data());
        KvCache* caches[] = {&cache};
        talker_.Step(caches, hidden.data(), logits.data());
      }
      outputs.hidden.insert(outputs.hidden.end(), hidden.begin(), hidden.end());
      outputs.talker_logits.insert(outputs.talker_logits.end(), logits.begin(), logits.end());
      outputs.best.push_back(Best(logits));
      int32_t first = sampler.Sample(logits);
      outputs.choices.push_back(first);
      if (draw && first == config_.talker.codec_eos_id) break;
      const auto at = static_cast<size_t>(frame) * groups;
      if (draw) utterance->codes.resize(at + groups, first);
      std::vector<int32_t> codes(utterance->codes.begin() + static_cast<ptrdiff_t>(at),
                                 utterance->codes.begin() + static_cast<ptrdiff_t>(at + groups));
      predictor_.Predict(
          hidden,
          [&](size_t /*row*/, int64_t group, std::span<float> scores) {
            outputs.predictor_logits.insert(outputs.predictor_logits.end(), scores.begin(), scores.end());
            outputs.best.push_back(Best(scores));
            const DrawPosition position{kSeed, static_cast<uint32_t>(frame), static_cast<uint32_t>(group)};
            const int32_t drawn = SampleToken(scores, settings.predictor, position);
            outputs.choices.push_back(drawn);
            return draw ? drawn : utterance->codes[at + static_cast<size_t>(group)];
          },
          codes);
      std::copy(codes.begin(), codes.end(), utterance->codes.begin() + static_cast<ptrdiff_t>(at));
    }
    CodecDecoder::State state = codec_.NewState();
    outputs.pcm.resize(utterance->codes.size() / groups * static_cast<size_t>(codec_.samples_per_frame()));
    codec_.Decode(&state, utterance->codes, outputs.pcm);
    return outputs;
  }

 private:
  const ModelConfig& config_;
  WeightPacker packer_;
  Embedder embedder_;
  Talker talker_;
  Predictor predictor_;
  CodecDecoder codec_;
};

// Quantised weights as F32: the error of the weights alone.
class Rounded {
 public:
  // In the CPU's groups.
  explicit Rounded(CodeBits bits) : bits_(bits) {}
  // 8 bits in the GPU's groups.
  Rounded() : as_gpu_(true) {}

  void Round(TensorView* tensor) {
    const MatrixView w = MatrixOf(*tensor);
    if (as_gpu_) {
      auto values = std::make_unique<std::vector<float>>(static_cast<size_t>(w.rows * w.cols));
      ToFloat(w.dtype, w.data, w.rows * w.cols, values->data());
      testing::RoundToInt8(w.rows, w.cols, values->data());
      tensor->dtype = DType::kF32;
      tensor->data = values->data();
      values_.push_back(std::move(values));
      return;
    }
    QuantizedView view;
    view.bits = bits_;
    view.rows = w.rows;
    view.cols = w.cols;
    std::vector<uint8_t> codes(static_cast<size_t>(view.panels() * view.panel_codes()));
    std::vector<uint16_t> scales(static_cast<size_t>(view.panels() * view.panel_scales()));
    QuantizeWeights(w, view, 0, view.panels(), codes.data(), scales.data());
    view.codes = codes.data();
    view.scales = scales.data();
    // Column by column: the product with an input that is zero except in that column.
    auto values = std::make_unique<std::vector<float>>(static_cast<size_t>(w.rows * w.cols));
    const int64_t group = GroupColumns(bits_);
    const auto padded = static_cast<size_t>(view.groups() * group);
    std::vector<int8_t> input(padded);
    const std::vector<int8_t> none(padded);
    std::vector<float> input_scales(static_cast<size_t>(view.groups()), 1.0F);
    std::vector<int32_t> sums(static_cast<size_t>(view.groups()));
    std::vector<float> column(static_cast<size_t>(w.rows));
    const QuantizedRows rows{group, view.groups(), none.data(), input.data(), input_scales.data(), sums.data()};
    for (int64_t c = 0; c < w.cols; ++c) {
      input[static_cast<size_t>(c)] = 1;
      sums[static_cast<size_t>(c / group)] = 1;
      QuantizedMatMul(view, nullptr, rows, 1, 0, view.panels(), column.data(), BestByteUnit());
      for (int64_t r = 0; r < w.rows; ++r) {
        (*values)[static_cast<size_t>(r * w.cols + c)] = column[static_cast<size_t>(r)];
      }
      input[static_cast<size_t>(c)] = 0;
      sums[static_cast<size_t>(c / group)] = 0;
    }
    tensor->dtype = DType::kF32;
    tensor->data = values->data();
    values_.push_back(std::move(values));
  }
  void RoundAll(TalkerWeights* talker, PredictorWeights* predictor) {
    for (TransformerWeights* weights : {&talker->transformer, &predictor->transformer}) {
      RoundAttention(weights, 0, weights->layers.size());
      RoundMlp(weights, 0, weights->layers.size());
    }
    Round(&talker->codec_head);
    for (TensorView& head : predictor->heads) Round(&head);
    if (predictor->input_projection.has_value()) Round(&predictor->input_projection->weight);
  }
  void RoundAttention(TransformerWeights* weights, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      TransformerLayerWeights& layer = weights->layers[i];
      for (LinearWeights* w : {&layer.q, &layer.k, &layer.v, &layer.o}) Round(&w->weight);
    }
  }
  void RoundMlp(TransformerWeights* weights, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      TransformerLayerWeights& layer = weights->layers[i];
      for (TensorView* w : {&layer.gate, &layer.up, &layer.down}) Round(w);
    }
  }

 private:
  const CodeBits bits_ = CodeBits::k8;
  const bool as_gpu_ = false;
  std::vector<std::unique_ptr<std::vector<float>>> values_;
};

void Print(const char* name, const Outputs& exact, const Outputs& other) {
  std::printf("%-36s %7.1f %7.1f %7.1f %7.1f %8.1f %8.1f\n", name, Snr(exact.hidden, other.hidden),
              Snr(exact.talker_logits, other.talker_logits), Snr(exact.predictor_logits, other.predictor_logits),
              Snr(exact.pcm, other.pcm), Agreement(exact.best, other.best), Agreement(exact.choices, other.choices));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  std::string text = kText;
  int frames = 50;
  int threads = 2;
  bench::Arguments(kUsage)
      .Positional(&folder)
      .Add("--frames", &frames, 1)
      .Add("--threads", &threads, 1)
      .Add("--text", &text)
      .Parse(argc, argv);
  if (folder.empty()) Fail("the folder of a model is missing; see --help");
  const auto checkpoint = Take(Checkpoint::Open(folder));
  const auto tokenizer = Take(Tokenizer::Load(folder, TokenizerPattern::kNative));
  const PromptBuilder builder = Take(PromptBuilder::Create(checkpoint->config(), tokenizer));
  TextFeed feed(tokenizer);
  if (!feed.Append(text).ok() || !feed.Finish().ok()) Fail("the text cannot be tokenized");
  Request request;
  request.text = text;
  request.settings = checkpoint->config().defaults;
  Utterance utterance;
  utterance.prompt = Take(builder.Build(request, feed.TakeIds(), true));

  ThreadPool pool(threads);
  const TalkerWeights& talker = checkpoint->talker();
  const PredictorWeights& predictor = checkpoint->predictor();
  const auto run = [&](const TalkerWeights& t, const PredictorWeights& p, Arithmetic arithmetic) {
    return Model(*checkpoint, t, p, arithmetic, pool).Run(&utterance, frames, request.settings);
  };
  const Outputs exact = run(talker, predictor, Arithmetic::kF32);
  frames = static_cast<int>(exact.talker_logits.size() / static_cast<size_t>(checkpoint->config().talker.vocab_size));
  if (utterance.codes.size() < static_cast<size_t>(frames * checkpoint->config().talker.num_code_groups)) --frames;
  if (frames < 1) Fail("the model says nothing to this text: choose another");
  const Outputs reference = run(talker, predictor, Arithmetic::kF32);

  std::printf("%d frames of \"%s\"\n", frames, text.c_str());
  std::printf("%-36s %7s %7s %7s %7s %8s %8s\n", "", "talker:", "", "predic-", "", "same", "same");
  std::printf("%-36s %7s %7s %7s %7s %8s %8s\n", "SNR in dB against F32", "hidden", "logits", "tor", "samples",
              "best, %", "drawn, %");
  struct Whole {
    const char* name;
    Arithmetic arithmetic;
  };
  for (const Whole& whole :
       {Whole{"bf16", Arithmetic::kBF16}, Whole{"int8", Arithmetic::kInt8}, Whole{"int4", Arithmetic::kInt4}}) {
    if (whole.arithmetic == Arithmetic::kBF16 && !HasBF16Products()) continue;
    Print(whole.name, reference, run(talker, predictor, whole.arithmetic));
  }
  for (const Whole& whole :
       {Whole{"int8 on a GPU", Arithmetic::kBF16}, Whole{"int8 on a GPU, weights", Arithmetic::kF32}}) {
    if (whole.arithmetic == Arithmetic::kBF16 && !HasBF16Products()) continue;
    Rounded rounded;
    TalkerWeights t = talker;
    PredictorWeights p = predictor;
    rounded.RoundAll(&t, &p);
    Print(whole.name, reference, run(t, p, whole.arithmetic));
  }
  for (const CodeBits bits : {CodeBits::k8, CodeBits::k4}) {
    const std::string prefix = bits == CodeBits::k8 ? "8 bits, " : "4 bits, ";
    const auto part = [&](const char* name, const auto& round) {
      Rounded rounded(bits);
      TalkerWeights t = talker;
      PredictorWeights p = predictor;
      round(&rounded, &t, &p);
      Print((prefix + name).c_str(), reference, run(t, p, Arithmetic::kF32));
    };
    const size_t layers = talker.transformer.layers.size();
    const size_t third = (layers + 2) / 3;
    part("talker, attention",
         [&](Rounded* r, TalkerWeights* t, PredictorWeights*) { r->RoundAttention(&t->transformer, 0, layers); });
    part("talker, MLP",
         [&](Rounded* r, TalkerWeights* t, PredictorWeights*) { r->RoundMlp(&t->transformer, 0, layers); });
    part("talker, first third of layers", [&](Rounded* r, TalkerWeights* t, PredictorWeights*) {
      r->RoundAttention(&t->transformer, 0, third);
      r->RoundMlp(&t->transformer, 0, third);
    });
    part("talker, last third of layers", [&](Rounded* r, TalkerWeights* t, PredictorWeights*) {
      r->RoundAttention(&t->transformer, layers - third, layers);
      r->RoundMlp(&t->transformer, layers - third, layers);
    });
    part("talker, head", [&](Rounded* r, TalkerWeights* t, PredictorWeights*) { r->Round(&t->codec_head); });
    part("predictor, attention", [&](Rounded* r, TalkerWeights*, PredictorWeights* p) {
      r->RoundAttention(&p->transformer, 0, p->transformer.layers.size());
    });
    part("predictor, MLP", [&](Rounded* r, TalkerWeights*, PredictorWeights* p) {
      r->RoundMlp(&p->transformer, 0, p->transformer.layers.size());
    });
    part("predictor, heads", [&](Rounded* r, TalkerWeights*, PredictorWeights* p) {
      for (TensorView& head : p->heads) r->Round(&head);
    });
  }
  return 0;
}
