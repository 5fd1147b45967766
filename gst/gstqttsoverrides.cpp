// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsoverrides.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "gstqttsparamspec.h"
#include "gstqttspropertytable.h"

namespace gstqtts {
namespace {

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
  Properties properties;  // of which the settings are used
  std::string error;
};

gboolean ApplyField(const std::string& name, const GValue* value, Application* application) {
  const auto fail = [&](const std::string& why) {
    application->error = "The setting \"" + name + "\" " + why;
    return FALSE;
  };
  const Property* property = FindProperty(name);
  if (property == nullptr || !property->of_utterance) {
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
    property->set(&converted, &application->properties);
    done = TRUE;
  }
  g_value_unset(&converted);
  return done;
}

}  // namespace

const std::vector<std::string_view>& SettingNames() {
  static const auto* names = [] {
    auto* list = new std::vector<std::string_view>;
    for (const Property& property : PropertyTable()) {
      if (property.of_utterance) list->push_back(property.name);
    }
    return list;
  }();
  return *names;
}

bool ApplyOverrides(GObjectClass* klass, const GstStructure* overrides, Settings* settings, std::string* error) {
  if (overrides == nullptr) return true;
  Application application{klass, {}, {}};
  application.properties.utterance = *settings;
  // Not gst_structure_foreach(), which is deprecated since 1.26, nor what took its place there.
  for (gint i = 0; i < gst_structure_n_fields(overrides); ++i) {
    const gchar* name = gst_structure_nth_field_name(overrides, static_cast<guint>(i));
    if (!ApplyField(name, gst_structure_get_value(overrides, name), &application)) {
      *error = application.error;
      return false;
    }
  }
  *settings = std::move(application.properties.utterance);
  return true;
}

}  // namespace gstqtts
