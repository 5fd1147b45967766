# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034 # the scripts read these variables
# Sourced by the example scripts with a pipeline. A script has one line that checks its arguments and sets everything up,
#
#   . "$(dirname "$(readlink -f "$0")")/run.sh" && prepare ARGUMENTS... [+PACKAGE...] -- "$@"
#
# and then the pipeline, as gst-launch-1.0 runs it: that is the part to copy.
#
# prepare gives each argument a variable of its name. [NAME] may be left out, [NAME=VALUE] has a default. What is checked:
#   text       is UTF-8 and not blank
#   words      the same, or -: standard input, as the script says
#   book       a text file, or -; it becomes standard input
#   subtitles  a file of subtitles
#   original   a file that can be read
#   file       can be written; its ending chooses the array `encoder`
#   film       the same, with the ending .webm; `stem` is its name without that
#   folder     is made, if it is not there
#   format     of RTP: see rtp-formats.sh
#   host       is known; its IPv4 address
#   port       a port; listen_port: one that nobody listens on
#   loudspeaker  no argument: without a file there has to be one
# `+PACKAGE` is a Debian package with an element that the pipeline needs.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/setup.sh"

# The variables of prepare. Where nothing names the file, it is empty.
text='' words='' book='' subtitles='' original='' file='' film='' stem='' folder='' format='' host='' port=''
encoder=() packages=()
made_folder=''

# prepare ARGUMENT... [+PACKAGE...] -- "$@"
prepare() {
  local names=() least=0 name i
  while [ "$1" != -- ]; do
    case $1 in
      +*) packages+=("${1#+}") ;;
      loudspeaker) needs_loudspeaker=1 ;;
      *)
        names+=("$1")
        [ "${1:0:1}" = '[' ] || least=$((least + 1))
        ;;
    esac
    shift
  done
  shift
  arguments "$least" ${#names[@]} "$@"
  for ((i = 0; i < ${#names[@]}; i++)); do
    name=${names[i]#\[} name=${name%\]}
    if [ $i -lt ${#args[@]} ]; then
      "take_${name%=*}" "${args[i]}"
    elif [[ $name == *=* ]]; then
      "take_${name%=*}" "${name#*=}"
    fi
  done
  if [ -n "$needs_loudspeaker" ] && [ -z "$file" ]; then
    may_have_loudspeaker
    packages+=(gstreamer1.0-alsa)
  fi
  [ "$book" != - ] || check_standard_input
  set_up "${packages[@]}"
  if [ -n "$needs_loudspeaker" ] && [ -z "$file" ]; then need_loudspeaker; fi
  if [ -n "$folder" ] && [ ! -d "$folder" ]; then
    mkdir -p -- "$folder"
    made_folder=$folder
  fi
}
needs_loudspeaker='' listens=''

take_text() { text=$1; check_text "$1"; }
take_subtitles() { subtitles=$1; check_subtitles "$1"; }
take_original() { original=$1; check_readable "$1"; }
take_port() { port=$1; check_port "$1"; }
take_words() {
  words=$1
  if [ "$1" != - ]; then
    check_text "$1"
  elif [ -f /dev/stdin ]; then
    check_text_file /dev/stdin "standard input"
  fi
}
take_book() {
  book=$1
  [ "$1" != - ] || return 0
  check_text_file "$1"
  exec <"$1"
}
take_folder() {
  folder=$1
  if [ -e "$1" ] && [ ! -d "$1" ]; then refuse "$1: is no folder"; fi
}
take_format() {
  format=$1
  . "$root/examples/rtp-formats.sh"
  rtp_format "$1"
  packages+=("${rtp_packages[@]}")
}
# udpsink would take the first address of a name, such as ::1 for localhost, where nobody listens. A machine without
# /etc/hosts does not know localhost.
take_host() {
  if [ "$1" = localhost ]; then
    host=127.0.0.1
  else
    host=$(getent ahostsv4 "$1" | awk '{ print $1; exit }') || true
  fi
  [ -n "$host" ] || { echo "$1: no such host, or it has no IPv4 address" >&2; exit 1; }
}
# Two could share the port, and each would get what the other misses.
take_listen_port() {
  listens=1
  take_port "$1"
  if grep -qsi "^ *[0-9]*: [0-9A-F]*$(printf ':%04X' "$1") " /proc/net/udp /proc/net/udp6; then
    echo "$1: another program receives on this port" >&2
    exit 1
  fi
}
take_file() {
  file=$1
  case ${1,,} in
    *.wav) encoder=('audio/x-raw,format=S16LE' ! wavenc) ;;
    *.flac) encoder=('audio/x-raw,format=S16LE' ! flacenc) ;;
    *.opus | *.ogg) encoder=(audioresample ! opusenc audio-type=voice bitrate=32000 ! oggmux) ;;
    *.mp3) encoder=(lamemp3enc target=bitrate bitrate=64 ! xingmux) ;;
    *.m4a) encoder=(avenc_aac bitrate=64000 ! mp4mux) packages+=(gstreamer1.0-libav) ;;
    *) refuse "$1: its ending is none of .wav .flac .opus .ogg .mp3 .m4a" ;;
  esac
  check_output "$1"
}
take_film() {
  film=$1 stem=${1%.*}
  case ${1,,} in *.webm) ;; *) refuse "$1: its ending is not .webm" ;; esac
  check_output "$1"
}

# check_output FILE: refuses one that cannot be written.
check_output() {
  local target folder
  target=$(realpath -m -- "$1")
  folder=${target%/*}
  [ ! -d "$target" ] || refuse "$1: is a folder"
  [ -d "${folder:-/}" ] || refuse "$1: there is no folder $folder"
  if [ ! -e "$target" ] || [ -f "$target" ]; then # else a pipe, perhaps
    [ -w "${folder:-/}" ] || refuse "$1: nothing can be written into the folder $folder"
  fi
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

# gst-launch-1.0 ARGUMENT...: runs the pipeline of the script and ends the script with it. As GStreamer's, but that
#   - qttssrc has the properties that the user asked for, and texts and names may have any characters;
#   - a file appears when it is whole, after Ctrl-C with what was spoken until then, and what it holds is told;
#   - -m says which texts were not wholly spoken, by their numbers, and of all else only what a user should know.
gst-launch-1.0() {
  local pipeline=() argument last_convert=-1 in_speaker='' sink='' i target status=0
  targets=() partials=()
  for argument; do
    if [ -n "$in_speaker" ] && [[ $argument != *=* ]]; then
      pipeline+=("${speaker[@]:1}")
      in_speaker=
    fi
    case $argument in
      qttssrc) in_speaker=1 ;;
      audioconvert) last_convert=${#pipeline[@]} ;;
      filesink | hlssink2) sink=$argument ;;
      location=*)
        argument=${argument#*=}
        if [ "$sink" = filesink ]; then
          target=$(realpath -m -- "$argument")
          argument=$target
          if [ ! -e "$target" ] || [ -f "$target" ]; then argument=$(mktemp -u "${target%/*}/.qttssrc-XXXXXX"); fi
          targets+=("$target") partials+=("$argument")
        fi
        argument=location=$(quote "$argument")
        ;;
      playlist-location=*)
        targets=("$(realpath -m -- "${argument#*=}")") partials=("${targets[@]}")
        argument=playlist-location=$(quote "${argument#*=}")
        ;;
      text=*) argument=text=$(quote "${argument#*=}") ;;
    esac
    pipeline+=("$argument")
  done
  [ -z "$in_speaker" ] || pipeline+=("${speaker[@]:1}")
  if [ ${#targets[@]} -eq 0 ]; then
    launch "${pipeline[@]}" || exit "${interrupted:-1}"
    end
  fi
  trap remove_partials EXIT
  # Measured before the last conversion, which for a mix is behind it.
  pipeline=("${pipeline[@]:0:last_convert+1}" ! "${measure[@]}" ! audioconvert "${pipeline[@]:last_convert+1}")
  launch -v "${pipeline[@]}" || status=$?
  [ "$status" -eq 0 ] || exit "${interrupted:-1}"
  finish_files
  end
}

# end: the script is over. One that listens ends with Ctrl-C, and successfully.
end() {
  [ -z "$listens" ] || exit 0
  exit "${interrupted:-0}"
}

# finish_files: gives files their names and tells what they hold.
finish_files() {
  local i what=speech
  [ -z "$subtitles" ] || what=sound
  [ -z "$format" ] || what="received sound"
  if [ "$sound" = 0.00 ]; then
    echo "there is no $what: ${targets[0]} was not written" >&2
    exit "${interrupted:-1}"
  fi
  for ((i = 0; i < ${#targets[@]}; i++)); do
    [ "${partials[i]}" = "${targets[i]}" ] || mv -f -- "${partials[i]}" "${targets[i]}"
  done
  if [ "$what" = "received sound" ]; then
    echo "wrote ${targets[0]}: $sound s of $what"
  else
    awk -v took="$took" -v sound="$sound" 'BEGIN { printf "%.1f\n", sound / took }' | {
      read -r speed
      echo "wrote ${targets[0]}${interrupted:+, as far as it came}: $sound s of $what in $took s, start-up included ($speed times real time)"
    }
  fi
  made_folder=
  [ ${#targets[@]} -lt 3 ] || echo "its subtitles are ${targets[1]} and ${targets[2]}"
}

remove_partials() {
  local i
  for ((i = 0; i < ${#targets[@]}; i++)); do
    [ "${partials[i]}" = "${targets[i]}" ] || rm -f -- "${partials[i]}"
  done
  [ -z "$folder" ] || find "$folder" -maxdepth 1 -name 'speech*' -size 0 -delete
  [ -z "$made_folder" ] || rmdir -- "$made_folder" 2>/dev/null || true
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
