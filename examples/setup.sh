# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the example scripts: set-up, and the parts that their pipelines share.
#
# These variables of the environment work with all of them:
#   QTTS_MODEL=DIR        speaks with another checkpoint than the bundled voice
#   QTTS_PROPERTIES=...   more properties for qttssrc, such as "speaker=ryan seed=1"
#   QTTS_BUILD_DIR=DIR    where to build, from the top of the source; build, if unset
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
. "$root/build-aux/debian.sh"

# usage: prints the comment at the head of the script, and ends it.
usage() {
  sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}

# quote VALUE: as gst-launch reads it inside quotes, with backslash escapes.
quote() {
  local value=${1//\\/\\\\}
  printf '"%s"' "${value//\"/\\\"}"
}

# set_up [PACKAGE...]: makes qttssrc and GStreamer elements of these Debian packages available: installs what
# is missing and builds the plugin. A qttssrc that GStreamer finds already is used as it is.
# Sets the array `speaker`: the element and its properties.
set_up() {
  exec 9<"$root"
  flock 9 # Scripts that are started together set up one after the other.
  if gst-inspect-1.0 qttssrc >/dev/null 2>&1; then
    [ $# -eq 0 ] || install_missing "$@"
  else
    install_missing "${build_packages[@]}" "$@"
    local build log
    build=$(cd "$root" && realpath -m -- "${QTTS_BUILD_DIR:-build}")
    need_writable "$build"
    log=$(mktemp)
    if [ ! -e "$build/build.ninja" ]; then
      echo "configuring and building (once) ..." >&2
      meson setup "$build" "$root" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    fi
    ninja -C "$build" gst/libgstqtts.so >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    rm -f "$log"
    export GST_PLUGIN_PATH=$build/gst QTTS_VOICE_PATH=$root/data/voice
  fi
  exec 9<&-
  speaker=(qttssrc)
  [ -z "${QTTS_MODEL:-}" ] || speaker+=("model-path=$(quote "$QTTS_MODEL")")
  local properties
  read -ra properties <<<"${QTTS_PROPERTIES:-}"
  speaker+=("${properties[@]}")
}

# launch ELEMENTS...: runs a pipeline to its end, and says of what gst-launch prints only what its user should know:
# errors, and warnings such as that of speech that was cut.
launch() {
  LC_ALL=C stdbuf -oL gst-launch-1.0 "$@" | (
    trap '' INT # Ctrl-C is for the pipeline, which may have something to say until its end.
    exec sed -un 's/^WARNING: from element [^ ]*: /warning: /p' >&2
  )
}

# file_output FILE: sets the array `output` to the elements that write sound into FILE, by its ending, and
# `output_packages` to the Debian packages they are in.
# shellcheck disable=SC2034
file_output() {
  output_packages=()
  case $1 in
    *.wav) output=(audioconvert ! 'audio/x-raw,format=S16LE' ! wavenc) ;;
    *.flac) output=(audioconvert ! 'audio/x-raw,format=S16LE' ! flacenc) ;;
    *.opus | *.ogg) output=(audioconvert ! audioresample ! opusenc audio-type=voice bitrate=32000 ! oggmux) ;;
    *.mp3) output=(audioconvert ! lamemp3enc target=bitrate bitrate=64 ! xingmux) ;;
    *.m4a) output=(audioconvert ! avenc_aac bitrate=64000 ! mp4mux) output_packages=(gstreamer1.0-libav) ;;
    *)
      echo "$1: its ending is none of .wav .flac .opus .ogg .mp3 .m4a" >&2
      exit 2
      ;;
  esac
  output+=(! filesink "location=$(quote "$1")")
}

# What makes sound audible on this machine; its Debian packages.
# shellcheck disable=SC2034
loudspeaker=(audioconvert ! audioresample ! autoaudiosink)
# shellcheck disable=SC2034
loudspeaker_packages=(gstreamer1.0-alsa)

# need_loudspeaker: ends the script where no sound can be played; autoaudiosink only warns, and drops it.
need_loudspeaker() {
  if LC_ALL=C gst-launch-1.0 audiotestsrc wave=silence num-buffers=1 ! audioconvert ! autoaudiosink 2>/dev/null |
    grep -q '^WARNING: .*GstAutoAudioSink'; then
    echo "no sound device on this machine; examples/encode, read and rtp-receive write into a file" >&2
    exit 1
  fi
}
