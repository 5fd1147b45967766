// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_BENCH_ARGUMENTS_H_
#define QTTS_TESTS_BENCH_ARGUMENTS_H_

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

// Errors and numbers on a benchmark's command line.
namespace qtts::bench {

// Prints the program's name and the message, and ends the program.
[[noreturn]] inline void Fail(const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(1);
}

[[noreturn]] inline void FailUnknown(std::string_view option) {
  Fail("unknown option, or its value is missing: " + std::string(option) + "; see --help");
}

// The value of an option, 0 or more.
template <typename T>
T Number(std::string_view option, std::string_view value) {
  T number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) {
    Fail(std::string(option) + ": \"" + std::string(value) + "\" is not a number");
  }
  return number;
}

}  // namespace qtts::bench

#endif  // QTTS_TESTS_BENCH_ARGUMENTS_H_
