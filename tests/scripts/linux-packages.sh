#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The Linux version that scripts/linux-packages takes when the archive moves. The archive is a few
# lines of text here, with stand-ins for apt's programs.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

export ARCHIVE=$folder/archive SCIF_PACKAGE_CACHE=$folder/cache SCIF_PACKAGE_MEMORY=$folder/memory
mkdir -p "$folder/bin" "$SCIF_PACKAGE_CACHE"
# Lines "PACKAGE VERSION" are the index; "gone PACKAGE" is one that cannot be downloaded.
cat >"$folder/bin/apt-cache" <<'STUB'
#!/bin/bash
case $1 in
search) grep -v ^gone "$ARCHIVE" | cut -d' ' -f1 | sort -u | grep -E "$3" | sed 's/$/ - a package/' ;;
madison) grep "^$2 " "$ARCHIVE" | while read -r name version; do echo " $name | $version | http://archive trixie-backports/main amd64 Packages"; done ;;
policy) echo "  Candidate: 1" ;;
esac
true
STUB
cat >"$folder/bin/apt-get" <<'STUB'
#!/bin/bash
for word; do
	case $word in
	*=*)
		if grep -q "^gone ${word%%=*}\$" "$ARCHIVE"; then
			echo "E: Failed to fetch http://archive/${word%%=*}.deb  404  Not Found"
			exit 100
		fi
		: >"${word%%=*}.deb"
		;;
	esac
done
STUB
cat >"$folder/bin/dpkg-deb" <<'STUB'
#!/bin/bash
case $2 in
*linux-source-*) mkdir -p "$3/usr/src" && : >"$3/usr/src/$(basename "$2" .deb).tar.xz" ;;
esac
STUB
chmod +x "$folder"/bin/*
export PATH=$folder/bin:$PATH
unset LINUX_SERIES

archive() { printf '%s\n' "$@" >"$ARCHIVE"; rm -rf "$folder/memory"; }
kernel() { # RELEASE VERSION
	printf "%s $2\n" "linux-binary-$1" "linux-base-$1" "linux-modules-$1" "linux-headers-$1"
}
packages() { "$scripts/linux-packages" "$@"; }
with_series() { LINUX_SERIES=$1 "$scripts/linux-packages" "${@:2}"; }

archive "linux-source-6.12 6.12.1-1" "linux-source-7.3 7.3.4-1" "$(kernel 7.3.4+deb13-amd64 7.3.4-1)" \
	"$(kernel 7.3.4+deb13-cloud-amd64 7.3.4-1)" "$(kernel 7.3.4+deb13-rt-amd64 7.3.4-1)"
expect "the archive of today" 0 "7.3 7.3.4-1 7.3.4+deb13-amd64" packages choose
expect "a series that does not exist" 1 "the archive has no Linux 9.9 (LINUX_SERIES), only 7.3 6.12" with_series 9.9 choose
expect "a series that is too old" 1 "LINUX_SERIES=6.12 is too old" with_series 6.12 choose
expect "a series that is no series" 1 "is no series of Linux" with_series next choose
expect "everything is downloaded" 0 "linux-7.3.4-1" packages fetch
expect "a second fetch downloads nothing" 0 "linux-7.3.4-1" packages fetch
expect "no packages for another machine" 1 "Linux 7.3.4-1 and not linux-binary-7.3.4+deb13-arm64:arm64 of the same version" packages foreign arm64
for package in binary headers; do
	echo "linux-$package-7.3.4+deb13-arm64:arm64 7.3.3-1"
done >>"$ARCHIVE"
expect "packages for another machine in another version" 1 "is being updated, try again" packages foreign arm64
for package in binary headers; do
	echo "linux-$package-7.3.4+deb13-arm64:arm64 7.3.4-1"
done >>"$ARCHIVE"
expect "kernel and headers for another machine" 0 "linux-7.3.4-1-arm64" packages foreign arm64
expect "a second fetch for another machine downloads nothing" 0 "linux-7.3.4-1-arm64" packages foreign arm64

archive "linux-source-7.3 7.3.9-1" "linux-source-7.4 7.4.1-1" "linux-source-7.10 7.10.2-1" \
	"$(kernel 7.3.9+deb13-amd64 7.3.9-1)" "$(kernel 7.4.1+deb13-amd64 7.4.1-1)" \
	"$(kernel 7.10.2+deb13-amd64 7.10.2-1)"
expect "the newest series, by number" 0 "7.10 7.10.2-1 7.10.2+deb13-amd64" packages choose
expect "the newest series was never tried" 0 "Linux 7.10 is newer than" packages choose
expect "an older one on request" 0 "7.4 7.4.1-1 7.4.1+deb13-amd64" with_series 7.4 choose
expect "the chosen version is remembered" 0 "7.10 7.10.2-1" packages chosen
archive "linux-source-7.4 7.4.1-1" "$(kernel 7.4.1+deb13-amd64 7.4.1-1)"
expect "7.3 is gone, 7.4 is there" 0 "7.4 7.4.1-1 7.4.1+deb13-amd64" packages choose
expect "a request for a series that is gone" 1 "only 7.4" with_series 7.3 choose

archive "linux-source-7.4 7.4.2-1" "linux-source-7.4 7.4.1-1" "$(kernel 7.4.1+deb13-amd64 7.4.1-1)"
expect "the source is newer than the kernel" 0 "7.4 7.4.1-1 7.4.1+deb13-amd64" packages choose
archive "linux-source-7.4 7.4.2-1" "$(kernel 7.4.1+deb13-amd64 7.4.1-1)"
expect "no source for the kernel" 1 "is being updated; try again" packages choose
archive "linux-source-7.4 7.4.2-1" "linux-binary-7.4.2+deb13-amd64 7.4.2-1"
expect "a kernel without headers" 1 "is being updated; try again" packages choose
archive "linux-source-6.12 6.12.1-1"
expect "no series that is new enough" 1 "no Linux from 7.3 on, only 6.12" packages choose
archive ""
expect "no index at all" 1 "has no linux-source-*" packages choose

archive "linux-source-7.5 7.5.1-1" "$(kernel 7.5.1+deb13-amd64 7.5.1-1)" "gone linux-modules-7.5.1+deb13-amd64"
expect "a package vanished since the index was read" 1 "has vanished from the archive since its index was read" packages fetch
expect "the error names a way out" 1 "make update-pins" packages fetch
packages choose >/dev/null 2>&1
echo "linux-source-7.6 7.6.1-1" >>"$ARCHIVE"
kernel 7.6.1+deb13-amd64 7.6.1-1 >>"$ARCHIVE"
expect "update-pins shows what would change" 0 "7.6  <- changes" packages compare
tap_end
