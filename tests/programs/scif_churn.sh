#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Loads, unloads and kills clients of SCIF in the middle of transfers (tests/modules/churn), many
# times, in a guest:
#
#	scif_churn.sh client SERVER ROUNDS MODULES	against the server of node SERVER
#	scif_churn.sh server MODULES [SCIF PARAMETERS]	until there is /tmp/churn-over
#
# MODULES is the folder with the test's modules. With SCIF, the file of the module under test, the
# server reloads that module each time, too. The script does not go by time: each client has made a
# number of transfers before it is ended, and this number is another one each time.
#
# Waiting loops fork nothing, because starting a process takes seconds beside this load.
set -eu

role=$1
shift
over=/tmp/churn-over
loaded=/sys/module/scif_churn
transfers=$loaded/parameters/transfers

pause() {
	read -r -t 0.02 <>"$never" || true
}

# Prints the number of transfers after which the client ends in that round.
some() { # ROUND
	wanted=$(($1 * 37 % 60 + 1))
}

await_transfers() { # COUNT
	local made=0
	until [ "$made" -ge "$1" ] || [ -e "$over" ]; do
		pause
		read -r made 2>/dev/null <"$transfers" || made=0
	done
}

await_lines() { # COUNT FILE
	local lines=()
	until [ ${#lines[@]} -ge "$1" ]; do
		pause
		mapfile -t lines <"$2"
	done
}

loaded_and_unloaded() { # ROUND PARAMETER...
	seed=$1
	shift
	insmod "$modules/scif_churn.ko" seed="$seed" "$@"
	some "$seed"
	await_transfers "$wanted"
	rmmod scif_churn
}

killed_in_init() { # ROUND
	insmod "$modules/scif_churn.ko" role=client node="$server" seed="$1" in_init=1 \
		2>/dev/null &
	some "$1"
	await_transfers "$wanted"
	kill -9 $!
	wait $! || true
	while [ -e "$loaded" ]; do
		pause
	done
}

programs_killed() { # ROUND
	local number programs=()
	for number in 1 2; do
		: >/tmp/churn-$number
		"${0%.sh}" "$server" 3300 >/tmp/churn-$number &
		programs+=($!)
	done
	for number in 1 2; do
		await_lines $(($1 % 7 + 1)) /tmp/churn-$number
	done
	kill -9 "${programs[@]}"
	wait
}

client() {
	server=$1 rounds=$2 modules=$3
	for ((round = 1; round <= rounds; round++)); do
		case $((round % 5)) in
		0) loaded_and_unloaded "$round" role=both ;;
		1) loaded_and_unloaded "$round" role=client node="$server" ;;
		2) loaded_and_unloaded "$round" role=client node="$server" forgets=1 ;;
		3) killed_in_init "$round" ;;
		4) programs_killed "$round" ;;
		esac
	done
}

server() {
	modules=$1 scif=${2:-}
	[ $# -lt 2 ] || shift 2
	round=0
	until [ -e "$over" ]; do
		round=$((round + 1))
		insmod "$modules/scif_churn.ko" role=server seed=$round
		[ $round -gt 1 ] || echo serving
		some $round
		await_transfers "$wanted"
		rmmod scif_churn
		if [ "$scif" ]; then
			rmmod scif
			insmod "$scif" "$@"
		fi
	done
	echo "$round servers"
}

never=$(mktemp -u)
mkfifo "$never"
"$role" "$@"
rm "$never"
