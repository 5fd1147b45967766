# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced after examples/setup.sh: what qtts-serve needs beside the plugin.

# Debian's packages: GStreamer for Python, and the encoders of all formats.
# shellcheck disable=SC2034
serve_packages=(python3 python3-venv python3-gi gir1.2-gstreamer-1.0 gir1.2-gst-plugins-base-1.0 gstreamer1.0-libav
  gstreamer1.0-plugins-bad libopus0)
# GStreamer's plugins that the server uses: around the element, and of the formats in encoders.py. The image of
# deploy/Containerfile is not made without one of them; tests/gpu/serve-on-gpu packs them.
# shellcheck disable=SC2034
serve_plugins=(coreelements app audioconvert audioresample flac lame libav audioparsers mulaw alaw)
# Libraries that the server and the clients of measure/ load by name.
# shellcheck disable=SC2034
serve_libraries=(libopus.so.0)

# set_up_python [REQUIREMENTS]: makes the virtual environment QTTS_SERVE_VENV, serve-venv in the build folder unless
# set, with the packages of a requirements file, requirements.txt unless given, where they are not in it yet. Sets
# `python`.
set_up_python() {
  local serve venv requirements log
  serve=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
  # shellcheck disable=SC2154  # examples/setup.sh sets it
  venv=$(cd "$root" && realpath -m -- "${QTTS_SERVE_VENV:-${QTTS_BUILD_DIR:-build}/serve-venv}")
  need_writable "$venv"
  requirements=${1:-$serve/requirements.txt}
  python=$venv/bin/python
  exec 9<"$venv"
  flock 9 # Scripts that are started together install one after the other.
  if ! cmp -s "$requirements" "$venv/$(basename "$requirements")"; then
    log=$(mktemp)
    echo "installing packages of PyPI into $venv" >&2
    # Debian's Python, which python3-gi is for.
    if ! { /usr/bin/python3 -m venv --system-site-packages "$venv" &&
      "$python" -m pip install --disable-pip-version-check --require-hashes -r "$requirements"; } >"$log" 2>&1; then
      tail -n 5 "$log" >&2
      echo "installing packages of PyPI failed; all it said: $log" >&2
      return 1
    fi
    rm -f "$log"
    cp "$requirements" "$venv/"
  fi
  exec 9<&-
}
