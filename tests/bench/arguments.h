// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_BENCH_ARGUMENTS_H_
#define QTTS_TESTS_BENCH_ARGUMENTS_H_

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

// Command lines of benchmarks: errors, numbers and options.
namespace qtts::bench {

// Prints the program's name and the message, and ends the program.
[[noreturn]] inline void Fail(const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(1);
}

// The value, or the end of the program with the error's message.
template <typename ResultOfT>
auto Take(ResultOfT result) {
  if (!result.ok()) Fail(result.status().message());
  return *std::move(result);
}

// A number of at least `min`.
template <typename T>
T Number(std::string_view option, std::string_view value, std::type_identity_t<T> min = 0) {
  T number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < min) {
    Fail(std::string(option) + ": \"" + std::string(value) + "\" is not a number of at least " + std::to_string(min));
  }
  return number;
}

// The parts of a list "A,B,C".
inline std::vector<std::string> Parts(std::string_view list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    parts.emplace_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

// Options of a program. Each call of Add() names one and the place of its value; Parse() fills them in.
class Arguments {
 public:
  explicit Arguments(std::string_view usage) : usage_(usage) {}

  // Takes arguments that are no options.
  Arguments& Positional(std::function<void(std::string_view)> take) {
    positional_ = std::move(take);
    return *this;
  }
  Arguments& Positional(std::string* value) {
    return Positional([value](std::string_view text) { *value = text; });
  }

  // An option with a value.
  Arguments& Add(const char* option, std::function<void(std::string_view)> take) {
    options_[option] = std::move(take);
    return *this;
  }
  Arguments& Add(const char* option, std::string* value) {
    return Add(option, [value](std::string_view text) { *value = text; });
  }
  // One of some words.
  Arguments& Add(const char* option, std::string* value, const std::vector<std::string>& words) {
    return Add(option, [=](std::string_view text) {
      if (std::find(words.begin(), words.end(), text) == words.end()) {
        std::string known;
        for (const std::string& word : words) known += (known.empty() ? "" : ", ") + word;
        Fail(std::string(option) + ": \"" + std::string(text) + "\" is not one of " + known);
      }
      *value = text;
    });
  }
  // A number of at least `min`.
  template <typename T>
  requires std::is_arithmetic_v<T> Arguments& Add(const char* option, T* value, std::type_identity_t<T> min = 0) {
    return Add(option, [=](std::string_view text) { *value = Number<T>(option, text, min); });
  }
  // Numbers, separated by commas.
  template <typename T>
  requires std::is_arithmetic_v<T> Arguments& Add(const char* option, std::vector<T>* values,
                                                  std::type_identity_t<T> min = 0) {
    return Add(option, [=](std::string_view text) {
      values->clear();
      for (const std::string& part : Parts(text)) values->push_back(Number<T>(option, part, min));
    });
  }
  // A range "A-B" of numbers of at least `min`.
  Arguments& AddRange(const char* option, int* least, int* most, int min) {
    return Add(option, [=](std::string_view text) {
      const size_t dash = std::min(text.find('-'), text.size());
      *least = Number<int>(option, text.substr(0, dash), min);
      *most = dash == text.size() ? *least : Number<int>(option, text.substr(dash + 1), *least);
    });
  }
  // An option without a value.
  Arguments& Flag(const char* option, bool* value) {
    flags_[option] = value;
    return *this;
  }

  void Parse(int argc, char** argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string_view option = argv[i];
      if (option == "--help") {
        std::printf("%.*s", static_cast<int>(usage_.size()), usage_.data());
        std::exit(0);
      }
      if (!option.starts_with("--") && positional_) {
        positional_(option);
      } else if (const auto flag = flags_.find(option); flag != flags_.end()) {
        *flag->second = true;
      } else if (const auto found = options_.find(option); found != options_.end() && i + 1 < argc) {
        found->second(argv[++i]);
      } else {
        Fail("unknown option, or its value is missing: " + std::string(option) + "; see --help");
      }
    }
  }

 private:
  std::string_view usage_;
  std::function<void(std::string_view)> positional_;
  std::map<std::string, std::function<void(std::string_view)>, std::less<>> options_;
  std::map<std::string, bool*, std::less<>> flags_;
};

}  // namespace qtts::bench

#endif  // QTTS_TESTS_BENCH_ARGUMENTS_H_
