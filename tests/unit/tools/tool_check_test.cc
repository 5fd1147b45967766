// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool check.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool_fixture.h"

namespace qtts {
namespace {

const Json& OwnReport() {
  static const Json report = [] {
    const Outcome outcome = RunTool({"check", kVoice, "--json"});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }();
  return report;
}

Outcome CheckAgainst(const Json& report, std::vector<std::string> more = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.File("report.json");
  std::ofstream(path) << report.dump();
  std::vector<std::string> arguments = {"check", kVoice, "--against", path};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunTool(arguments);
}

TEST(ToolTest, CheckReportsTheModelAndAFixedRequest) {
  const Json& report = OwnReport();
  EXPECT_EQ(report["model"]["type"], "custom_voice");
  EXPECT_EQ(report["model"]["talker_layers"], 7);
  EXPECT_EQ(report["request"]["speaker"], "clara");
  EXPECT_EQ(report["tokens"].size(), report["request"]["lines"].size());
  EXPECT_GT(report["prompt"]["rows"].size(), 10U);
  ASSERT_EQ(report["runs"].size(), 1U);
  const Json& run = report["runs"][0];
  EXPECT_EQ(run["precision"], "f32");
  EXPECT_EQ(run["codes"].size(), 16U);
  EXPECT_EQ(run["codes"][0].size(), 12U);
  EXPECT_EQ(run["samples"]["count"], 16 * 1920);
  EXPECT_EQ(run["samples"]["sums"].size(), 16U);

  // The codes are those of the command `codes`.
  const Outcome codes = RunTool({"codes", kVoice, "--text", report["request"]["text"], "--speaker", "clara",
                                 "--language", "english", "--greedy", "--max-frames", "16", "--json"});
  ASSERT_EQ(codes.exit_status, 0) << codes.err;
  EXPECT_EQ(Json::parse(codes.out)["codes"], run["codes"]);
}

TEST(ToolTest, CheckRunsTheNamedPrecisionToo) {
  const Outcome outcome = CheckAgainst(OwnReport(), {"--device", "cpu", "--precision", "int8", "--json"});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json report = Json::parse(outcome.out);
  ASSERT_EQ(report["runs"].size(), 2U);
  EXPECT_EQ(report["runs"][0]["codes"], OwnReport()["runs"][0]["codes"]);
  EXPECT_EQ(report["runs"][1]["precision"], "int8");
  EXPECT_TRUE(report["against"]["equal"].get<bool>());
}

TEST(ToolTest, CheckNamesTheFirstDifference) {
  const Outcome equal = CheckAgainst(OwnReport());
  EXPECT_EQ(equal.exit_status, 0) << equal.err;
  EXPECT_NE(equal.out.find("result      equal"), std::string::npos) << equal.out;

  const struct {
    const char* pointer;
    Json value;
    const char* says;
  } changes[] = {{"/runs/0/codes/3/2", 99999, "frame 3, group 2: "},
                 {"/tokens/1/0", -1, "tokens: first difference at line 1, token 0: "},
                 {"/prompt/rows/4", Json::array({1, 2}), "prompt: first difference at row 4: "},
                 {"/model/talker_layers", 8, "talker_layers: 7 here, 8 in the file"},
                 {"/request/lines/0", "Other.", "lines, line 0: \"Hello, world.\" here"},
                 {"/runs/0/samples/picked/5", 0.5, "sample 5: "},
                 {"/runs/0/samples/sums/7", 99, "frame 7: "}};
  for (const auto& change : changes) {
    Json other = OwnReport();
    other[Json::json_pointer(change.pointer)] = change.value;
    const Outcome outcome = CheckAgainst(other);
    EXPECT_EQ(outcome.exit_status, 1) << change.pointer;
    EXPECT_NE(outcome.out.find(change.says), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("result      different"), std::string::npos) << outcome.out;
  }
}

TEST(ToolTest, CheckFindsAMissingPart) {
  Json other = OwnReport();
  other["runs"][0].erase("codes");
  const Outcome outcome = CheckAgainst(other);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_NE(outcome.out.find("in F32: missing in the file"), std::string::npos) << outcome.out;
}

TEST(ToolTest, CheckRefusesAFileThatIsNoReport) {
  const Json wrong[] = {Json::array(),
                        Json::object(),
                        {{"format", "qtts-check-0"}, {"runs", Json::array()}},
                        {{"format", "qtts-check-1"}, {"runs", Json::array()}}};
  for (const Json& report : wrong) {
    const Outcome outcome = CheckAgainst(report);
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("not a report of the format"), std::string::npos) << outcome.err;
  }
  const Outcome missing = RunTool({"check", kVoice, "--against", "/nonexistent/report"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_NE(missing.err.find("/nonexistent/report: cannot be read"), std::string::npos) << missing.err;
}

TEST(ToolTest, CheckAndTheOfficialScriptHaveOneRequest) {
  const Outcome script = RunProgram("python3", {QTTS_TEST_OFFICIAL_CHECK, "--request", kVoice});
  ASSERT_EQ(script.exit_status, 0) << script.err;
  EXPECT_EQ(Json::parse(script.out), OwnReport()["request"]);
}

}  // namespace
}  // namespace qtts
