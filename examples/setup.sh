# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sets up what the example scripts need. Those with a pipeline source run.sh.
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
    with_progress configuring true meson setup "$build" "$root" -Dunity=on -Dunity_size=16 || status=$?
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
