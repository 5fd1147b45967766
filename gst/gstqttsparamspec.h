// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PARAM_SPEC_H_
#define GST_QTTS_PARAM_SPEC_H_

#include <glib-object.h>

#include <string>

namespace gstqtts {

// A property of type double with the values from `minimum`, perhaps qtts::kAboveZero, to `maximum` and, apart from
// them, -1, its default, for the model's own value. GParamSpecDouble has one range only: what lies between -1 and
// `minimum` would be accepted and fail with every text. It refuses NaN, which GLib lets through.
GParamSpec* NewModelValueParamSpec(const gchar* name, const gchar* nick, const gchar* blurb, double minimum,
                                   double maximum, GParamFlags flags);

// The values of a numeric property, for people: "-1 to 100", "-1, or above 0 to 1". Empty for other types.
std::string DescribeRange(GParamSpec* spec);

}  // namespace gstqtts

#endif  // GST_QTTS_PARAM_SPEC_H_
