#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# No process outlives a command that scripts/contained runs, however the command ends.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

contained=$scripts/contained
# All processes of the test have this word in their command lines, and no other process has.
word=contained-test-$$

# These processes would run for ever: in the background, in a session of their own, deaf to SIGTERM.
brood="(setsid sh -c 'while :; do sleep 1; done' $word &)
trap '' TERM
touch $folder/started
while :; do sleep 1; done"

wait_until() { # COMMAND...
	local attempt
	for attempt in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.1
	done
	return 1
}
gone() { ! pgrep -f "[ ]$word" >/dev/null; }
ends_by() { # SIGNAL
	rm -f "$folder/started"
	"$contained" sh -c "$brood" "$word" &
	local process=$!
	wait_until test -e "$folder/started" || return 1
	kill "-$1" "$process"
	wait "$process" 2>/dev/null
	wait_until gone
}
parent_dies() {
	rm -f "$folder/started"
	SCIF_WITH_PARENT=yes sh -c '"$@"; true' sh "$contained" sh -c "$brood" "$word" &
	local process=$!
	wait_until test -e "$folder/started" || return 1
	kill -KILL "$process"
	wait "$process" 2>/dev/null
	wait_until gone
}
leaves_nothing() {
	"$contained" sh -c "(setsid sh -c 'while :; do sleep 1; done' $word &)"
	wait_until gone
}
lifeline() {
	rm -f "$folder/started"
	mkfifo "$folder/fifo"
	"$contained" --lifeline sh -c "$brood" "$word" <"$folder/fifo" &
	local process=$!
	exec 7>"$folder/fifo"
	wait_until test -e "$folder/started" || return 1
	exec 7>&-
	wait "$process"
	wait_until gone
}

expect "the status of the command" 3 "" "$contained" sh -c 'exit 3'
expect "a command that a signal ends" 137 "" "$contained" sh -c 'kill -9 $$'
expect "a command that is not there" 127 "cannot run" "$contained" /no/such/program
expect "its input and output" 0 "text" sh -c "echo text | $contained cat"
expect "a command under nohup" 4 "" nohup "$contained" sh -c 'kill -HUP $$; exit 4'
expect "processes left behind are killed" 0 "" leaves_nothing
expect "SIGTERM ends everything" 0 "" ends_by TERM
expect "SIGKILL ends everything" 0 "" ends_by KILL
expect "the end of the input ends everything, with --lifeline" 0 "" lifeline
expect "the death of the parent ends everything, with SCIF_WITH_PARENT" 0 "" parent_dies
tap_end
