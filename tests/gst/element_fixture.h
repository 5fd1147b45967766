// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_ELEMENT_FIXTURE_H_
#define QTTS_TESTS_GST_ELEMENT_FIXTURE_H_

#include <fstream>
#include <string>
#include <vector>

#include "support.h"

namespace qtts::testing {

class ElementTest : public GstTest {
 protected:
  static Owned<GstElement> Make() {
    return Owned<GstElement>(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("qttssrc", nullptr))));
  }

  // The properties that the element itself installs.
  static std::vector<GParamSpec*> OwnProperties(GstElement* element) {
    guint count = 0;
    GParamSpec** specs = g_object_class_list_properties(G_OBJECT_GET_CLASS(element), &count);
    std::vector<GParamSpec*> own;
    for (guint i = 0; i < count; ++i) {
      if (specs[i]->owner_type == G_OBJECT_TYPE(element)) own.push_back(specs[i]);
    }
    g_free(specs);
    return own;
  }

  static std::ifstream Page(const std::string& name) {
    const char* folder = g_getenv("QTTS_DOCUMENTS");
    std::ifstream file(std::string(folder != nullptr ? folder : "") + "/" + name);
    EXPECT_TRUE(file.good()) << "QTTS_DOCUMENTS has to name the folder doc";
    return file;
  }

  static std::vector<std::string> Lines(const std::string& page) {
    std::ifstream file = Page(page);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_ELEMENT_FIXTURE_H_
