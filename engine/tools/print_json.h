// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_PRINT_JSON_H_
#define QTTS_TOOLS_PRINT_JSON_H_

#include <iostream>
#include <nlohmann/json.hpp>

namespace qtts {

using Json = nlohmann::ordered_json;

// Prints `json` on one line of standard output.
inline void PrintJson(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace qtts

#endif  // QTTS_TOOLS_PRINT_JSON_H_
