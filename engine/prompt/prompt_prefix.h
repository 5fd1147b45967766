// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_PROMPT_PROMPT_PREFIX_H_
#define QTTS_PROMPT_PROMPT_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "prompt/prompt.h"

// The part of a prompt that the utterances of one voice have in common, for the caches of backends.
namespace qtts {

// Returns the number of rows of `prompt` worth caching: the constant ones, without the prompt's last row, whose hidden
// state is needed too.
size_t PrefixRows(const Prompt& prompt);

// Returns everything that the first `rows` rows of `prompt` depend on: prompts with equal keys have the same keys and
// values there.
std::string PrefixKey(const Prompt& prompt, size_t rows);

// Returns the same for the codec's state after the codes of a reference.
std::string ReferenceKey(std::span<const int32_t> codes);

}  // namespace qtts

#endif  // QTTS_PROMPT_PROMPT_PREFIX_H_
