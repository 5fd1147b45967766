// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_TENSOR_BINDER_H_
#define QTTS_CHECKPOINT_TENSOR_BINDER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "qtts/status.h"

namespace qtts {

// One dimension of an expected shape and its config key. No key: the dimension is fixed by the model's structure.
struct Dim {
  int64_t size;
  const char* key = "";
};

// Looks up tensors one after another. Stores the first failure. After that it returns empty views, so callers check
// once, at the end.
class TensorBinder {
 public:
  // `section`: config section of the keys, for messages.
  TensorBinder(const TensorStore& store, std::string section) : store_(store), section_(std::move(section)) {}

  TensorView Tensor(const std::string& name, std::initializer_list<Dim> dims) {
    if (!status_.ok()) return {};
    std::vector<int64_t> shape;
    for (const Dim& dim : dims) shape.push_back(dim.size);
    Result<TensorView> view = store_.Get(name, shape);
    if (!view.ok()) {
      status_ = Status(view.status().code(), view.status().message() + Keys(dims));
      return {};
    }
    totals_.parameters += view->elements();
    totals_.bytes += static_cast<int64_t>(view->bytes());
    return *std::move(view);
  }

  LinearWeights Linear(const std::string& name, Dim out, Dim in, bool bias) {
    LinearWeights linear;
    linear.weight = Tensor(name + ".weight", {out, in});
    if (bias) linear.bias = Tensor(name + ".bias", {out});
    return linear;
  }

  // Binds a convolution. `out`: width of the bias. Which dimension of the weight that is depends on the convolution.
  ConvWeights Conv(const std::string& name, std::initializer_list<Dim> weight, Dim out) {
    return {Tensor(name + ".conv.weight", weight), Tensor(name + ".conv.bias", {out})};
  }

  SnakeWeights Snake(const std::string& name, Dim channels) {
    return {Tensor(name + ".alpha", {channels}), Tensor(name + ".beta", {channels})};
  }

  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }
  const WeightTotals& totals() const { return totals_; }

 private:
  // Returns the config keys of an expected shape: " (vocab_size, hidden_size of talker_config)".
  std::string Keys(std::initializer_list<Dim> dims) const {
    std::string keys;
    for (const Dim& dim : dims) {
      if (*dim.key != '\0') keys.append(keys.empty() ? " (" : ", ").append(dim.key);
    }
    return keys.empty() ? keys : keys + " of " + section_ + ")";
  }

  const TensorStore& store_;
  std::string section_;
  Status status_;
  WeightTotals totals_;
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_TENSOR_BINDER_H_
