// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsparamspec.h"

#include "gstqttssettings.h"

namespace gstqtts {
namespace {

struct ModelValueParamSpec {
  GParamSpecDouble parent;
  double minimum;
  bool model_value;  // -1 is a value, too
};

struct ModelValueParamSpecClass {
  GParamSpecClass parent;
};

gboolean IsValid(GParamSpec* spec, const GValue* value) {
  const double number = g_value_get_double(value);
  if (reinterpret_cast<ModelValueParamSpec*>(spec)->model_value && number == Settings::kModel) return TRUE;
  // Comparisons with NaN are false.
  return static_cast<gboolean>(number >= reinterpret_cast<ModelValueParamSpec*>(spec)->minimum &&
                               number <= G_PARAM_SPEC_DOUBLE(spec)->maximum);
}

// Makes the value valid. Whether it had to be changed, upon which GObject refuses it.
gboolean Validate(GParamSpec* spec, GValue* value) {
  if (IsValid(spec, value)) return FALSE;
  g_param_value_set_default(spec, value);
  return TRUE;
}

void InitClass(gpointer klass, gpointer /*data*/) {
  GParamSpecClass* spec_class = G_PARAM_SPEC_CLASS(klass);
  spec_class->value_validate = Validate;
  spec_class->value_is_valid = IsValid;
}

GType GetType() {
  static const GType type =
      g_type_register_static_simple(G_TYPE_PARAM_DOUBLE, "GstQttsParamModelValue", sizeof(ModelValueParamSpecClass),
                                    InitClass, sizeof(ModelValueParamSpec), nullptr, static_cast<GTypeFlags>(0));
  return type;
}

std::string Format(double number) {
  gchar text[G_ASCII_DTOSTR_BUF_SIZE];
  return g_ascii_formatd(text, sizeof text, "%g", number);
}

template <typename Spec>
std::string FormatRange(const Spec* spec) {
  return std::to_string(spec->minimum) + " to " + std::to_string(spec->maximum);
}

}  // namespace

GParamSpec* NewModelValueParamSpec(const gchar* name, const gchar* nick, const gchar* blurb, double minimum,
                                   double maximum, GParamFlags flags) {
  auto* spec = static_cast<ModelValueParamSpec*>(g_param_spec_internal(GetType(), name, nick, blurb, flags));
  spec->parent.minimum = Settings::kModel;
  spec->parent.maximum = maximum;
  spec->parent.default_value = Settings::kModel;
  spec->minimum = minimum;
  spec->model_value = true;
  return G_PARAM_SPEC(spec);
}

GParamSpec* NewRealParamSpec(const gchar* name, const gchar* nick, const gchar* blurb, double minimum, double maximum,
                             double initial, GParamFlags flags) {
  auto* spec = static_cast<ModelValueParamSpec*>(g_param_spec_internal(GetType(), name, nick, blurb, flags));
  spec->parent.minimum = spec->minimum = minimum;
  spec->parent.maximum = maximum;
  spec->parent.default_value = initial;
  return G_PARAM_SPEC(spec);
}

std::string DescribeRange(GParamSpec* spec) {
  if (G_TYPE_CHECK_INSTANCE_TYPE(spec, GetType())) {
    const double minimum = reinterpret_cast<ModelValueParamSpec*>(spec)->minimum;
    if (!reinterpret_cast<ModelValueParamSpec*>(spec)->model_value) {
      return Format(minimum) + " to " + Format(G_PARAM_SPEC_DOUBLE(spec)->maximum);
    }
    return "-1, or " + (minimum == qtts::kAboveZero ? "above 0" : Format(minimum)) + " to " +
           Format(G_PARAM_SPEC_DOUBLE(spec)->maximum);
  }
  if (G_IS_PARAM_SPEC_INT(spec)) return FormatRange(G_PARAM_SPEC_INT(spec));
  if (G_IS_PARAM_SPEC_INT64(spec)) return FormatRange(G_PARAM_SPEC_INT64(spec));
  if (G_IS_PARAM_SPEC_UINT64(spec)) return FormatRange(G_PARAM_SPEC_UINT64(spec));
  return {};
}

}  // namespace gstqtts
