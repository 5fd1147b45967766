// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_INPUT_FIXTURE_H_
#define QTTS_TESTS_GST_INPUT_FIXTURE_H_

#include <string>
#include <vector>

#include "support.h"

namespace qtts::testing {

class InputTest : public GstTest {};

// The texts that the engine was asked for.
inline std::vector<std::string> Texts() {
  std::vector<std::string> texts;
  for (const Request& request : fake::Requests()) texts.push_back(request.text);
  return texts;
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_INPUT_FIXTURE_H_
