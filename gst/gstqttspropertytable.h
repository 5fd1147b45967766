// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PROPERTY_TABLE_H_
#define GST_QTTS_PROPERTY_TABLE_H_

#include <gst/gst.h>

#include <functional>
#include <string_view>
#include <vector>

#include "gstqttssettings.h"

namespace gstqtts {

// Time at which a property may change.
enum class Change {
  kReady,     // in NULL and READY
  kPlaying,   // in any state
  kReadOnly,  // only the element sets it
};

// Effect of setting a property: see gstqttsproperties.cpp.
enum class Effect {
  kNone,
  kSpeak,        // the text is one more utterance
  kTellLatency,  // when live: the pipeline is notified of the new latency
  kGoLive,       // refused while the element runs; the base class is told
  kIdleMode,     // a wait for text goes on in the new mode
  kBoundQueue,   // the queue of text has the new bound
};

// A property of the element. All code about properties uses this table: the class (types, ranges, defaults), set and
// get, fields of `speak` and `qtts/set-voice`, presets and, through gst-inspect-1.0, doc/properties.md.
//
// A default is that of the member in which the value is kept (gstqttssettings.h).
struct Property {
  const gchar* name = nullptr;
  Change change = Change::kPlaying;
  Effect effect = Effect::kNone;
  // A setting of each utterance: `params` of speak may have it, and presets keep it.
  bool of_utterance = false;
  std::function<GParamSpec*(GParamFlags)> new_spec;
  // Returns whether the value was another before. Both are empty for read-only properties.
  std::function<bool(const GValue*, Properties*)> set;
  std::function<void(const Properties&, GValue*)> get;
};

// Returns all properties, in the order of their GObject numbers, which begin with 1. Thread-safe.
const std::vector<Property>& PropertyTable();

// Returns null if there is no such property.
const Property* FindProperty(std::string_view name);

// Returns the enum types of the properties.
const std::vector<GType>& PropertyEnums();

}  // namespace gstqtts

#endif  // GST_QTTS_PROPERTY_TABLE_H_
