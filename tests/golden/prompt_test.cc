// SPDX-License-Identifier: LGPL-2.1-or-later
// Checkpoints, token ids and prompt rows against the official package.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "golden/golden_case.h"

namespace qtts::golden {
namespace {

class GoldenCheckpoint : public ::testing::TestWithParam<std::string> {};
class GoldenPrompt : public ::testing::TestWithParam<std::string> {};

// The recorded row `row`: [text id or null, codec id, name or null].
PromptRow ExpectedRow(const nlohmann::json& row, const GoldenCase& golden) {
  PromptRow expected;
  if (!row[0].is_null()) expected.text_id = row[0];
  if (row[1].is_number()) {
    expected.codes = {row[1].get<int32_t>()};
  } else if (row[1].is_string()) {
    const std::string name = row[1];
    const std::string reference = "reference ";
    if (name == "x_vector") {
      expected.x_vector = true;
    } else if (name.starts_with(reference)) {
      expected.codes =
          golden.document["reference_codes"][std::stoul(name.substr(reference.size()))].get<std::vector<int32_t>>();
    } else {
      ADD_FAILURE() << "a recorded row names '" << name << "'";
    }
  }
  return expected;
}

// Without the PADs at the end, which continue for ever.
std::vector<int32_t> WithoutPads(std::vector<int32_t> ids, int32_t pad) {
  while (!ids.empty() && ids.back() == pad) ids.pop_back();
  return ids;
}

TEST_P(GoldenCheckpoint, IsTheRecordedOne) {
  const auto golden = LoadCase(GetParam());
  EXPECT_TRUE(golden.ok()) << golden.status().message();
}

TEST_P(GoldenPrompt, TokenIds) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const nlohmann::json& recorded = fixture->golden->document["token_ids"];
  const auto target = recorded["target"].get<std::vector<int32_t>>();
  const Request& request = fixture->request;

  // The wrappers and slices of spec 3.1.
  const auto encode = [&](const std::string& text) {
    const auto ids = fixture->tokenizer->Encode(text);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : std::vector<int32_t>();
  };
  EXPECT_EQ(encode("<|im_start|>assistant\n" + request.text + "<|im_end|>\n<|im_start|>assistant\n"), target);
  EXPECT_EQ(fixture->text_ids, std::vector<int32_t>(target.begin() + 1, target.end() - 5));
  if (recorded.contains("instruct")) {
    EXPECT_EQ(nlohmann::json(encode("<|im_start|>user\n" + request.instruct + "<|im_end|>\n")), recorded["instruct"]);
  }
  if (recorded.contains("reference")) {
    EXPECT_EQ(nlohmann::json(encode("<|im_start|>assistant\n" + request.voice->reference_text + "<|im_end|>\n")),
              recorded["reference"]);
  }
}

TEST_P(GoldenPrompt, Rows) {
  const auto fixture = MakeFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const GoldenCase& golden = *fixture->golden;
  EXPECT_EQ(static_cast<int64_t>(fixture->prompt.rows.size()), golden.tensors.at("prompt").shape[0]);
  EXPECT_TRUE(fixture->prompt.text_complete);
  if (!golden.document.contains("rows")) return;  // recorded only if all embeddings differ

  std::vector<PromptRow> expected;
  for (const auto& row : golden.document["rows"]) expected.push_back(ExpectedRow(row, golden));
  ASSERT_EQ(fixture->prompt.rows.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(fixture->prompt.rows[i].text_id, expected[i].text_id) << "row " << i;
    EXPECT_EQ(fixture->prompt.rows[i].codes, expected[i].codes) << "row " << i;
    EXPECT_EQ(fixture->prompt.rows[i].x_vector, expected[i].x_vector) << "row " << i;
  }
  const int32_t pad = fixture->prompt.pad_text_id;
  EXPECT_EQ(WithoutPads(fixture->prompt.trailing_text, pad),
            WithoutPads(golden.document["trailing_text"].get<std::vector<int32_t>>(), pad));
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenCheckpoint,
                         ::testing::ValuesIn(Cases({CaseKind::kGreedy, CaseKind::kSampled, CaseKind::kCodec})),
                         CaseTestName);
INSTANTIATE_TEST_SUITE_P(Golden, GoldenPrompt, ::testing::ValuesIn(Cases({CaseKind::kGreedy, CaseKind::kSampled})),
                         CaseTestName);

}  // namespace
}  // namespace qtts::golden
