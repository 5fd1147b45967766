// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_SYSTEM_FILES_H_
#define QTTS_BASE_SYSTEM_FILES_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// For the small text files in which Linux describes the machine and the process (/proc, /sys).
namespace qtts {

// Returns the content of the file, at most 64 KiB; empty if it cannot be read.
std::string ReadSystemFile(const std::filesystem::path& file);

// Removes and returns the text up to the next `separator`. Drops the separator.
std::string_view SplitOff(std::string_view* text, char separator);

// Parses `text` as an integer, with nothing else around it but newlines behind it.
std::optional<int64_t> ParseInteger(std::string_view text);

}  // namespace qtts

#endif  // QTTS_BASE_SYSTEM_FILES_H_
