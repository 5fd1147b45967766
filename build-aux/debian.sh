# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the scripts that set themselves up on a fresh Debian 12 or 13: package lists and functions.
#
# QTTS_INSTALLED_LIST=FILE: where the packages are listed that were newly installed, for examples/uninstall. The packages
# are the machine's, not a build folder's; so is the list.
. "$(dirname "${BASH_SOURCE[0]:-$0}")/progress.sh"

# Packages to build and run the element. dpkg-dev: with it Meson uses Debian's library folder, and installs into the
# folder where GStreamer looks. SentencePiece's package lacks dependencies: its sentencepiece.pc in Debian 13 requires
# protobuf-lite (libprotobuf-dev), its header in Debian 14 includes Abseil's (libabsl-dev).
# shellcheck disable=SC2034
build_packages=(g++ dpkg-dev meson ninja-build pkgconf
  libglib2.0-dev libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev
  libicu-dev libsentencepiece-dev libprotobuf-dev libabsl-dev nlohmann-json3-dev libhwy-dev libmd4c-dev libsoxr-dev libebur128-dev zlib1g-dev
  gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good)
# Additional packages of the tests.
# shellcheck disable=SC2034
test_packages=(libgtest-dev libgmock-dev libboost-context-dev
  gstreamer1.0-plugins-bad gstreamer1.0-libav gstreamer1.0-alsa gstreamer1.0-x swh-plugins
  ffmpeg pocketsphinx pocketsphinx-en-us pulseaudio pulseaudio-utils
  libgstrtspserver-1.0-dev python3-gi python3-venv gir1.2-gstreamer-1.0 gir1.2-gst-plugins-base-1.0)
# Additional packages of the example programs.
# shellcheck disable=SC2034
example_packages=(libgstreamer-plugins-bad1.0-dev gstreamer1.0-plugins-bad gstreamer1.0-nice libsoup-3.0-dev
  libgstrtspserver-1.0-dev gstreamer1.0-alsa ffmpeg)
# Additional packages of the nightly tests.
# shellcheck disable=SC2034
nightly_packages=(chromium python3-websocket tshark valgrind
  build-essential debhelper help2man lintian autopkgtest)
# Additional packages of CI. The clang versions are those of Debian 12.
# shellcheck disable=SC2034
ci_packages=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev shellcheck git)

installed_list=${QTTS_INSTALLED_LIST:-/var/lib/qttssrc/installed-packages}

# install_missing PACKAGE...: installs missing packages and prints them. Needs root and a network only if some are missing.
install_missing() {
  case $- in
    *i*) (install_packages "$@") ;; # A user's shell keeps its traps and its job control.
    *) install_packages "$@" ;;
  esac
}

install_packages() {
  local installed package missing=() interrupted log plan before status=0
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system: taken to be installed: what Debian has in $*" >&2
    return 0
  fi
  installed=$(dpkg-query -W -f '/${Package}/${db:Status-Status}/\n' "$@" 2>/dev/null) || true
  for package in "$@"; do
    [[ $installed == *"/$package/installed/"* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "missing packages; as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi

  log=$(mktemp "${TMPDIR:-/tmp}/qttssrc-install-XXXXXX.log")
  apt_get "looking for packages" update || status=$?
  if [ -z "$interrupted" ]; then
    # Fails where a package is unknown or does not fit; apt-get then says so once more below. Changes nothing.
    plan=$(LC_ALL=C apt-get install --assume-no --no-install-recommends -o Debug::NoLocking=1 "${missing[@]}" 2>/dev/null) || true
    # An unreachable mirror does no harm if the packages are there already.
    if [ "$status" -eq 0 ] || ! offline "$plan"; then
      echo "installing$(plan_in_words "$plan"): ${missing[*]}" >&2
      status=0
      before=$(present_packages)
      apt_get installing install -y --no-install-recommends "${missing[@]}" || status=$?
      list_new_packages "$before"
    fi
  fi
  if [ "$status" -eq 0 ] && [ -z "$interrupted" ]; then
    rm -f "$log"
    return 0
  fi
  if [ -z "$interrupted" ] && offline "$plan"; then
    echo "no network: $(unreachable) cannot be reached; connect and call this again, or install by hand: ${missing[*]}" >&2
    rm -f "$log"
    return 1
  fi
  local next="call this again"
  [ -z "$(dpkg --audit 2>/dev/null)" ] || next="dpkg --configure -a   then call this again"
  stopped "installing packages" "$next" "$status"
}

# present_packages: every package of which files are on this machine, those that were left half installed too.
present_packages() {
  dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' | sed -n '/ not-installed$/d; / config-files$/d; s/ .*//p' | sort
}

# list_new_packages BEFORE: adds the packages that are present, and were not in the output BEFORE of present_packages, to
# the list.
list_new_packages() {
  local new
  new=$(comm -13 <(echo "$1") <(present_packages))
  [ -n "$new" ] || return 0
  mkdir -p "${installed_list%/*}"
  touch "$installed_list"
  sort -u -o "$installed_list" - "$installed_list" <<<"$new"
}

# apt_get WHAT ARGUMENT...: with progress, and a mirror that does not answer given up after 30 s.
apt_get() {
  local what=$1 status=0
  shift
  DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 with_progress "$what" apt_stage \
    apt-get -o APT::Status-Fd=3 -o APT::Update::Error-Mode=any -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120 "$@" \
    3>"$log.stage" || status=$?
  rm -f "$log.stage"
  return "$status"
}

# apt_stage: how far apt-get is, by its last line on APT::Status-Fd: STAGE:ITEM:PERCENT:TEXT.
apt_stage() {
  tail -n 1 "$log.stage" | sed -n 's/^dlstatus:[^:]*:\([0-9]*\).*/downloading, \1 %/p; s/^pmstatus:[^:]*:\([0-9]*\).*/unpacking and configuring, \1 %/p'
}

# plan_in_words PLAN: what apt-get is about to do; nothing, if it did not say.
plan_in_words() {
  local count download disk
  count=$(sed -n 's/^[0-9]* upgraded, \([0-9]*\) newly installed.*/\1/p' <<<"$1")
  download=$(sed -n 's|^Need to get \([^/]*B\)[ /].*|\1|p' <<<"$1")
  disk=$(sed -n 's/^After this operation, \(.*B\) of additional.*/\1/p' <<<"$1")
  [ -z "$count" ] || echo " $count packages, ${download:-0 B} to download, ${disk:-0 B} on disk"
}

# offline PLAN: whether no mirror was reached, and there is something to download.
offline() {
  [[ $1 != *"Need to get 0 B"* ]] && [ -n "$(unreachable)" ] && ! grep -qaE '^(Hit|Get):' "$log"
}

# unreachable: the first host that apt-get could not reach.
unreachable() {
  grep -aE "resolv|[Cc]ould not connect|Cannot initiate|Unable to connect|[Tt]imed? ?out|unreachable|refused|Connection failed|No route" "$log" |
    sed -n 's|.*Failed to fetch [a-z+]*://\([^/ ]*\)/.*|\1|p' | sed -n 1p
}

# need_writable FOLDER: creates it if it is missing; fails if it is not writable.
need_writable() {
  if ! mkdir -p -- "$1" 2>/dev/null || [ ! -w "$1" ]; then
    echo "$1: cannot be written to; QTTS_BUILD_DIR=DIR builds in another folder" >&2
    return 1
  fi
}
