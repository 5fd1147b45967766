// SPDX-License-Identifier: LGPL-2.1-or-later
#include "network/network.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "frame/frame_state.h"
#include "network/frame_operations.h"
#include "sample/sample.h"

namespace qtts::cuda {
namespace {

// Maximum positions of a KV cache. Models that allow more are limited to this.
constexpr int64_t kMaxPositions = 1 << 17;

// Checks that the kernels support the network; the error names the missing feature.
Status CheckAttention(const TransformerConfig& config, const char* part) {
  if (config.head_dim % 8 == 0 && config.head_dim <= kMaxHeadDim) return Status::Ok();
  return Status::Unsupported("the " + std::string(part) + "'s head_dim is " + std::to_string(config.head_dim) +
                             "; the GPU backend takes multiples of 8 up to " + std::to_string(kMaxHeadDim) +
                             ": choose device=cpu");
}

Status CheckLimit(const char* what, int64_t value, int64_t limit) {
  if (value <= limit) return Status::Ok();
  return Status::Unsupported("the model's " + std::string(what) + " is " + std::to_string(value) +
                             "; the GPU backend takes up to " + std::to_string(limit) + ": choose device=cpu");
}

Result<Stack> LoadStack(const TransformerConfig& config, const TransformerWeights& weights, WeightLoader* loader) {
  Stack stack;
  stack.config = config;
  std::vector<float> frequencies;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    frequencies.push_back(1.0F / std::pow(config.rope_theta, exponent));
  }
  QTTS_ASSIGN_OR_RETURN(const float* const inverse_frequencies, loader->LoadFloats(frequencies));
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const TransformerLayerWeights& w = weights.layers[i];
    Layer layer;
    std::vector<const TensorView*> biases;
    if (w.q.bias.has_value() && w.k.bias.has_value() && w.v.bias.has_value()) {
      biases = {&*w.q.bias, &*w.k.bias, &*w.v.bias};
    }
    QTTS_ASSIGN_OR_RETURN(layer.qkv,
                          loader->LoadMatrix(GemmKind::kNormStore, {&w.q.weight, &w.k.weight, &w.v.weight}, biases));
    QTTS_ASSIGN_OR_RETURN(layer.o, loader->LoadLinear(GemmKind::kAdd, w.o));
    QTTS_ASSIGN_OR_RETURN(layer.gated, loader->LoadGated(w.gate, w.up));
    QTTS_ASSIGN_OR_RETURN(layer.down, loader->LoadMatrix(GemmKind::kAdd, {&w.down}));
    QTTS_ASSIGN_OR_RETURN(layer.input_norm, loader->LoadFloats(w.input_norm));
    QTTS_ASSIGN_OR_RETURN(layer.post_norm, loader->LoadFloats(w.post_norm));
    layer.attention.layer = static_cast<int>(i);
    layer.attention.inverse_frequencies = inverse_frequencies;
    if (w.q_norm.has_value()) {
      QTTS_ASSIGN_OR_RETURN(layer.attention.q_norm, loader->LoadFloats(*w.q_norm));
    }
    if (w.k_norm.has_value()) {
      QTTS_ASSIGN_OR_RETURN(layer.attention.k_norm, loader->LoadFloats(*w.k_norm));
    }
    stack.layers.push_back(layer);
  }
  QTTS_ASSIGN_OR_RETURN(stack.norm, loader->LoadFloats(weights.norm));
  return stack;
}

// Projects the text table once. It takes 50 ms and no more memory than the table itself, and saves two products in
// every frame.
Status LoadText(const TalkerWeights& talker, Network* network) {
  const Launcher& launch = network->loader->launch();
  // A loader of its own: the projection's matrices are not needed afterwards.
  QTTS_ASSIGN_OR_RETURN(const std::unique_ptr<WeightLoader> temporary,
                        WeightLoader::Create(network->precision, WeightForm::kPlain, launch.numbers, launch.stream));
  QTTS_ASSIGN_OR_RETURN(const Matrix fc1, temporary->LoadLinear(GemmKind::kStoreSilu, talker.text_fc1));
  QTTS_ASSIGN_OR_RETURN(const Matrix fc2, temporary->LoadLinear(GemmKind::kStore, talker.text_fc2));
  QTTS_ASSIGN_OR_RETURN(network->text_table, network->loader->NewTable(talker.text_embedding.shape[0], fc2.outputs));
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
        Gemm(temporary->launch(), network->precision, fc1, r);
        r.x = inner.data;
        r.x_stride = inner.stride;
        r.y = static_cast<char*>(network->text_table.data) + static_cast<size_t>(first) *
                                                                 static_cast<size_t>(network->text_table.stride) *
                                                                 ElementBytes(network->precision);
        r.y_stride = network->text_table.stride;
        Gemm(temporary->launch(), network->precision, fc2, r);
        return Status::Ok();
      }));
  return temporary->Synchronize();
}

Status LoadCodeTables(const Checkpoint& checkpoint, Network* network) {
  QTTS_ASSIGN_OR_RETURN(const Table first, network->loader->LoadTable(checkpoint.talker().codec_embedding));
  network->code_tables.push_back(first);
  for (const TensorView& tensor : checkpoint.predictor().embeddings) {
    QTTS_ASSIGN_OR_RETURN(const Table table, network->loader->LoadTable(tensor));
    network->code_tables.push_back(table);
  }
  if (!checkpoint.predictor().input_projection.has_value()) {
    network->predictor_tables.assign(network->code_tables.begin(), network->code_tables.end() - 1);
    return Status::Ok();
  }
  QTTS_ASSIGN_OR_RETURN(network->projection,
                        network->loader->LoadLinear(GemmKind::kStore, *checkpoint.predictor().input_projection));
  for (size_t g = 0; g + 1 < network->code_tables.size(); ++g) {
    QTTS_ASSIGN_OR_RETURN(const Table table,
                          network->loader->NewTable(network->code_tables[g].rows, network->projection.outputs));
    GemmRows r;
    r.x = network->code_tables[g].data;
    r.x_stride = network->code_tables[g].stride;
    r.y = table.data;
    r.y_stride = table.stride;
    r.rows = table.rows;
    Gemm(network->loader->launch(), network->precision, network->projection, r);
    network->predictor_tables.push_back(table);
  }
  // From now on for the talker's hidden state: its norm comes first.
  network->projection.kind = GemmKind::kNormStore;
  return Status::Ok();
}

size_t FrameBytes(const Network& network) {
  size_t bytes = 0;
  for (const FrameOperation& operation : FrameOperations(network)) {
    if (operation.weights != nullptr && operation.weights->data != nullptr) {
      bytes += operation.weights->bytes(network.precision);
    }
  }
  return bytes;
}

// The matrices of all passes.
std::vector<Matrix*> Matrices(Network* network) {
  std::vector<Matrix*> matrices = {&network->talker_head};
  for (Stack* stack : {&network->talker, &network->predictor}) {
    for (Layer& layer : stack->layers) {
      matrices.insert(matrices.end(), {&layer.qkv, &layer.o, &layer.gated, &layer.down});
    }
  }
  for (Matrix& head : network->heads) matrices.push_back(&head);
  if (network->has_projection()) matrices.push_back(&network->projection);
  return matrices;
}

// Gives them to the library.
Status TakeProducts(Network* network) {
  for (Matrix* matrix : Matrices(network)) {
    QTTS_RETURN_IF_ERROR(network->library->Take(network->loader.get(), matrix));
  }
  network->library->Finish();
  return Status::Ok();
}

Status LoadWeights(const Checkpoint& checkpoint, const DeviceNumbers* numbers, cudaStream_t stream, bool swizzled,
                   Network* network) {
  QTTS_ASSIGN_OR_RETURN(network->loader, WeightLoader::Create(network->precision, network->form, numbers, stream));
  QTTS_RETURN_IF_ERROR(LoadText(checkpoint.talker(), network));
  QTTS_ASSIGN_OR_RETURN(network->talker, LoadStack(network->config.talker.transformer, checkpoint.talker().transformer,
                                                   network->loader.get()));
  QTTS_ASSIGN_OR_RETURN(network->talker_head,
                        network->loader->LoadMatrix(GemmKind::kNormStore, {&checkpoint.talker().codec_head}));
  QTTS_ASSIGN_OR_RETURN(network->predictor, LoadStack(network->config.predictor.transformer,
                                                      checkpoint.predictor().transformer, network->loader.get()));
  for (const TensorView& head : checkpoint.predictor().heads) {
    QTTS_ASSIGN_OR_RETURN(Matrix matrix, network->loader->LoadMatrix(GemmKind::kNormStore, {&head}));
    network->heads.push_back(matrix);
  }
  QTTS_RETURN_IF_ERROR(LoadCodeTables(checkpoint, network));
  QTTS_RETURN_IF_ERROR(network->loader->ShareUnpacked(Matrices(network)));
  if (network->library != nullptr) QTTS_RETURN_IF_ERROR(TakeProducts(network));
  if (swizzled) {
    for (Matrix* matrix : Matrices(network)) QTTS_RETURN_IF_ERROR(network->loader->AddSwizzled(matrix));
  }
  network->frame_bytes = FrameBytes(*network);
  return network->loader->Finish();
}

}  // namespace

Status CheckNetwork(const ModelConfig& config) {
  QTTS_RETURN_IF_ERROR(CheckAttention(config.talker.transformer, "talker"));
  QTTS_RETURN_IF_ERROR(CheckAttention(config.predictor.transformer, "code predictor"));
  QTTS_RETURN_IF_ERROR(CheckLimit("talker vocabulary", config.talker.vocab_size, kMaxVocab));
  QTTS_RETURN_IF_ERROR(CheckLimit("code predictor vocabulary", config.predictor.vocab_size, kMaxVocab));
  return CheckLimit("number of codes per frame", config.talker.num_code_groups, kMaxGroups);
}

int64_t MaxPositionsOf(const ModelConfig& config) {
  return std::min<int64_t>(config.talker.transformer.max_positions, kMaxPositions);
}

Result<std::unique_ptr<const Network>> Network::Load(const Checkpoint& checkpoint, Precision precision, WeightForm form,
                                                     const DeviceNumbers* numbers, cudaStream_t stream,
                                                     const ManyRowsWeights& many_rows,
                                                     std::unique_ptr<CublasLt> library) {
  const ModelConfig& config = checkpoint.config();
  QTTS_RETURN_IF_ERROR(CheckNetwork(config));
  auto network = std::make_unique<Network>();
  network->config = config;
  network->precision = precision;
  network->form = form;
  network->groups = config.talker.num_code_groups;
  network->max_positions = MaxPositionsOf(config);
  if (library != nullptr) {
    network->library =
        std::make_unique<LibraryProducts>(std::move(library), many_rows.likely_rows, many_rows.library_rows);
  }
  QTTS_RETURN_IF_ERROR(LoadWeights(checkpoint, numbers, stream, many_rows.swizzled, network.get()));
  return std::unique_ptr<const Network>(std::move(network));
}

}  // namespace qtts::cuda
