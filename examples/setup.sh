# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the example scripts: set-up, and the parts that their pipelines share.
#
# These variables of the environment work with all of them:
#   QTTS_MODEL=DIR        speaks with another checkpoint than the bundled voice
#   QTTS_PROPERTIES=...   more properties for qttssrc, such as "speaker=ryan seed=1"
#   QTTS_BUILD_DIR=DIR    where to build, from the top of the source; build, if unset
set -euo pipefail
# In the background of another script Ctrl-C is ignored, and a shell cannot undo that. A user who sends it anyway wants
# to end this script.
[[ $(trap -p INT) != *"''"* ]] || exec env --default-signal=INT "$0" "$@"
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
. "$root/build-aux/debian.sh"
. "$root/build-aux/gpu.sh"

# manual: prints the comment at the head of the script.
manual() { sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "$0"; }

# usage: the manual for who called a script in another way, and the end of it.
usage() {
  manual >&2
  exit 2
}

# refuse MESSAGE: what is wrong with the command line or with what it names.
refuse() {
  echo "$1" >&2
  exit 2
}

# arguments LEAST MOST ARGUMENT...: answers --help, and sets the array `args` to the arguments, of which there have to be
# so many. After --, what begins with - is an argument too.
arguments() {
  local least=$1 most=$2
  shift 2
  args=()
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) manual; exit 0 ;;
      --) args+=("${@:2}") && break ;;
      -?*) refuse "$1: no such option; after -- it is a text or a file" ;;
      *) args+=("$1") ;;
    esac
    shift
  done
  if [ ${#args[@]} -lt "$least" ] || [ ${#args[@]} -gt "$most" ]; then usage; fi
}

# check_text TEXT: refuses an argument that cannot be spoken.
check_text() {
  [[ $1 == *[![:space:]]* ]] || refuse "the text is blank: there is nothing to speak"
  iconv -f UTF-8 -t UTF-8 <<<"$1" >/dev/null 2>&1 || refuse "the text is not UTF-8"
}

# check_readable FILE
check_readable() {
  [ -e "$1" ] || refuse "$1: no such file"
  [ ! -d "$1" ] || refuse "$1: is a folder"
  [ -r "$1" ] || refuse "$1: cannot be read"
}

# encoding FILE: utf-16, binary, other (text that is not UTF-8) or utf-8. A character cut off at the end is no mistake.
encoding() {
  local problem
  case $(head -c 2 -- "$1" | od -An -tx1) in " ff fe" | " fe ff") echo utf-16 && return ;; esac
  if [ "$(tr -dc '\0' <"$1" | head -c 1 | wc -c)" -ne 0 ]; then
    echo binary
  elif ! problem=$(LC_ALL=C iconv -f UTF-8 -t UTF-8 -- "$1" 2>&1 >/dev/null) && [[ $problem != *incomplete* ]]; then
    echo other
  else
    echo utf-8
  fi
}

# check_text_file FILE [NAME]: refuses a file that cannot be spoken. Nothing is read from what is not a regular file.
check_text_file() {
  local name=${2:-$1}
  check_readable "$1"
  [ -f "$1" ] || return 0
  case $(encoding "$1") in
    utf-16) refuse "$name: is UTF-16, which is not spoken; in UTF-8:  iconv -f UTF-16 -t UTF-8 $name >utf8.txt" ;;
    binary) refuse "$name: is not text, but binary (or UTF-16 without its mark)" ;;
    other) refuse "$name: is not UTF-8; where it is Latin-1:  iconv -f ISO-8859-1 -t UTF-8 $name >utf8.txt" ;;
  esac
  grep -q '[^[:space:]]' -- "$1" || refuse "$name: is blank: there is nothing to speak"
}

# check_standard_input: the same for standard input. It waits for the first part of a pipe, looks at it, and puts it
# back.
check_standard_input() {
  if [ -f /dev/stdin ]; then
    check_text_file /dev/stdin "standard input"
  elif [ -p /dev/stdin ]; then
    local first found
    first=$(mktemp)
    dd bs=4096 count=1 of="$first" 2>/dev/null
    found=$(encoding "$first")
    if [ "$found" != utf-8 ]; then
      rm -f "$first"
      refuse "standard input: is not text in UTF-8 but $found"
    fi
    exec < <(cat "$first" && rm -f "$first" && exec cat 2>/dev/null)
  fi
}

# check_subtitles FILE: refuses what cannot be subtitles; these may be UTF-16 and Latin-1 too.
check_subtitles() {
  local found
  check_readable "$1"
  [ -f "$1" ] || return 0
  found=$(encoding "$1")
  [ "$found" != binary ] || refuse "$1: is not subtitles, but binary"
  case ${1,,} in
    *.srt | *.vtt) [ "$found" = utf-16 ] || grep -qae '-->' -- "$1" || refuse "$1: is not subtitles: no line of it has a time (-->)" ;;
  esac
}

# check_port PORT
check_port() {
  if ! [[ $1 =~ ^[1-9][0-9]{0,4}$ ]] || [ "$1" -gt 65535 ]; then refuse "$1: a port is a number from 1 to 65535"; fi
}

# quote VALUE: as gst-launch reads it inside quotes, with backslash escapes.
quote() {
  local value=${1//\\/\\\\}
  printf '"%s"' "${value//\"/\\\"}"
}

# Targets that set_up builds.
build_targets=(gst/libgstqtts.so)

# set_up [PACKAGE...]: makes qttssrc and GStreamer elements of these Debian packages available: installs what
# is missing and builds the plugin, with the GPU backend where there are an NVIDIA GPU and nvcc. A qttssrc that GStreamer
# finds already is used as it is.
# Sets the array `speaker`: the element and its properties; and `build`, empty where nothing had to be built.
set_up() {
  exec 9<"$root"
  if ! flock -n 9; then # Scripts that are started together set up one after the other.
    echo "waiting for another script, which is setting up ..." >&2
    flock 9
  fi
  build='' unused_gpu=''
  if gst-inspect-1.0 qttssrc >/dev/null 2>&1; then
    [ $# -eq 0 ] || install_missing "$@"
  else
    install_missing "${build_packages[@]}" "$@"
    build=$(cd "$root" && realpath -m -- "${QTTS_BUILD_DIR:-build}")
    need_writable "$build"
    build_plugin
    if [[ " ${QTTS_PROPERTIES:-} " != *" device=cpu "* ]]; then
      find_gpu
      [ -z "$card" ] || build_backend
    fi
    export GST_PLUGIN_PATH=$build/gst QTTS_VOICE_PATH=$root/data/voice
  fi
  exec 9<&-
  speaker=(qttssrc)
  [ -z "${QTTS_MODEL:-}" ] || speaker+=("model-path=$(quote "$QTTS_MODEL")")
  local properties
  read -ra properties <<<"${QTTS_PROPERTIES:-}"
  # Why has been said.
  [ -z "$unused_gpu" ] || [[ ${QTTS_PROPERTIES:-} == *device=* ]] || speaker+=(device=cpu)
  speaker+=("${properties[@]}")
}

# build_plugin: configures where needed, builds in the folder $build, and says where the plugin is if it is another now.
build_plugin() {
  local log interrupted='' what=configuring status=0
  log=$(mktemp "${TMPDIR:-/tmp}/qttssrc-build-XXXXXX.log")
  if [ ! -e "$build/build.ninja" ]; then
    echo "configuring and building in $build, once; this takes minutes" >&2
    with_progress configuring true meson setup "$build" "$root" || status=$?
  fi
  if [ "$status" -eq 0 ] && [ -z "$interrupted" ]; then
    what=building
    with_progress building build_stage ninja -C "$build" "${build_targets[@]}" || status=$?
  fi
  if [ "$status" -ne 0 ] || [ -n "$interrupted" ]; then stopped "$what" "call this again" "$status"; fi
  grep -q '^ninja: no work to do' "$log" || echo "built; the plugin is in $build/gst (examples/shell opens a shell that knows it)" >&2
  rm -f "$log"
}

# build_stage: how far ninja is.
build_stage() {
  sed -n 's|^\[\([0-9]*\)/\([0-9]*\)\].*|\1 of \2 steps|p' "$log" | tail -n 1
}

# launch [OPTION...] ELEMENTS...: runs a pipeline to its end, or until Ctrl-C; with the option -e it goes to its end then
# too; with -m it says which texts were not wholly spoken, by their numbers. Says of what gst-launch prints only what its
# user should know. Returns its status; sets `interrupted` to the status to exit with after a Ctrl-C, `took` to the
# seconds it ran, and with -v `sound` to the seconds of sound that went through "${measure[@]}".
launch() {
  local start errors messages measured status=0
  start=$(date +%s%N)
  measured=$(mktemp)
  # Ctrl-C is for the pipeline, which may have something to say until its end.
  exec 7> >(trap '' INT TERM HUP && exec 7>&- && say_errors)
  errors=$!
  exec 8> >(trap '' INT TERM HUP && exec 7>&- 8>&- && exec sed -un -e 's/^WARNING: from element [^ ]*: /warning: /w /dev/stderr' \
    -e '/ qtts-utterance-finished, /s/^.* id=(guint64)\([0-9]*\), reason=(string)\(clipped\|runaway\|max-duration\|busy\|error\),.*$/warning: text \1 was not wholly spoken: \2/w /dev/stderr' \
    -e '/ qtts-utterance-finished, /s/^.* id=(guint64)\([0-9]*\), reason=(string)complete,.* coverage=(double)\(0[.0-9]*\),.*$/warning: text \1 was not wholly spoken: \2 of it/w /dev/stderr' \
    -e 's/^.*:measure: last-message = .*(\([0-9]*\) bytes,.*/\1/p' \
    -e '/:measure.GstPad:sink: caps = /{h;s/.*format=(string)[A-Z]*\([0-9]*\).*/bits \1/p;g;s/.*rate=(int)\([0-9]*\).*/rate \1/p' \
    -e 'g;s/.*channels=(int)\([0-9]*\).*/channels \1/p}' \
    >"$measured")
  messages=$!
  LC_ALL=C interruptible stdbuf -oL gst-launch-1.0 "$@" 2>&7 >&8 7>&- 8>&- || status=$?
  exec 7>&- 8>&-
  wait "$errors" "$messages" || true
  sound=$(awk '/^[a-z]/ { caps[$1] = $2; next } { sum += $1 * 8 / (caps["bits"] * caps["rate"] * caps["channels"]) }
    END { printf "%.2f", sum }' "$measured")
  rm -f "$measured"
  took=$(awk -v ns=$(($(date +%s%N) - start)) 'BEGIN { printf "%.2f", ns / 1e9 }')
  return "$status"
}

# Says how many bytes come by. (The element `level` would do, but not for a stream that ends before it has begun.)
measure=(identity name=measure silent=false)

# say_errors: of what gst-launch writes to standard error, the first error, in one line, and what is no error at all,
# such as what GST_DEBUG asks for.
say_errors() {
  local line said='' detail
  while IFS= read -r line; do
    case $line in
      "ERROR: from element "*)
        detail=
        IFS= read -r _ || true # "Additional debug info:", then where in the source, then more, if that ends with a colon
        IFS= read -r detail || true
        case $detail in
          *:) IFS= read -r detail || true ;;
          *) detail= ;;
        esac
        [ -z "$said" ] || continue
        said=1
        if [[ $line == *"/GstQttsSrc:"* || $detail == "" ]]; then
          echo "error: ${line#ERROR: from element *: }"
        else
          echo "error: ${line#ERROR: from element *: } ($detail)"
        fi
        ;;
      "ERROR: pipeline doesn't want to preroll." | "Failed to set pipeline to "*) ;;
      *) printf '%s\n' "$line" ;;
    esac
  done >&2
}

# file_output FILE: sets the array `output` to the elements that write sound into FILE, by its ending, and
# `output_packages` to the Debian packages they are in. It is for write_file.
# shellcheck disable=SC2034
file_output() {
  output_packages=()
  case ${1,,} in
    *.wav) output=('audio/x-raw,format=S16LE' ! wavenc) ;;
    *.flac) output=('audio/x-raw,format=S16LE' ! flacenc) ;;
    *.opus | *.ogg) output=(audioresample ! opusenc audio-type=voice bitrate=32000 ! oggmux) ;;
    *.mp3) output=(lamemp3enc target=bitrate bitrate=64 ! xingmux) ;;
    *.m4a) output=(avenc_aac bitrate=64000 ! mp4mux) output_packages=(gstreamer1.0-libav) ;;
    *) refuse "$1: its ending is none of .wav .flac .opus .ogg .mp3 .m4a" ;;
  esac
  target=$(realpath -m -- "$1")
  local folder=${target%/*}
  [ ! -d "$target" ] || refuse "$1: is a folder"
  [ -d "${folder:-/}" ] || refuse "$1: there is no folder $folder"
  partial=$target
  if [ ! -e "$target" ] || [ -f "$target" ]; then # else a pipe, perhaps
    [ -w "${folder:-/}" ] || refuse "$1: nothing can be written into the folder $folder"
    partial=$(mktemp -u "$folder/.qttssrc-XXXXXX")
  fi
  output=(audioconvert ! "${measure[@]}" ! audioconvert ! "${output[@]}" ! filesink "location=$(quote "$partial")")
}

# write_file WHAT ELEMENTS...: runs a pipeline that ends in what file_output chose. The file appears when it is whole,
# after Ctrl-C with what was spoken until then; what it holds is told, WHAT being speech or sound.
write_file() {
  local what=$1 status=0
  shift
  trap '[ "$partial" = "$target" ] || rm -f -- "$partial"' EXIT
  launch -e -v "$@" ! "${output[@]}" || status=$?
  if [ "$status" -ne 0 ]; then
    exit "${interrupted:-1}"
  elif [ "$sound" = 0.00 ]; then
    echo "there is no $what: $target was not written" >&2
    exit "${interrupted:-1}"
  fi
  [ "$partial" = "$target" ] || mv -f -- "$partial" "$target"
  wrote "$target" "$what"
}

# wrote FILE WHAT: tells how much sound the last pipeline put into it, and how fast where that was for us to say.
wrote() {
  if [ "$2" = "received sound" ]; then
    echo "wrote $1: $sound s of $2"
  else
    awk -v took="$took" -v sound="$sound" 'BEGIN { printf "%.1f\n", sound / took }' |
      { read -r speed; echo "wrote $1${interrupted:+, as far as it came}: $sound s of $2 in $took s, start-up included ($speed times real time)"; }
  fi
}

# Elements that make sound audible on this machine; their Debian packages.
# shellcheck disable=SC2034
loudspeaker=(audioconvert ! audioresample ! autoaudiosink)
# shellcheck disable=SC2034
loudspeaker_packages=(gstreamer1.0-alsa)
no_loudspeaker="no sound device on this machine; examples/say, encode, read and rtp-receive write into a file"

# may_have_loudspeaker: ends the script where there can be none, before anything is installed for it.
may_have_loudspeaker() {
  local sign
  for sign in /dev/snd/pcm*p "${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"/{pulse/native,pipewire-0}; do
    [ ! -e "$sign" ] || return 0
  done
  # A sound server elsewhere, or a device of the user's own.
  [ -z "${PULSE_SERVER:-}${ALSA_CONFIG_PATH:-}" ] && [ ! -e ~/.asoundrc ] && [ ! -e /etc/asound.conf ] || return 0
  echo "$no_loudspeaker" >&2
  exit 1
}

# need_loudspeaker: ends the script where no sound can be played; autoaudiosink only warns, and drops it. (grep -q could
# end gst-launch-1.0 before all is written, which would count as a failure of the pipe.)
need_loudspeaker() {
  if LC_ALL=C gst-launch-1.0 audiotestsrc wave=silence num-buffers=1 ! audioconvert ! autoaudiosink 2>/dev/null |
    grep '^WARNING: .*GstAutoAudioSink' >/dev/null; then
    echo "$no_loudspeaker" >&2
    exit 1
  fi
}
