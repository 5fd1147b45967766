// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_TOKENS_H_
#define QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_TOKENS_H_

#include <string>
#include <vector>

namespace qtts::golden {

// Added tokens of the released vocabulary, in the order of their ids.
inline std::vector<std::string> ReleasedAddedTokens() {
  return {"<|endoftext|>",
          "<|im_start|>",
          "<|im_end|>",
          "<|object_ref_start|>",
          "<|object_ref_end|>",
          "<|box_start|>",
          "<|box_end|>",
          "<|quad_start|>",
          "<|quad_end|>",
          "<|vision_start|>",
          "<|vision_end|>",
          "<|vision_pad|>",
          "<|image_pad|>",
          "<|video_pad|>",
          "<tool_call>",
          "</tool_call>",
          "<|fim_prefix|>",
          "<|fim_middle|>",
          "<|fim_suffix|>",
          "<|fim_pad|>",
          "<|repo_name|>",
          "<|file_sep|>",
          "<tool_response>",
          "</tool_response>",
          "<think>",
          "</think>",
          "<|audio_start|>",
          "<|audio_end|>",
          "<tts_pad>",
          "<tts_text_bos>",
          "<tts_text_eod>",
          "<tts_text_bos_single>",
          "<|audio_pad|>"};
}

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_VOCABULARY_RELEASED_TOKENS_H_
