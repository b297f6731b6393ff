#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# "deb version": the version of the packages, for each state of the repository.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

mkdir -p "$folder/scripts"
cp "$scripts/deb" "$scripts/messages.sh" "$folder/scripts/"
printf '[workspace]\n\n[workspace.package]\nversion = "1.2.3"\n\n[other]\nversion = "9"\n' >"$folder/Cargo.toml"
touch -d @1600000000 "$folder/Cargo.toml"
in_folder() {
	git -C "$folder" -c user.name=nobody -c user.email=nobody@localhost.invalid "$@" >/dev/null
}
commit() {
	GIT_COMMITTER_DATE="$1 +0200" in_folder commit -q --allow-empty -m "a commit" && in_folder rev-parse HEAD
}
version() { "$folder/scripts/deb" version; }
sorts() { dpkg --compare-versions "$@"; }

expect "without git" 0 "1.2.3 1600000000" version
in_folder init -q
expect "in a repository without a commit" 0 "1.2.3 1600000000" version
in_folder add .
commit 1700000000
expect "of a commit" 0 "1.2.3~git20231114.221320." version
expect "with its time" 0 " 1700000000" version
first=$(version | cut -d' ' -f1)
echo >>"$folder/Cargo.toml"
expect "of a commit and changes" 0 "$first.changed 1700000000" version
in_folder add . && commit 1700000060
second=$(version | cut -d' ' -f1)
expect "the next commit is newer, $second" 0 "" sorts "$first" lt "$second"
expect "than changes to the one before, too" 0 "" sorts "$first.changed" lt "$second"
in_folder tag v1.2.3
expect "of a release" 0 "1.2.3 1700000060" version
expect "which is newer than all" 0 "" sorts "$second" lt 1.2.3
mkdir "$folder/release" && cp -pr "$folder/scripts" "$folder/Cargo.toml" "$folder/release/"
touch -d @1600000000 "$folder/release/Cargo.toml"
expect "unpacked in another repository" 0 "1.2.3 1600000000" "$folder/release/scripts/deb" version
echo '[workspace]' >"$folder/Cargo.toml"
expect "no version" 1 "Cargo.toml has no version" version
tap_end
