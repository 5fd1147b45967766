// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SRC_H_
#define GST_QTTS_SRC_H_

#include <gst/base/gstpushsrc.h>
#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_QTTS_SRC (gst_qtts_src_get_type())
G_DECLARE_FINAL_TYPE(GstQttsSrc, gst_qtts_src, GST, QTTS_SRC, GstPushSrc)

GST_ELEMENT_REGISTER_DECLARE(qttssrc)

G_END_DECLS

#endif  // GST_QTTS_SRC_H_
