// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsoverrides.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "gstqttsparamspec.h"

namespace gstqtts {
namespace {

using Member = std::variant<std::string Settings::*, qtts::PromptLayout Settings::*, int64_t Settings::*,
                            uint64_t Settings::*, int Settings::*, double Settings::*, bool Settings::*>;

struct Setting {
  std::string_view name;
  Member member;
};

constexpr Setting kSettings[] = {
    {"speaker", &Settings::speaker},
    {"language", &Settings::language},
    {"instruct", &Settings::instruct},
    {"voice-file", &Settings::voice_file},
    {"reference-audio", &Settings::reference_audio},
    {"reference-text", &Settings::reference_text},
    {"pad-reference", &Settings::pad_reference},
    {"layout", &Settings::layout},
    {"seed", &Settings::seed},
    {"temperature", &Settings::temperature},
    {"top-k", &Settings::top_k},
    {"top-p", &Settings::top_p},
    {"repetition-penalty", &Settings::repetition_penalty},
    {"subtalker-temperature", &Settings::subtalker_temperature},
    {"subtalker-top-k", &Settings::subtalker_top_k},
    {"subtalker-top-p", &Settings::subtalker_top_p},
    {"max-duration", &Settings::max_duration},
    {"max-wait", &Settings::max_wait},
    {"runaway-guard", &Settings::runaway_guard},
    {"speak-anything", &Settings::speak_anything},
};

const Setting* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                   [name](const Setting& setting) { return setting.name == name; });
  return found != std::end(kSettings) ? found : nullptr;
}

// One overload for each kind of member.

void Read(const GValue* value, std::string* string) {
  const gchar* content = g_value_get_string(value);
  *string = content != nullptr ? content : "";
}
void Read(const GValue* value, qtts::PromptLayout* layout) {
  *layout = static_cast<qtts::PromptLayout>(g_value_get_enum(value));
}
void Read(const GValue* value, int64_t* number) { *number = g_value_get_int64(value); }
void Read(const GValue* value, uint64_t* number) { *number = g_value_get_uint64(value); }
void Read(const GValue* value, int* number) { *number = g_value_get_int(value); }
void Read(const GValue* value, double* number) { *number = g_value_get_double(value); }
void Read(const GValue* value, bool* truth) { *truth = g_value_get_boolean(value) != FALSE; }

void Write(const std::string& string, GValue* value) {
  g_value_set_string(value, string.empty() ? nullptr : string.c_str());
}
void Write(qtts::PromptLayout layout, GValue* value) { g_value_set_enum(value, static_cast<int>(layout)); }
void Write(int64_t number, GValue* value) { g_value_set_int64(value, number); }
void Write(uint64_t number, GValue* value) { g_value_set_uint64(value, number); }
void Write(int number, GValue* value) { g_value_set_int(value, number); }
void Write(double number, GValue* value) { g_value_set_double(value, number); }
void Write(bool truth, GValue* value) { g_value_set_boolean(value, truth ? TRUE : FALSE); }

// GLib's macro casts const away.
GType TypeOf(const GValue* value) { return value->g_type; }

// A whole number of any type that languages with one integer type produce.
using Whole = std::variant<int64_t, uint64_t>;
std::optional<Whole> WholeNumber(const GValue* value) {
  switch (TypeOf(value)) {
    case G_TYPE_INT:
      return int64_t{g_value_get_int(value)};
    case G_TYPE_LONG:
      return int64_t{g_value_get_long(value)};
    case G_TYPE_INT64:
      return int64_t{g_value_get_int64(value)};
    case G_TYPE_UINT:
      return uint64_t{g_value_get_uint(value)};
    case G_TYPE_ULONG:
      return uint64_t{g_value_get_ulong(value)};
    case G_TYPE_UINT64:
      return uint64_t{g_value_get_uint64(value)};
    default:
      return std::nullopt;
  }
}

template <typename T>
bool Fits(Whole number) {
  return std::visit([](auto n) { return std::in_range<T>(n); }, number);
}

template <typename T>
T As(Whole number) {
  return std::visit([](auto n) { return static_cast<T>(n); }, number);
}

// Sets `to`, initialised with the type of a property, from a field. False if the type does not do.
bool Convert(const GValue* from, GValue* to) {
  if (TypeOf(from) == G_VALUE_TYPE(to)) {
    g_value_copy(from, to);
    return true;
  }
  if (G_VALUE_HOLDS_ENUM(to) && TypeOf(from) == G_TYPE_STRING) {
    const gchar* nick = g_value_get_string(from);
    return nick != nullptr && gst_value_deserialize(to, nick) != FALSE;
  }
  if (G_VALUE_HOLDS_DOUBLE(to) && TypeOf(from) == G_TYPE_FLOAT) {
    g_value_set_double(to, g_value_get_float(from));
    return true;
  }
  const auto number = WholeNumber(from);
  if (!number) return false;
  switch (G_TYPE_FUNDAMENTAL(G_VALUE_TYPE(to))) {
    case G_TYPE_INT:
      if (!Fits<gint>(*number)) return false;
      g_value_set_int(to, As<gint>(*number));
      return true;
    case G_TYPE_ENUM:
      if (!Fits<gint>(*number)) return false;
      g_value_set_enum(to, As<gint>(*number));
      return true;
    case G_TYPE_INT64:
      if (!Fits<gint64>(*number)) return false;
      g_value_set_int64(to, As<gint64>(*number));
      return true;
    case G_TYPE_UINT64:
      if (!Fits<guint64>(*number)) return false;
      g_value_set_uint64(to, As<guint64>(*number));
      return true;
    case G_TYPE_DOUBLE:
      g_value_set_double(to, As<double>(*number));
      return true;
    default:
      return false;
  }
}

struct Application {
  GObjectClass* klass;
  Settings settings;
  std::string error;
};

gboolean ApplyField(const std::string& name, const GValue* value, Application* application) {
  const auto fail = [&](const std::string& why) {
    application->error = "The setting \"" + name + "\" " + why;
    return FALSE;
  };
  if (Find(name) == nullptr) {
    std::string names;
    for (const std::string_view known : SettingNames()) names += (names.empty() ? "" : ", ") + std::string(known);
    return fail("is unknown. Those of an utterance are: " + names + ".");
  }
  GParamSpec* spec = g_object_class_find_property(application->klass, name.c_str());
  GValue converted = G_VALUE_INIT;
  g_value_init(&converted, spec->value_type);
  gboolean done = FALSE;
  if (!Convert(value, &converted)) {
    done = fail(std::string("is a ") + g_type_name(TypeOf(value)) + ", and has to be a " +
                g_type_name(spec->value_type) + ".");
  } else if (g_param_value_validate(spec, &converted)) {
    gchar* number = g_strdup_value_contents(value);
    const std::string range = DescribeRange(spec);
    done = fail(std::string("is ") + number + ", which is out of range" +
                (range.empty() ? "." : ": it may be " + range + "."));
    g_free(number);
  } else {
    done = SetSetting(name, &converted, &application->settings);
  }
  g_value_unset(&converted);
  return done;
}

}  // namespace

const std::vector<std::string_view>& SettingNames() {
  static const auto* names = [] {
    auto* list = new std::vector<std::string_view>;
    for (const Setting& setting : kSettings) list->push_back(setting.name);
    return list;
  }();
  return *names;
}

bool SetSetting(std::string_view name, const GValue* value, Settings* settings) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return false;
  std::visit([&](auto member) { Read(value, &(settings->*member)); }, setting->member);
  return true;
}

bool GetSetting(std::string_view name, const Settings& settings, GValue* value) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return false;
  std::visit([&](auto member) { Write(settings.*member, value); }, setting->member);
  return true;
}

bool ApplyOverrides(GObjectClass* klass, const GstStructure* overrides, Settings* settings, std::string* error) {
  if (overrides == nullptr) return true;
  Application application{klass, *settings, {}};
  // Not gst_structure_foreach(), which is deprecated since 1.26, nor what took its place there.
  for (gint i = 0; i < gst_structure_n_fields(overrides); ++i) {
    const gchar* name = gst_structure_nth_field_name(overrides, static_cast<guint>(i));
    if (!ApplyField(name, gst_structure_get_value(overrides, name), &application)) {
      *error = application.error;
      return false;
    }
  }
  *settings = application.settings;
  return true;
}

}  // namespace gstqtts
