# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by rtp-send and rtp-receive: what both ends must agree on.

# rtp_format NAME: sets the arrays `rtp_encoder` (sound to packets), which needs the Debian packages `rtp_packages`, and
# `rtp_decoder` (back), and what describes the packets: `rtp_caps` for GStreamer; `payload`, `rtpmap` and `fmtp` for a session description.
# shellcheck disable=SC2034
rtp_format() {
  local encoding rate ptime=20000000
  fmtp='' rtp_packages=()
  case $1 in
    opus)
      payload=96 encoding=OPUS rate=48000 rtpmap=opus/48000/2 fmtp='sprop-stereo=0;useinbandfec=1;usedtx=1'
      rtp_encoder=(opusenc audio-type=voice bitrate=24000 frame-size=20 dtx=true inband-fec=true packet-loss-percentage=5
        ! rtpopuspay pt=96 dtx=true)
      rtp_decoder=(rtpopusdepay ! opusdec plc=true use-inband-fec=true)
      ;;
    l16)
      payload=97 encoding=L16 rate=24000 rtpmap=L16/24000
      rtp_encoder=('audio/x-raw,rate=24000' ! rtpL16pay pt=97 "min-ptime=$ptime" "max-ptime=$ptime")
      rtp_decoder=(rtpL16depay)
      ;;
    pcmu | pcma)
      local law=mulaw
      payload=0 encoding=${1^^} rate=8000 rtpmap=${1^^}/8000
      [ "$1" = pcmu ] || payload=8 law=alaw
      # The resampler's filter holds some samples back, so that of the four packets of a frame the last lacks its end until
      # the next frame: it would leave 16 ms late. audiobuffersplit tells the pipeline of that delay, and all are on time.
      rtp_encoder=('audio/x-raw,rate=8000' ! audiobuffersplit output-buffer-duration=1/50
        ! "${law}enc" ! "rtp${1}pay" "pt=$payload" "min-ptime=$ptime" "max-ptime=$ptime")
      rtp_packages=(gstreamer1.0-plugins-bad)
      rtp_decoder=("rtp${1}depay" ! "${law}dec")
      ;;
    *)
      echo "$1: the formats are opus, l16, pcmu and pcma" >&2
      exit 2
      ;;
  esac
  rtp_caps="application/x-rtp,media=audio,payload=$payload,clock-rate=$rate,encoding-name=$encoding,sprop-stereo=(string)0"
}
