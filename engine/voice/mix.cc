// SPDX-License-Identifier: LGPL-2.1-or-later
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "qtts/voice.h"

namespace qtts {
namespace {

double LengthOf(std::span<const double> vector) {
  double squares = 0;
  for (const double value : vector) squares += value * value;
  return std::sqrt(squares);
}

Status CheckShares(std::span<const VoiceShare> shares) {
  if (shares.size() < 2) return Status::InvalidArgument("a mix needs two voices at least");
  const ClonedVoice& first = shares[0].voice;
  for (size_t i = 0; i < shares.size(); ++i) {
    const ClonedVoice& voice = shares[i].voice;
    const std::string name = "voice " + std::to_string(i + 1) + " of the mix";
    if (!std::isfinite(shares[i].weight) || shares[i].weight <= 0) {
      char weight[32];
      std::snprintf(weight, sizeof weight, "%g", shares[i].weight);
      return Status::InvalidArgument(name + " has the weight " + weight +
                                     ", expected a number above 0; leave out a voice that has no share");
    }
    if (voice.x_vector.empty()) {
      return Status::InvalidArgument(name +
                                     " is a designed voice, which has no x-vector; only cloned voices can be mixed");
    }
    if (voice.x_vector.size() != first.x_vector.size()) {
      return Status::InvalidArgument(name + " has an x-vector of " + std::to_string(voice.x_vector.size()) +
                                     " values, the first voice one of " + std::to_string(first.x_vector.size()) +
                                     ": make both with the same checkpoint");
    }
    if (voice.model != first.model) {
      return Status::InvalidArgument(name +
                                     " and the first one were made with different checkpoints: their x-vectors " +
                                     "have different meanings; make both with the same one");
    }
    if (!std::ranges::all_of(voice.x_vector, [](float value) { return std::isfinite(value); })) {
      return Status::InvalidArgument(name + " has an x-vector with values that are no finite numbers");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<ClonedVoice> MixVoices(std::span<const VoiceShare> shares) {
  QTTS_RETURN_IF_ERROR(CheckShares(shares));
  // Divided by the largest one first, so that the sum of any weights is finite.
  const double largest = std::ranges::max(shares, {}, &VoiceShare::weight).weight;
  double sum = 0;
  for (const VoiceShare& share : shares) sum += share.weight / largest;
  std::vector<double> mean(shares[0].voice.x_vector.size());
  double mean_length = 0;
  for (const VoiceShare& share : shares) {
    const double weight = share.weight / largest / sum;
    const std::vector<double> vector(share.voice.x_vector.begin(), share.voice.x_vector.end());
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += weight * vector[i];
    mean_length += weight * LengthOf(vector);
  }
  const double length = LengthOf(mean);
  if (length == 0) return Status::InvalidArgument("the x-vectors of the mix cancel each other: choose other weights");
  ClonedVoice mix;
  mix.model = shares[0].voice.model;
  for (const double value : mean) mix.x_vector.push_back(static_cast<float>(value * mean_length / length));
  return mix;
}

}  // namespace qtts
