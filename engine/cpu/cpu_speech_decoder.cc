// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_speech_decoder.h"

#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "cpu/codec_decoder.h"
#include "cpu/device_name.h"
#include "cpu/thread_choice.h"
#include "cpu/thread_pool.h"
#include "cpu/weight_packer.h"

namespace qtts {
namespace {

Status NoMemoryToDecode() {
  return Status::ResourceExhausted("not enough memory to decode speech; decode it in parts");
}

class CpuSpeechDecoder final : public SpeechDecoder {
 public:
  CpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint, int threads, cpu::Arithmetic arithmetic)
      : checkpoint_(std::move(checkpoint)),
        pool_(threads),
        packer_(arithmetic, pool_),
        decoder_(checkpoint_->config().codec, checkpoint_->codec(), pool_, &packer_),
        name_(cpu::DeviceNameOf(arithmetic, threads)) {}

  const std::string& name() const override { return name_; }

  Result<std::vector<float>> Decode(std::span<const int32_t> codes) override {
    try {
      const size_t frames = codes.size() / static_cast<size_t>(decoder_.code_groups());
      std::vector<float> pcm(frames * static_cast<size_t>(decoder_.samples_per_frame()));
      cpu::CodecDecoder::State state = decoder_.NewState();
      decoder_.Decode(&state, codes, pcm);
      QTTS_RETURN_IF_ERROR(checkpoint_->CheckFiles());
      return pcm;
    } catch (const std::bad_alloc&) {
      return NoMemoryToDecode();
    }
  }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  cpu::ThreadPool pool_;
  cpu::WeightPacker packer_;
  cpu::CodecDecoder decoder_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<SpeechDecoder>> CreateCpuSpeechDecoder(std::shared_ptr<const Checkpoint> checkpoint, int threads,
                                                              cpu::Arithmetic arithmetic) {
  threads = cpu::ThreadsForArithmetic(threads);
  try {
    return std::unique_ptr<SpeechDecoder>(
        std::make_unique<CpuSpeechDecoder>(std::move(checkpoint), threads, arithmetic));
  } catch (const std::bad_alloc&) {
    return NoMemoryToDecode();
  } catch (const std::system_error& error) {
    return Status::ResourceExhausted(std::string("cannot start the decoder's threads: ") + error.what() +
                                     "; give fewer with --threads");
  }
}

}  // namespace qtts
