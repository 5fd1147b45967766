// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codec_frames.h"

#include <numeric>
#include <utility>

#include "runtime/cuda_error.h"

namespace qtts {

Result<Arrays> Arrays::Create(const cuda::Codec& codec, testing::RandomCodec* random, int n) {
  std::vector<int32_t> all_slots(static_cast<size_t>(n));
  std::iota(all_slots.begin(), all_slots.end(), 0);
  const std::vector<int32_t> all_codes = random->Codes(n);
  Arrays arrays;
  const auto upload = [](const std::vector<int32_t>& from, cuda::DeviceMemory* to) -> Status {
    QTTS_ASSIGN_OR_RETURN(*to, cuda::DeviceMemory::Allocate(from.size() * sizeof(int32_t)));
    return cuda::CudaStatus(cudaMemcpy(to->data(), from.data(), to->bytes(), cudaMemcpyHostToDevice), "codes");
  };
  QTTS_RETURN_IF_ERROR(upload(all_slots, &arrays.slots));
  QTTS_RETURN_IF_ERROR(upload(all_codes, &arrays.codes));
  const size_t samples = static_cast<size_t>(n) * static_cast<size_t>(codec.samples_per_frame());
  QTTS_ASSIGN_OR_RETURN(arrays.pcm, cuda::DeviceMemory::Allocate(samples * sizeof(float)));
  return arrays;
}

Status Arrays::Decode(cuda::Codec* codec, int n, cudaStream_t stream) const {
  return codec->Decode(n, slots.as<const int32_t>(), codes.as<const int32_t>(), pcm.as<float>(), stream);
}

Result<std::vector<float>> TimesOf(int launches, cudaStream_t stream, const std::function<Status()>& launch) {
  std::vector<cuda::Event> events;
  for (int i = 0; i <= launches; ++i) {
    QTTS_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(true));
    events.push_back(std::move(event));
  }
  QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(events[0].get(), stream), "timing");
  for (size_t i = 1; i < events.size(); ++i) {
    QTTS_RETURN_IF_ERROR(launch());
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(events[i].get(), stream), "timing");
  }
  QTTS_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "timing");
  std::vector<float> times(static_cast<size_t>(launches));
  for (size_t i = 0; i < times.size(); ++i) {
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&times[i], events[i].get(), events[i + 1].get()), "timing");
  }
  return times;
}

Result<std::unique_ptr<cuda::Codec>> LoadCodec(const testing::RandomCodec& random, cuda::CodecPrecision precision,
                                               int most, cudaStream_t stream) {
  QTTS_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Codec> codec,
                        cuda::Codec::Create(random.config(), random.weights(), precision, most, most));
  for (int i = 0; i < most; ++i) QTTS_RETURN_IF_ERROR(codec->Reset(i, stream));
  return codec;
}

}  // namespace qtts
