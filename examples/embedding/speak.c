// SPDX-License-Identifier: LGPL-2.1-or-later
// Speaks a text and writes the samples (signed 16 bits, 24000 Hz, mono) to standard output, by pulling them
// from an appsink: no main loop is needed.
//   speak-c TEXT | aplay -f S16_LE -r 24000
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <stdio.h>
#include <string.h>

// The error that ended the pipeline; NULL if it was the end of the speech.
static gchar* find_error(GstElement* pipeline) {
  GstBus* bus = gst_element_get_bus(pipeline);
  GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
  gst_object_unref(bus);
  if (message == NULL) return NULL;
  GError* error = NULL;
  gst_message_parse_error(message, &error, NULL);
  gchar* text = g_strdup(error->message);
  g_error_free(error);
  gst_message_unref(message);
  return text;
}

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const gboolean help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
  if (argc != 2 || help) {
    (help ? g_print : g_printerr)("usage: %s TEXT >samples\n", argv[0]);
    return help ? 0 : 2;
  }

  GError* error = NULL;
  GstElement* pipeline = gst_parse_launch(
      "qttssrc name=speech ! appsink name=out sync=false max-buffers=8 caps=audio/x-raw,format=S16LE", &error);
  if (error != NULL) {
    g_printerr("%s\n", error->message);
    g_clear_error(&error);
    gst_clear_object(&pipeline);
    return 1;
  }
  GstElement* speech = gst_bin_get_by_name(GST_BIN(pipeline), "speech");
  GstElement* out = gst_bin_get_by_name(GST_BIN(pipeline), "out");
  g_object_set(speech, "text", argv[1], NULL);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);

  // One sample is one frame of 80 ms; NULL comes at the end and after an error.
  GstSample* sample = NULL;
  while ((sample = gst_app_sink_pull_sample(GST_APP_SINK(out))) != NULL) {
    GstMapInfo map;
    if (gst_buffer_map(gst_sample_get_buffer(sample), &map, GST_MAP_READ)) {
      fwrite(map.data, 1, map.size, stdout);
      gst_buffer_unmap(gst_sample_get_buffer(sample), &map);
    }
    gst_sample_unref(sample);
  }
  fflush(stdout);

  gchar* problem = find_error(pipeline);
  if (problem != NULL) g_printerr("%s\n", problem);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(out);
  gst_object_unref(speech);
  gst_object_unref(pipeline);
  const int status = problem == NULL && !ferror(stdout) ? 0 : 1;
  g_free(problem);
  return status;
}
