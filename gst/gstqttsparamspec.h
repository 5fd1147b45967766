// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PARAM_SPEC_H_
#define GST_QTTS_PARAM_SPEC_H_

#include <glib-object.h>

#include <string>

namespace gstqtts {

// Returns a property of type double with the values from `minimum` (perhaps qtts::kAboveZero) to `maximum`, and -1, the
// default, for the model's own value. GParamSpecDouble has one range only: it would accept values between -1 and
// `minimum`, which fail with every text. NaN, which GLib accepts, is refused.
GParamSpec* NewModelValueParamSpec(const gchar* name, const gchar* nick, const gchar* blurb, double minimum,
                                   double maximum, GParamFlags flags);

// Returns a property of type double with the values from `minimum` to `maximum`. NaN is refused.
GParamSpec* NewRealParamSpec(const gchar* name, const gchar* nick, const gchar* blurb, double minimum, double maximum,
                             double initial, GParamFlags flags);

// Returns the values of a numeric property in words: "-1 to 100", "-1, or above 0 to 1". Empty for other types.
std::string DescribeRange(GParamSpec* spec);

}  // namespace gstqtts

#endif  // GST_QTTS_PARAM_SPEC_H_
