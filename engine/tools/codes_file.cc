// SPDX-License-Identifier: LGPL-2.1-or-later
#include "codes_file.h"

#include <charconv>
#include <iterator>
#include <sstream>
#include <system_error>

#include "print_json.h"

namespace qtts {

Result<std::vector<int32_t>> ReadCodes(std::istream& in, const std::string& name, int groups, int entries) {
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<int32_t> codes;
  int64_t line_number = 0;
  const auto add_frame = [&](const std::vector<int64_t>& frame) -> Status {
    const std::string where = name + ", frame " + std::to_string(line_number++);
    if (frame.size() != static_cast<size_t>(groups)) {
      return Status::InvalidArgument(where + ": " + std::to_string(frame.size()) + " codes, expected " +
                                     std::to_string(groups));
    }
    for (const int64_t code : frame) {
      if (code < 0 || code >= entries) {
        return Status::InvalidArgument(where + ": code " + std::to_string(code) + " is not in 0.." +
                                       std::to_string(entries - 1));
      }
      codes.push_back(static_cast<int32_t>(code));
    }
    return Status::Ok();
  };
  if (text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '{') {
    const Json json = Json::parse(text, nullptr, false);
    const auto list = json.is_object() ? json.find("codes") : json.end();
    if (list == json.end() || !list->is_array())
      return Status::InvalidArgument(name + ": no JSON object with an array \"codes\"");
    for (const Json& frame : *list) {
      std::vector<int64_t> values;
      for (const Json& code : frame) {
        if (!code.is_number_integer()) return Status::InvalidArgument(name + ": a code is not an integer");
        values.push_back(code.get<int64_t>());
      }
      QTTS_RETURN_IF_ERROR(add_frame(values));
    }
    return codes;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<int64_t> values;
    for (std::string word; words >> word;) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || end != word.data() + word.size()) {
        return Status::InvalidArgument(name + ": \"" + word + "\" is not a code");
      }
      values.push_back(value);
    }
    if (!values.empty()) QTTS_RETURN_IF_ERROR(add_frame(values));
  }
  return codes;
}

}  // namespace qtts
