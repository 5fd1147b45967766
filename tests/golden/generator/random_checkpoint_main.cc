// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-random-checkpoint: writes a random checkpoint, the same bytes for the same arguments.
#include <charconv>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "golden/generator/random_checkpoint.h"

namespace {

using qtts::DType;
using qtts::Result;
using qtts::Status;
using qtts::golden::RandomCheckpointSpec;

constexpr std::string_view kUsage =
    "usage: qtts-random-checkpoint --preset NAME [OPTION]... FOLDER\n"
    "  --preset NAME       a released structure, tiny or full size; first of all options\n"
    "  --seed N            default 1\n"
    "  --dtype D           BF16, F16 or F32: of model.safetensors (default BF16)\n"
    "  --codec-dtype D     same, of speech_tokenizer/model.safetensors (default F32)\n"
    "  --shards N          split model.safetensors into N files with an index\n"
    "  --eos-logit X       what the end of speech gains; default -20, practically never ends\n"
    "  --merges FILE       merges.txt of a released model, for full-size presets\n"
    "  --set SIZE=N        override a size, e.g. talker.num_hidden_layers=2\n"
    "presets:";

template <typename T>
Result<T> Number(std::string_view option, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Status::InvalidArgument(std::string(option) + ": '" + std::string(text) + "' is not a number in range");
  }
  return value;
}

Result<DType> DTypeOf(std::string_view text) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (qtts::DTypeName(dtype) == text) return dtype;
  }
  return Status::InvalidArgument("dtype '" + std::string(text) + "' is not one of BF16, F16, F32");
}

Status Apply(std::string_view option, std::string_view value, RandomCheckpointSpec* spec) {
  if (option == "--preset") {
    QTTS_ASSIGN_OR_RETURN(*spec, qtts::golden::FindPreset(value));
  } else if (option == "--seed") {
    QTTS_ASSIGN_OR_RETURN(spec->seed, Number<uint64_t>(option, value));
  } else if (option == "--dtype") {
    QTTS_ASSIGN_OR_RETURN(spec->dtype, DTypeOf(value));
  } else if (option == "--codec-dtype") {
    QTTS_ASSIGN_OR_RETURN(spec->codec_dtype, DTypeOf(value));
  } else if (option == "--shards") {
    QTTS_ASSIGN_OR_RETURN(spec->shards, Number<int>(option, value));
  } else if (option == "--eos-logit") {
    QTTS_ASSIGN_OR_RETURN(spec->eos_logit, Number<double>(option, value));
  } else if (option == "--merges") {
    spec->merges_file = value;
  } else if (option == "--set") {
    const size_t equals = value.find('=');
    if (equals == std::string_view::npos) {
      return Status::InvalidArgument("--set: '" + std::string(value) + "' is not SIZE=N");
    }
    QTTS_ASSIGN_OR_RETURN(const int number, Number<int>(option, value.substr(equals + 1)));
    QTTS_RETURN_IF_ERROR(qtts::golden::SetSize(spec, value.substr(0, equals), number));
  } else {
    return Status::InvalidArgument("unknown option '" + std::string(option) + "'");
  }
  return Status::Ok();
}

Status Run(const std::vector<std::string_view>& arguments) {
  RandomCheckpointSpec spec;
  std::string folder;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) {
      if (!folder.empty()) return Status::InvalidArgument("more than one folder given");
      folder = arguments[i];
      continue;
    }
    if (i + 1 == arguments.size()) {
      return Status::InvalidArgument(std::string(arguments[i]) + " needs a value");
    }
    if ((arguments[i] == "--preset") != (spec.codebook_size == 0)) {
      return Status::InvalidArgument("--preset must be the first option, and be given once");
    }
    QTTS_RETURN_IF_ERROR(Apply(arguments[i], arguments[i + 1], &spec));
    ++i;
  }
  if (folder.empty() || spec.codebook_size == 0) return Status::InvalidArgument("a preset and a folder are needed");
  return qtts::golden::WriteRandomCheckpoint(folder, spec);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.empty() || arguments[0] == "--help") {
    std::cout << kUsage;
    for (const std::string& name : qtts::golden::PresetNames()) std::cout << ' ' << name;
    std::cout << '\n';
    return arguments.empty() ? 2 : 0;
  }
  if (const Status status = Run(arguments); !status.ok()) {
    std::cerr << "qtts-random-checkpoint: " << status.message() << '\n';
    return 1;
  }
  return 0;
}
